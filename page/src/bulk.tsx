/** Actions on many sandboxes: the selection of a list, its bar, and the dialog that sends the requests. */
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { may, orgPath, part, request, words } from "./api";
import { Hours } from "./questions";
import type { Listed } from "./types";
import { Dialog, Prose, Text } from "./ui";

/** Requests at the same time. Browsers allow six connections to a server, and the stream of changes has one. */
const CONCURRENCY = 4;
/** How many names a dialog lists. */
const MAX_NAMED = 8;

/** The selected rows of a list. A new sandbox with the name of a selected one is not selected. */
export interface Selection {
  has: (each: Listed) => boolean;
  /** Select or clear a row; with `range`, all rows from the last changed one. */
  set: (row: number, on: boolean, range: boolean) => void;
  setAll: (on: boolean) => void;
  /** The selected sandboxes that the filter shows. */
  found: Listed[];
}

function keyOf({ name, createdAt }: Listed): string {
  return `${name} ${createdAt}`;
}

export function useSelection(found: Listed[]): Selection {
  const [keys, setKeys] = useState<ReadonlySet<string>>(new Set());
  const last = useRef("");
  const selected = useMemo(() => (keys.size ? found.filter((each) => keys.has(keyOf(each))) : []), [found, keys]);
  const change = (rows: Listed[], on: boolean): void =>
    setKeys((known) => {
      const next = new Set(known);
      for (const each of rows) {
        if (on) next.add(keyOf(each));
        else next.delete(keyOf(each));
      }
      return next;
    });
  return {
    has: (each) => keys.has(keyOf(each)),
    set: (row, on, range) => {
      // By identity, because rows move while the list is live.
      const from = range ? found.findIndex((each) => keyOf(each) === last.current) : -1;
      const rows = from < 0 ? found.slice(row, row + 1) : found.slice(Math.min(from, row), Math.max(from, row) + 1);
      const target = found[row];
      if (target) last.current = keyOf(target);
      change(rows, on);
    },
    setAll: (on) => change(found, on),
    found: selected,
  };
}

type What = "delete" | "extend" | "retry";

const TITLES: Record<What, string> = { retry: "Retry", extend: "Extend", delete: "Delete" };

/** The bar above the rows while some are selected, in place of `children`. The dialog stays open while its sandboxes disappear. */
export function BulkBar({ selection, children }: { selection: Selection; children: JSX.Element }): JSX.Element {
  const [asked, setAsked] = useState<{ what: What; names: string[] } | null>(null);
  const names = selection.found.map((each) => each.name);
  return (
    <>
      {names.length ? (
        <div class="counts bulk" role="group" aria-label="Actions on the selected sandboxes">
          <span role="status">{names.length} selected</span>
          {(Object.keys(TITLES) as What[]).map((what) => (
            <button key={what} type="button" class={what === "delete" ? "danger" : undefined} onClick={() => setAsked({ what, names })}>
              {TITLES[what]}
            </button>
          ))}
          <button type="button" class="quiet" onClick={() => selection.setAll(false)}>
            Clear
          </button>
        </div>
      ) : (
        children
      )}
      {asked && <BulkDialog {...asked} onClose={() => setAsked(null)} />}
    </>
  );
}

export function maySelect(): boolean {
  return may("member");
}

function send(what: What, name: string, hours: number): Promise<unknown> {
  const at = orgPath("sandboxes", name);
  if (what === "delete") return request("DELETE", at);
  return request("POST", part(at, what), what === "extend" ? { seconds: hours * 3600 } : {});
}

interface Outcome {
  done: number;
  refused: [name: string, why: string][];
}

/** Confirm, send the requests, and list the refused sandboxes. The names are fixed when the dialog opens. */
function BulkDialog({ what, names, onClose }: { what: What; names: string[]; onClose: () => void }): JSX.Element {
  const [hours, setHours] = useState(4);
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const stopped = useRef(false);
  useEffect(() => () => void (stopped.current = true), []);
  const many = names.length === 1 ? "1 sandbox" : `${names.length} sandboxes`;
  const over = outcome !== null && outcome.done === names.length;
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const rest = [...names];
    const result: Outcome = { done: 0, refused: [] };
    setOutcome({ ...result });
    const work = async (): Promise<void> => {
      for (let name = rest.shift(); name !== undefined && !stopped.current; name = rest.shift()) {
        try {
          await send(what, name, hours);
        } catch (fault) {
          result.refused = [...result.refused, [name, words(fault)]];
        }
        result.done++;
        setOutcome({ ...result });
      }
    };
    await Promise.all(Array.from({ length: CONCURRENCY }, work));
    if (!result.refused.length && !stopped.current) onClose();
  };
  return (
    <Dialog title={`${TITLES[what]} ${many}${what === "delete" ? "?" : ""}`} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <p class="names">
          <Text>{names.slice(0, MAX_NAMED).join(", ")}</Text>
          {names.length > MAX_NAMED && ` and ${names.length - MAX_NAMED} more`}
        </p>
        {what === "delete" && <p>Their forks stop, then their delete steps run. This cannot be taken back.</p>}
        {what === "extend" && <Hours hours={hours} onChange={setHours} />}
        {outcome && (
          <p role="status">
            {outcome.done} of {names.length} sent{outcome.refused.length ? `, ${outcome.refused.length} refused` : ""}
          </p>
        )}
        {outcome && outcome.refused.length > 0 && (
          <ul class="refused" tabIndex={0} aria-label="Refused">
            {outcome.refused.map(([name, why]) => (
              <li key={name}>
                <Text>{name}</Text>: <Prose>{why}</Prose>
              </li>
            ))}
          </ul>
        )}
        <p class="buttons">
          <button type="button" onClick={onClose}>
            {over ? "Close" : outcome ? "Stop" : "Cancel"}
          </button>
          {!over && (
            <button type="submit" class={what === "delete" ? "danger" : "main"} disabled={outcome !== null}>
              {TITLES[what]}
            </button>
          )}
        </p>
      </form>
    </Dialog>
  );
}
