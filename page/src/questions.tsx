/** The dialogs that confirm an action on a sandbox or route group, and the buttons that advice about it has. */
import { createContext, type JSX } from "preact";
import { useContext, useState } from "preact/hooks";
import { part, request } from "./api";
import { ApplyDialog, RecreateDialog } from "./apply";
import { advice, type Action } from "./messages";
import type { Subject } from "./types";
import { Ask, Prose } from "./ui";

export interface Asked {
  what: Exclude<Action, "log"> | "delete" | "edit" | "recreate";
  /** The unit to retry; empty for all. */
  unit: string;
}

/** The actions on the displayed object. */
export interface Offers {
  allows: (what: Asked["what"]) => boolean;
  ask: (asked: Asked) => void;
  /** The address of the log of a unit; empty if the log is displayed already, or if there is none. */
  logOf: (unit: string) => string;
}

export const Offering = createContext<Offers | null>(null);

const BUTTONS: Record<Exclude<Action, "log">, string> = { retry: "Retry now", extend: "Extend", abandon: "Abandon" };

/** Advice, with buttons in place of the commands in it. */
export function Advice({ next, unit }: { next: string; unit: string }): JSX.Element | null {
  const offers = useContext(Offering);
  if (!next) return null;
  const { text, actions } = offers ? advice(next) : { text: next, actions: [] };
  const log = offers && actions.includes("log") ? offers.logOf(unit) : "";
  const buttons = actions.filter((each): each is keyof typeof BUTTONS => each !== "log" && (offers?.allows(each) ?? false));
  if (!text && !log && !buttons.length) return null;
  return (
    <div class="next">
      {text && (
        <p>
          What to do: <Prose>{text}</Prose>
        </p>
      )}
      {(log || buttons.length > 0) && (
        <p class="offers">
          {log && (
            <a class="button" href={log}>
              Show its log
            </a>
          )}
          {buttons.map((what) => (
            <button key={what} type="button" class={what === "abandon" ? "danger" : undefined} onClick={() => offers?.ask({ what, unit })}>
              {BUTTONS[what]}
            </button>
          ))}
        </p>
      )}
    </div>
  );
}

interface QuestionProps {
  name: string;
  kind: Subject["kind"];
  /** The API address. */
  at: string;
  asked: Asked;
  /** The units that can be retried. */
  retrying: string[];
  onClose: () => void;
}

/** The dialog that confirms an action. */
export function Question({ name, kind, at, asked, retrying, onClose }: QuestionProps): JSX.Element {
  if (asked.what === "extend") return <Extend name={name} at={part(at, "extend")} onClose={onClose} />;
  if (asked.what === "retry") return <Retry at={part(at, "retry")} units={retrying} unit={asked.unit} onClose={onClose} />;
  if (asked.what === "edit") return <ApplyDialog name={name} onClose={onClose} />;
  if (asked.what === "recreate") return <RecreateDialog name={name} onClose={onClose} />;
  if (asked.what === "abandon") return <Abandon name={name} at={part(at, "abandon")} onClose={onClose} />;
  return (
    <Ask title={`Delete ${name}?`} verb="Delete" danger onClose={onClose} act={() => request("DELETE", at)}>
      <p>{ENDS[kind]} This cannot be taken back.</p>
    </Ask>
  );
}

const ENDS = {
  sandbox: "Its forks stop, then its delete steps run.",
  "route group": "Its routing key stops working, then its hooks run. Its sandboxes stay.",
};

const HOURS: [number, string][] = [
  [1, "1 hour"],
  [4, "4 hours"],
  [24, "1 day"],
  [72, "3 days"],
  [168, "1 week"],
];

/** A choice of the time until the end. */
export function Hours({ hours, onChange }: { hours: number; onChange: (hours: number) => void }): JSX.Element {
  return (
    <label>
      At least until{" "}
      <select value={hours} onChange={(event) => onChange(Number(event.currentTarget.value))}>
        {HOURS.map(([value, title]) => (
          <option key={value} value={value}>
            {title} from now
          </option>
        ))}
      </select>
    </label>
  );
}

function Extend({ name, at, onClose }: { name: string; at: string; onClose: () => void }): JSX.Element {
  const [hours, setHours] = useState(4);
  const act = (): Promise<unknown> => request("POST", at, { seconds: hours * 3600 });
  return (
    <Ask title={`Let ${name} live longer`} verb="Extend" onClose={onClose} act={act}>
      <Hours hours={hours} onChange={setHours} />
    </Ask>
  );
}

function Retry({ at, units, unit: first, onClose }: { at: string; units: string[]; unit: string; onClose: () => void }): JSX.Element {
  const [unit, setUnit] = useState(units.includes(first) ? first : "");
  return (
    <Ask title="Retry now" verb="Retry" onClose={onClose} act={() => request("POST", at, unit ? { unit } : {})}>
      <label>
        Unit{" "}
        <select value={unit} onChange={(event) => setUnit(event.currentTarget.value)}>
          <option value="">all waiting units</option>
          {units.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      </label>
    </Ask>
  );
}

function Abandon({ name, at, onClose }: { name: string; at: string; onClose: () => void }): JSX.Element {
  const [reason, setReason] = useState("");
  const act = (): Promise<unknown> => request("POST", at, { reason: reason.trim() });
  return (
    <Ask title={`Give up the cleanup of ${name}?`} verb="Abandon" danger ready={reason.trim() !== ""} onClose={onClose} act={act}>
      <p>Delete steps that have not succeeded are not retried, and anything they would have removed remains. The reason is recorded.</p>
      <label>
        Reason
        <input type="text" value={reason} maxLength={1000} required onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
    </Ask>
  );
}
