/** The actions on a sandbox or route group, each with a confirmation. Buttons depend on the role; the server checks it again. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { get, may, plainCluster, request } from "./api";
import { spec } from "./filter";
import { shellWord } from "./text";
import type { SandboxOrGroup, Report, Subject } from "./types";
import { Ask, Copy, Prose, Text } from "./ui";

type Asked = "" | "delete" | "extend" | "retry" | "abandon";

interface Props {
  subject: Subject;
  /** The API address. */
  at: string;
  report: Report;
  found: SandboxOrGroup | null;
}

export function Actions({ subject, at, report, found }: Props): JSX.Element {
  const { kind, name } = subject;
  const [asked, setAsked] = useState<Asked>("");
  const done = (): void => setAsked("");
  const open = report.phase === "open" && !report.closed;
  const over = report.phase === "cleaned" || report.phase === "abandoned";
  const retrying = (report.units ?? []).filter((unit) => unit.state === "retrying").map((unit) => unit.id);
  const member = may("member") && !over;
  const denied = report.denied ?? {};
  const allows = (what: Asked): boolean => member && !denied[what];
  return (
    <div class="actions" role="group" aria-label="Actions">
      {found && (
        <>
          <Copy text={() => yaml(at, kind)}>Copy as YAML</Copy>
          <Copy text={() => command(at, kind)}>Copy as command</Copy>
        </>
      )}
      {allows("retry") && retrying.length > 0 && (
        <button type="button" onClick={() => setAsked("retry")}>
          Retry
        </button>
      )}
      {allows("extend") && open && found && spec(found).ttl && (
        <button type="button" onClick={() => setAsked("extend")}>
          Extend
        </button>
      )}
      {allows("delete") && open && (
        <button type="button" class="danger" onClick={() => setAsked("delete")}>
          Delete
        </button>
      )}
      {allows("abandon") && !open && !report.abandon && (
        <button type="button" class="danger" onClick={() => setAsked("abandon")}>
          Abandon
        </button>
      )}
      {!over && <Denied denied={denied} />}
      {asked === "delete" && (
        <Ask title={`Delete ${name}?`} verb="Delete" danger onClose={done} act={() => request("DELETE", at)}>
          <p>{ENDS[kind]} This cannot be taken back.</p>
        </Ask>
      )}
      {asked === "extend" && <Extend name={name} at={at} onClose={done} />}
      {asked === "retry" && <Retry at={`${at}/retry`} units={retrying} onClose={done} />}
      {asked === "abandon" && <Abandon name={name} at={`${at}/abandon`} onClose={done} />}
    </div>
  );
}

const ENDS = {
  sandbox: "Its forks stop, then its delete steps run.",
  "route group": "Its routing key stops working, then its hooks run. Its sandboxes stay.",
};

const WHAT: [Asked, string][] = [
  ["delete", "delete"],
  ["extend", "extend"],
  ["retry", "retry"],
  ["abandon", "abandon"],
];

/** Why buttons are missing; actions with the same reason are listed together. */
function Denied({ denied }: { denied: Record<string, string> }): JSX.Element | null {
  const by = new Map<string, string[]>();
  for (const [what, title] of WHAT) if (denied[what]) by.set(denied[what], [...(by.get(denied[what]) ?? []), title]);
  if (!by.size) return null;
  return (
    <p class="aside denied">
      {[...by].map(([why, titles]) => (
        <span key={why}>
          No {titles.join(", ")}: <Prose>{why}</Prose>.{" "}
        </span>
      ))}
    </p>
  );
}

const HOURS: [number, string][] = [
  [1, "1 hour"],
  [4, "4 hours"],
  [24, "1 day"],
  [72, "3 days"],
  [168, "1 week"],
];

function Extend({ name, at, onClose }: { name: string; at: string; onClose: () => void }): JSX.Element {
  const [hours, setHours] = useState(4);
  const act = (): Promise<unknown> => request("POST", `${at}/extend`, { seconds: hours * 3600 });
  return (
    <Ask title={`Let ${name} live longer`} verb="Extend" onClose={onClose} act={act}>
      <label>
        At least until{" "}
        <select value={hours} onChange={(event) => setHours(Number(event.currentTarget.value))}>
          {HOURS.map(([value, title]) => (
            <option key={value} value={value}>
              {title} from now
            </option>
          ))}
        </select>
      </label>
    </Ask>
  );
}

function Retry({ at, units, onClose }: { at: string; units: string[]; onClose: () => void }): JSX.Element {
  const [unit, setUnit] = useState("");
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

/** The file that creates this object with `dayfly apply` or kubectl. */
async function yaml(at: string, kind: Subject["kind"]): Promise<string> {
  const [found, { stringify }] = await Promise.all([get<SandboxOrGroup>(at), import("yaml")]);
  // Most YAML parsers read `no` and `on` as booleans, so such strings are quoted.
  return stringify(plainCluster() ? manifest(found, kind) : { name: found.name, spec: found.spec }, { lineWidth: 0, version: "1.1" });
}

function manifest({ name, namespace = "", spec }: SandboxOrGroup, kind: Subject["kind"]): object {
  const metadata = { name: name.slice(name.indexOf(":") + 1), namespace };
  return { apiVersion: "dayfly.dev/v1alpha1", kind: kind === "sandbox" ? "Sandbox" : "RouteGroup", metadata, spec };
}

async function command(at: string, kind: Subject["kind"]): Promise<string> {
  const written = await yaml(at, kind);
  let end = "YAML";
  while (written.split("\n").includes(end)) end += "_";
  const where = plainCluster();
  const apply = where ? `kubectl --context ${shellWord(where.context)} apply` : "dayfly apply";
  return `${apply} -f - <<'${end}'\n${written}${end}\n`;
}

/** The CLI command that shows the same data. */
export function Shell({ words }: { words: string[] }): JSX.Element {
  return (
    <code>
      <Text>{["dayfly", ...words].map(shellWord).join(" ")}</Text>
    </code>
  );
}
