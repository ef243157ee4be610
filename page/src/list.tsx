/** The live list of sandboxes, route groups or pools. Only rows in and near the window are in the DOM. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { plainCluster } from "./api";
import { hostOf, matches, parse, sorted, spec, toneOf, type Order } from "./filter";
import { useNow, type Kind, type Live } from "./live";
import { go, href, withQuery, type Place } from "./router";
import { duration, roughly } from "./text";
import type { Listed, Sandbox } from "./types";
import { Heading, Labels, State, Text, TONE_WORDS } from "./ui";

const ORDERS: Order[] = ["name", "age", "state", "left"];
/** The height of a row in pixels, as in style.css. */
const ROW = 45;
/** The number of rows in the DOM above and below the window. */
const OVERSCAN_ROWS = 12;
/** A column between State and Age. */
export interface Column<T> {
  title: string;
  kind: string;
  cell: (each: T) => JSX.Element | string;
  tip?: (each: T) => string;
}

const COLUMNS: Column<Sandbox>[] = [
  { title: "Reason", kind: "reason", cell: (each) => <Text>{each.status.reason}</Text>, tip: (each) => each.status.message },
  { title: "Progress", kind: "progress", cell: (each) => <Progress sandbox={each} /> },
];

const LABELS: Column<Sandbox>[] = [{ title: "Labels", kind: "labels", cell: (each) => <Labels labels={spec(each).labels ?? {}} /> }];

export function List({ live, place }: { live: Live; place: Place }): JSX.Element {
  return (
    <Listing
      title="Sandboxes"
      one="sandbox"
      plural="sandboxes"
      known={live}
      place={place}
      columns={COLUMNS}
      after={LABELS}
      extraTerms=""
      help=""
      emptyMessage={<Begin />}
    />
  );
}

interface ListingProps<T extends Listed> {
  title: string;
  /** Singular, as used in a sentence. */
  one: string;
  /** Plural, as used in addresses. */
  plural: string;
  known: Kind<T>;
  place: Place;
  columns: Column<T>[];
  /** Columns after the column `Time left`. */
  after?: Column<T>[];
  /** Whether the objects may have a time to live. */
  mortal?: boolean;
  /** Filter terms that only this list has (for the placeholder), and a sentence about them. */
  extraTerms: string;
  help: string;
  /** Shown if the list is empty. */
  emptyMessage: JSX.Element;
}

const NO_COLUMNS: Column<Listed>[] = [];
const LEFT: [Order, string, string] = ["left", "Time left", "left"];

export function Listing<T extends Listed>(props: ListingProps<T>): JSX.Element {
  const { title, one, plural, known, place, columns, after = NO_COLUMNS, mortal = true, extraTerms, help, emptyMessage } = props;
  const query = place.query.get("q") ?? "";
  const wanted = place.query.get("by") ?? "name";
  const backwards = wanted.startsWith("-");
  const order = ORDERS.find((each) => each === wanted.replace("-", "")) ?? "name";
  const all = useMemo(() => [...known.all.values()], [known.all]);
  const many = all.length === 1 ? one : one === "sandbox" ? "sandboxes" : `${one}s`;
  const found = useMemo(() => {
    const terms = parse(query);
    return sorted(
      all.filter((each) => matches(terms, each)),
      order,
      backwards,
    );
  }, [all, query, order, backwards]);
  return (
    <>
      <div class="head">
        <Heading title={title}>{title}</Heading>
        <form role="search" onSubmit={(event) => event.preventDefault()}>
          <input
            id="search"
            type="search"
            aria-label={`Filter ${title.toLowerCase()}`}
            aria-describedby="filter-help"
            placeholder={["name, label=value, is:failed", extraTerms, `on:${plainCluster() ? "namespace" : "host"}`].filter(Boolean).join(", ")}
            value={query}
            spellcheck={false}
            autocomplete="off"
            onInput={(event) => go(withQuery({ q: event.currentTarget.value }), "replace")}
          />
          <span id="filter-help" class="offstage">
            Words match names, reasons, hosts, labels and descriptions. key=value finds a label, is:ready, is:working, is:trouble,
            is:warning or is:failed a state, on:name a host or namespace. {help}
          </span>
        </form>
        <p class="count" role="status">
          {known.synced ? count(found.length, all.length, many) : known.fault ? "Not known" : "Loading…"}
        </p>
      </div>
      <Rows
        title={title}
        plural={plural}
        found={found}
        order={order}
        backwards={backwards}
        synced={known.synced}
        columns={columns}
        after={after}
        mortal={mortal}
        nothing={all.length ? `No ${one} matches the filter.` : emptyMessage}
      />
    </>
  );
}

function count(found: number, all: number, many: string): string {
  return found === all ? `${all} ${many}` : `${found} of ${all} ${many}`;
}

interface RowsProps<T> {
  title: string;
  plural: string;
  found: T[];
  order: Order;
  backwards: boolean;
  synced: boolean;
  columns: Column<T>[];
  after: Column<T>[];
  mortal: boolean;
  nothing: JSX.Element | string;
}

function Rows<T extends Listed>({ title, plural, found, order, backwards, synced, columns, after, mortal, nothing }: RowsProps<T>): JSX.Element {
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
  const first = Math.max(0, Math.min(Math.floor(seen.top / ROW) - OVERSCAN_ROWS, found.length - 1));
  const last = Math.min(found.length, Math.ceil((seen.top + seen.height) / ROW) + OVERSCAN_ROWS);
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
      if (event.key.startsWith("Arrow") && at === null) return; // without a focused row, arrow keys scroll the page
      event.preventDefault();
      const next = at == null ? first + (first ? OVERSCAN_ROWS : 0) : Number(at) + step;
      const row = Math.max(0, Math.min(found.length - 1, next));
      const box = frame.current?.getBoundingClientRect();
      const y = (box?.top ?? 0) + ROW * (row + 1);
      if (y < 120 || y + ROW > window.innerHeight) window.scrollBy(0, y - window.innerHeight / 2);
      setWanted(row);
    };
    window.addEventListener("keydown", key);
    return () => window.removeEventListener("keydown", key);
  }, [found, first]);
  if (synced && !found.length) return <p class="nothing">{nothing}</p>;
  const bare = (each: Column<T>): [Order | "", string, string] => ["", each.title, each.kind];
  const heads: [Order | "", string, string][] = [
    ["name", "Name", ""],
    ["state", "State", ""],
    ...columns.map(bare),
    ["age", "Age", "age"],
    ...(mortal ? [LEFT] : []),
    ...after.map(bare),
    ["", plainCluster() ? "Namespace" : "Host", "host"],
  ];
  return (
    <div ref={frame} class="rows">
      <table aria-rowcount={found.length + 1} class={synced ? "" : "unsynced"}>
        <caption class="offstage">{title}, live</caption>
        <thead>
          <tr aria-rowindex={1}>
            {heads.map(([by, head, kind]) => (
              <th key={head} scope="col" class={kind} aria-sort={by && by === order ? (backwards ? "descending" : "ascending") : undefined}>
                {by ? <a href={withQuery({ by: nextOrder(by, order, backwards) })}>{head}</a> : head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <Space rows={first} />}
          {found.slice(first, last).map((each, index) => (
            <Row key={each.name} plural={plural} of={each} row={first + index} now={now} columns={columns} after={after} mortal={mortal} />
          ))}
          {last < found.length && <Space rows={found.length - last} />}
        </tbody>
      </table>
    </div>
  );
}

/** The sort order in the address (`by`) after a click on a column title. A click on the current column reverses it. */
function nextOrder(by: Order, order: Order, backwards: boolean): string {
  const way = by === order && !backwards ? "-" : "";
  return by === "name" && !way ? "" : way + by;
}

function Begin(): JSX.Element {
  return (
    <>
      There are no sandboxes{plainCluster()?.namespace ? ` in namespace ${plainCluster()?.namespace}` : ""}. Create one with:{" "}
      <code>{plainCluster() ? "kubectl" : "dayfly"} apply -f FILE</code>
    </>
  );
}

/** A spacer in place of rows that are not in the DOM. It has a single cell: a colSpan over hidden columns would take width from the others. */
function Space({ rows }: { rows: number }): JSX.Element {
  return (
    <tr aria-hidden="true" class="space" style={{ height: `${rows * ROW}px` }}>
      <td />
    </tr>
  );
}

interface RowProps<T> {
  plural: string;
  of: T;
  row: number;
  now: number;
  columns: Column<T>[];
  after: Column<T>[];
  mortal: boolean;
}

function Row<T extends Listed>({ plural, of, row, now, columns, after, mortal }: RowProps<T>): JSX.Element {
  const tone = toneOf(of);
  const end = of.status.scheduledDeleteTime;
  const cell = (each: Column<T>): JSX.Element => (
    <td key={each.title} class={each.kind} title={each.tip?.(of)}>
      {each.cell(of)}
    </td>
  );
  return (
    <tr aria-rowindex={row + 2}>
      <th scope="row">
        <a href={href([plural, of.name])} data-row={row}>
          <Text>{of.name}</Text>
        </a>
      </th>
      <td>
        <State state={tone}>{TONE_WORDS[tone]}</State>
      </td>
      {columns.map(cell)}
      <td class="age">{roughly(now - Date.parse(of.createdAt))}</td>
      {mortal && <td class="left">{end ? duration(Date.parse(end) - now).split(" ").slice(0, 2).join(" ") : "–"}</td>}
      {after.map(cell)}
      <td class="host">
        <Text>{hostOf(of) || "all"}</Text>
      </td>
    </tr>
  );
}

function Progress({ sandbox }: { sandbox: Sandbox }): JSX.Element {
  const { done, total } = sandbox.progress;
  if (!total) return <>–</>;
  return (
    <>
      <span class="bar" aria-hidden="true">
        <span style={{ width: `${(100 * done) / total}%` }} class={toneOf(sandbox)} />
      </span>
      <span class="figures">
        {done}/{total}
      </span>
    </>
  );
}

export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.matches("input, textarea, select") || target.isContentEditable);
}
