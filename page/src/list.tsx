/** All sandboxes: as many rows as are seen are there, whatever their number. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { place as cluster } from "./api";
import { hostOf, parse, sorted, spec, takes, toneOf, type Order } from "./filter";
import { useNow, type Live } from "./live";
import { go, href, withQuery, type Place } from "./router";
import { duration, roughly } from "./text";
import type { Sandbox } from "./types";
import { Heading, Labels, State, Text, TONE_WORDS } from "./ui";

const ROW = 45;
const BEYOND = 12;
const columns = (): [Order | "", string, string][] => [
  ["name", "Name", ""],
  ["state", "State", ""],
  ["", "Reason", "reason"],
  ["", "Progress", "progress"],
  ["age", "Age", "age"],
  ["left", "Time left", "left"],
  ["", "Labels", "labels"],
  ["", cluster() ? "Namespace" : "Host", "host"],
];

export function List({ live, place }: { live: Live; place: Place }): JSX.Element {
  const query = place.query.get("q") ?? "";
  const order = (place.query.get("by") ?? "name") as Order;
  const all = useMemo(() => [...live.all.values()], [live.all]);
  const found = useMemo(() => {
    const terms = parse(query);
    const known: Order = ["name", "age", "state", "left"].includes(order) ? order : "name";
    return sorted(
      all.filter((each) => takes(terms, each)),
      known,
    );
  }, [all, query, order]);
  return (
    <>
      <div class="head">
        <Heading title="Sandboxes">Sandboxes</Heading>
        <form role="search" onSubmit={(event) => event.preventDefault()}>
          <input
            id="search"
            type="search"
            aria-label="Filter sandboxes"
            aria-describedby="filter-help"
            placeholder={`name, label=value, is:failed, on:${cluster() ? "namespace" : "host"}`}
            value={query}
            spellcheck={false}
            autocomplete="off"
            onInput={(event) => go(withQuery({ q: event.currentTarget.value }), "replace")}
          />
          <span id="filter-help" class="offstage">
            Words look in names, reasons, hosts and labels. key=value finds a label, is:ready, is:working, is:trouble,
            is:warning or is:failed a state, on:name a host or namespace.
          </span>
        </form>
        <p class="count" role="status">
          {live.synced ? count(found.length, all.length) : live.fault ? "Not known" : "Loading…"}
        </p>
      </div>
      <Rows found={found} order={order} synced={live.synced} none={!all.length} />
    </>
  );
}

function count(found: number, all: number): string {
  const many = all === 1 ? "1 sandbox" : `${all} sandboxes`;
  return found === all ? many : `${found} of ${many}`;
}

interface RowsProps {
  found: Sandbox[];
  order: Order;
  synced: boolean;
  none: boolean;
}

function Rows({ found, order, synced, none }: RowsProps): JSX.Element {
  const now = useNow();
  const frame = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ top: 0, height: 900 });
  const [wanted, setWanted] = useState(-1);
  useEffect(() => {
    const look = (): void => {
      const top = frame.current?.getBoundingClientRect().top ?? 0;
      setSeen({ top: Math.max(0, -top), height: window.innerHeight });
    };
    look();
    window.addEventListener("scroll", look, { passive: true });
    window.addEventListener("resize", look);
    return () => {
      window.removeEventListener("scroll", look);
      window.removeEventListener("resize", look);
    };
  }, []);
  const first = Math.max(0, Math.min(Math.floor(seen.top / ROW) - BEYOND, found.length - 1));
  const last = Math.min(found.length, Math.ceil((seen.top + seen.height) / ROW) + BEYOND);
  useLayoutEffect(() => {
    if (wanted < 0) return;
    const link = frame.current?.querySelector<HTMLElement>(`a[data-row="${wanted}"]`);
    if (link) {
      link.focus({ preventScroll: true });
      link.scrollIntoView({ block: "nearest" });
      setWanted(-1);
    }
  });
  useEffect(() => {
    const key = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const step = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || !found.length || document.querySelector("dialog[open]")) return;
      const at = document.activeElement?.getAttribute("data-row");
      if (event.key.startsWith("Arrow") && at === null) return; // the arrows scroll elsewhere
      event.preventDefault();
      const next = at == null ? first + (first ? BEYOND : 0) : Number(at) + step;
      const row = Math.max(0, Math.min(found.length - 1, next));
      const box = frame.current?.getBoundingClientRect();
      const y = (box?.top ?? 0) + ROW * (row + 1);
      if (y < 120 || y + ROW > window.innerHeight) window.scrollBy(0, y - window.innerHeight / 2);
      setWanted(row);
    };
    window.addEventListener("keydown", key);
    return () => window.removeEventListener("keydown", key);
  }, [found, first]);
  if (synced && !found.length) return <p class="nothing">{none ? <Begin /> : "No sandbox fits that filter."}</p>;
  return (
    <div ref={frame} class="rows">
      <table aria-rowcount={found.length + 1} class={synced ? "" : "unsynced"}>
        <caption class="offstage">Sandboxes, live</caption>
        <thead>
          <tr aria-rowindex={1}>
            {columns().map(([by, title, kind]) => (
              <th key={title} scope="col" class={kind} aria-sort={by && by === order ? "ascending" : undefined}>
                {by ? <a href={withQuery({ by: by === "name" ? "" : by })}>{title}</a> : title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <Space rows={first} />}
          {found.slice(first, last).map((each, index) => (
            <Row key={each.name} sandbox={each} row={first + index} now={now} />
          ))}
          {last < found.length && <Space rows={found.length - last} />}
        </tbody>
      </table>
    </div>
  );
}

function Begin(): JSX.Element {
  return (
    <>
      There are no sandboxes{cluster()?.namespace ? ` in namespace ${cluster()?.namespace}` : ""}. Create one with:{" "}
      <code>{cluster() ? "kubectl" : "dayfly"} apply -f FILE</code>
    </>
  );
}

/** What stands for rows that nobody sees. */
function Space({ rows }: { rows: number }): JSX.Element {
  return (
    <tr aria-hidden="true" class="space" style={{ height: `${rows * ROW}px` }}>
      <td colSpan={columns().length} />
    </tr>
  );
}

function Row({ sandbox, row, now }: { sandbox: Sandbox; row: number; now: number }): JSX.Element {
  const tone = toneOf(sandbox);
  const { labels = {} } = spec(sandbox);
  const end = sandbox.status.scheduledDeleteTime;
  const { done, total } = sandbox.progress;
  return (
    <tr aria-rowindex={row + 2}>
      <th scope="row">
        <a href={href(["sandboxes", sandbox.name])} data-row={row}>
          <Text>{sandbox.name}</Text>
        </a>
      </th>
      <td>
        <State state={tone}>{TONE_WORDS[tone]}</State>
      </td>
      <td class="reason" title={sandbox.status.message}>
        <Text>{sandbox.status.reason}</Text>
      </td>
      <td class="progress">
        {total ? (
          <>
            <span class="bar" aria-hidden="true">
              <span style={{ width: `${(100 * done) / total}%` }} class={tone} />
            </span>
            <span class="figures">
              {done}/{total}
            </span>
          </>
        ) : (
          "–"
        )}
      </td>
      <td class="age">{roughly(now - Date.parse(sandbox.createdAt))}</td>
      <td class="left">{end ? duration(Date.parse(end) - now).split(" ").slice(0, 2).join(" ") : "–"}</td>
      <td class="labels">
        <Labels labels={labels} />
      </td>
      <td class="host">
        <Text>{hostOf(sandbox)}</Text>
      </td>
    </tr>
  );
}

export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.matches("input, textarea, select") || target.isContentEditable);
}
