/** The actions on a sandbox or route group. Buttons depend on the role; the server checks it again. */
import type { JSX } from "preact";
import { get, may, plainCluster } from "./api";
import { spec } from "./filter";
import type { Asked, Offers } from "./questions";
import { shellWord } from "./text";
import type { SandboxOrGroup, Report, Subject } from "./types";
import { Copy, Prose } from "./ui";

interface Props {
  subject: Subject;
  /** The API address. */
  at: string;
  report: Report;
  found: SandboxOrGroup | null;
  offers: Offers;
}

/** The actions that the report, the role and the cluster permit. */
export function permitted(report: Report, found: SandboxOrGroup | null, kind: Subject["kind"], hasSecrets: boolean): (what: Asked["what"]) => boolean {
  const open = report.phase === "open" && !report.closed;
  const over = report.phase === "cleaned" || report.phase === "abandoned";
  const when = {
    retry: retryable(report).length > 0,
    extend: open && found !== null && spec(found).ttl !== undefined,
    delete: open,
    edit: open && found !== null && kind === "sandbox" && !plainCluster(),
    // The server does not return secret params, so such a sandbox could not be created again.
    recreate: open && found !== null && kind === "sandbox" && !plainCluster() && !hasSecrets,
    abandon: !open && !report.abandon,
  };
  return (what) => may("member") && !over && !(report.denied ?? {})[what] && when[what];
}

export function retryable(report: Report): string[] {
  return (report.units ?? []).filter((unit) => unit.state === "retrying").map((unit) => unit.id);
}

const TITLES: [Asked["what"], string][] = [
  ["retry", "Retry"],
  ["extend", "Extend"],
  ["edit", "Edit"],
  ["recreate", "Re-create"],
  ["delete", "Delete"],
  ["abandon", "Abandon"],
];

const DANGEROUS: Asked["what"][] = ["recreate", "delete", "abandon"];

export function Actions({ subject: { kind }, at, report, found, offers: { allows, ask } }: Props): JSX.Element {
  const over = report.phase === "cleaned" || report.phase === "abandoned";
  return (
    <div class="actions" role="group" aria-label="Actions">
      {found && (
        <>
          <Copy text={() => yaml(at, kind)}>Copy as YAML</Copy>
          <Copy text={() => command(at, kind)}>Copy as command</Copy>
        </>
      )}
      {TITLES.filter(([what]) => allows(what)).map(([what, title]) => (
        <button key={what} type="button" class={DANGEROUS.includes(what) ? "danger" : undefined} onClick={() => ask({ what, unit: "" })}>
          {title}
        </button>
      ))}
      {!over && <Denied denied={report.denied ?? {}} />}
    </div>
  );
}

/** Why buttons are missing; actions with the same reason are listed together. */
function Denied({ denied }: { denied: Record<string, string> }): JSX.Element | null {
  const by = new Map<string, string[]>();
  for (const [what, title] of TITLES) if (denied[what]) by.set(denied[what], [...(by.get(denied[what]) ?? []), title.toLowerCase()]);
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

