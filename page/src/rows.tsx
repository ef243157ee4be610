/** The rows of a live list. Only rows in and near the window are in the DOM. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { plainCluster } from "./api";
import type { Selection } from "./bulk";
import { hostOf, toneOf, TONE_WORDS, type Order } from "./filter";
import { useNow } from "./live";
import { href, withQuery } from "./router";
import { duration, roughly, visible } from "./text";
import type { Listed } from "./types";
import { State, Text } from "./ui";

/** The height of a row in pixels, as in style.css. */
const ROW = 45;
/** The number of rows in the DOM above and below the window. */
const OVERSCAN_ROWS = 12;

/** The worst objects are listed first. */
export const DEFAULT_ORDER: Order = "state";

/** A column between State and Age. */
export interface Column<T> {
  title: string;
  kind: string;
  cell: (each: T) => JSX.Element | string;
  tip?: (each: T) => string;
}

const LEFT: [Order, string, string] = ["left", "Time left", "left"];

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
  selection: Selection | null;
  nothing: JSX.Element | string;
}

export function Rows<T extends Listed>({ title, plural, found, order, backwards, synced, columns, after, mortal, selection, nothing }: RowsProps<T>): JSX.Element {
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
                {by === "name" && selection && (
                  <Box label="Select all" checked={found.length > 0 && selection.found.length === found.length} onChange={(on) => selection.setAll(on)} />
                )}
                {by ? <a href={withQuery({ by: nextOrder(by, order, backwards) })}>{head}</a> : head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <Space rows={first} />}
          {found.slice(first, last).map((each, index) => (
            <Row key={each.name} plural={plural} of={each} row={first + index} now={now} columns={columns} after={after} mortal={mortal} selection={selection} />
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
  return by === DEFAULT_ORDER && !way ? "" : way + by;
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
  selection: Selection | null;
}

function Row<T extends Listed>({ plural, of, row, now, columns, after, mortal, selection }: RowProps<T>): JSX.Element {
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
        {selection && <Box label={`Select ${of.name}`} checked={selection.has(of)} onChange={(on, range) => selection.set(row, on, range)} />}
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

/** The checkbox of a row. A click with the shift key selects all rows from the last one. */
function Box({ label, checked, onChange }: { label: string; checked: boolean; onChange: (on: boolean, range: boolean) => void }): JSX.Element {
  return (
    <label class="box">
      <input type="checkbox" aria-label={visible(label)} checked={checked} onClick={(event) => onChange(event.currentTarget.checked, event.shiftKey)} />
    </label>
  );
}

export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.matches("input:not([type=checkbox]), textarea, select") || target.isContentEditable);
}
