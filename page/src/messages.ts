/** Messages for people, in place of reason codes and of commands that the page has buttons for. Pure. */
import type { Listed } from "./types";
import { prose } from "./text";

const ALL_FORKS_READY = "AllDesiredWorkloadsReady";

/** The message of an object in a list. A ready sandbox without forks has no workloads to report on. */
export function messageOf({ spec, status }: Pick<Listed, "spec"> & { status: Pick<Listed["status"], "reason" | "message"> }): string {
  const forks = (spec as { forks?: unknown[] }).forks ?? [];
  return readyOr(status.reason, status.message, forks.length > 0);
}

/** A message, or "ready" in place of a sentence about workloads if there are none. */
export function readyOr(reason: string, message: string, hasForks: boolean): string {
  return reason === ALL_FORKS_READY && !hasForks ? "ready" : message || reason;
}

export type Action = "log" | "retry" | "abandon" | "extend";

const COMMANDS: [RegExp, Action][] = [
  [/^dayfly logs /, "log"],
  [/^dayfly retry /, "retry"],
  [/^dayfly abandon /, "abandon"],
  [/^dayfly (sandbox|routegroup) extend /, "extend"],
];

/** Advice without the clauses whose command the page has a button for, and these actions. */
export function advice(text: string): { text: string; actions: Action[] } {
  const codes: string[] = [];
  // A code becomes one character, so that its own punctuation does not split the sentence.
  const flat = prose(text)
    .map(([piece, isCode]) => (isCode ? String.fromCharCode(0xe000 + codes.push(piece) - 1) : piece))
    .join("");
  const actions: Action[] = [];
  let kept = "";
  let joint = "";
  const clauses = flat.split(/(\. |; |, or |, then |, | and (?=fix ))/);
  for (let n = 0; n < clauses.length; n += 2) {
    const clause = clauses[n] ?? "";
    const found = COMMANDS.filter(([command]) => [...clause].some((char) => command.test(codes[char.charCodeAt(0) - 0xe000] ?? "")));
    if (found.length) {
      actions.push(...found.map(([, action]) => action));
      // The end of a sentence ends it also where its last clause is left out.
      if (clauses[n + 1] === ". ") joint = ". ";
      continue;
    }
    kept += (kept ? joint : "") + clause;
    joint = clauses[n + 1] ?? "";
  }
  const whole = kept.replace(/[\ue000-\uf8ff]/g, (char) => `\`${codes[char.charCodeAt(0) - 0xe000] ?? ""}\``);
  return { text: whole && whole.charAt(0).toUpperCase() + whole.slice(1), actions: [...new Set(actions)] };
}
