/** Parse the search box and select matching sandboxes, route groups or pools. Pure.
 *
  * A word matches in the name, reason, message, host, labels and, for a route group, its match. `key=value` matches a label, `key=` any value of that label,
  * `is:failed` a state, `on:NAME` a host, `has:NAME` a sandbox of a group. All terms must match.
 */
import { matchText } from "./match";
import type { Group, Listed, Spec } from "./types";

export interface Terms {
  words: string[];
  labels: [string, string][];
  is: string[];
  on: string[];
  has: string[];
}

/** The states, worst first. */
export const TONES = ["stuck", "failed", "warning", "trouble", "working", "ready"] as const;
export type Tone = (typeof TONES)[number];

export function spec(living: Listed): Spec {
  return living.spec as Spec;
}

/** The name of the key that created a sandbox; empty if unknown. */
export function creatorOf(living: object): string {
  return (living as { createdBy?: string }).createdBy ?? "";
}

/** The host, or the namespace on the page of a cluster. */
export function hostOf(living: Listed): string {
  return living.namespace || (spec(living).cluster ?? "");
}

/** The sandboxes that a group currently matches; empty for a sandbox. */
export function matchedSandboxes(living: Listed): readonly string[] {
  return (living as Partial<Group>).status?.matchedSandboxes ?? [];
}

/** The display name of each state. */
export const TONE_WORDS: Record<Tone, string> = {
  stuck: "stuck",
  failed: "failed",
  warning: "warning",
  trouble: "blocked",
  working: "working",
  ready: "ready",
};

/** The state in one word. A cleanup that does not continue until a person acts is stuck. */
export function toneOf(sandbox: Listed): Tone {
  if (sandbox.status.reason === "CleanupStuck") return "stuck";
  if (sandbox.progress.severity === "failed" && sandbox.progress.phase === "closed") return "stuck";
  if (sandbox.status.ready && sandbox.progress.severity === "progress") return "ready";
  return sandbox.progress.severity === "progress" ? "working" : (sandbox.progress.severity as Tone);
}

export function parse(query: string): Terms {
  const terms: Terms = { words: [], labels: [], is: [], on: [], has: [] };
  for (const word of query.split(/\s+/).filter(Boolean)) {
    const is = /^is:(.+)$/.exec(word);
    const on = /^on:(.+)$/.exec(word);
    const has = /^has:(.+)$/.exec(word);
    const label = /^([^=]+)=(.*)$/.exec(word);
    if (is?.[1]) terms.is.push(toneNamed(is[1].toLowerCase()));
    else if (on?.[1]) terms.on.push(on[1].toLowerCase());
    else if (has?.[1]) terms.has.push(has[1].toLowerCase());
    else if (label?.[1]) terms.labels.push([label[1], label[2] ?? ""]);
    else terms.words.push(word.toLowerCase());
  }
  return terms;
}

/** The state with this display name. */
function toneNamed(word: string): string {
  return TONES.find((tone) => TONE_WORDS[tone] === word) ?? word;
}

/** The search text with a filter for this state instead of another one, or without any for "". */
export function withTone(query: string, tone: Tone | ""): string {
  const others = query.split(/\s+/).filter((word) => word && !/^is:./.test(word));
  return [...others, ...(tone ? [`is:${TONE_WORDS[tone]}`] : [])].join(" ");
}

/** The number of objects in each state. */
export function countTones(found: readonly Listed[]): Map<Tone, number> {
  const counts = new Map<Tone, number>();
  for (const each of found) counts.set(toneOf(each), (counts.get(toneOf(each)) ?? 0) + 1);
  return counts;
}

export function matches(terms: Terms, sandbox: Listed): boolean {
  const { labels = {}, description = "", match } = spec(sandbox);
  const cluster = hostOf(sandbox);
  if (terms.is.length && !terms.is.includes(toneOf(sandbox))) return false;
  if (terms.on.some((name) => !cluster.toLowerCase().includes(name))) return false;
  if (terms.has.some((name) => !matchedSandboxes(sandbox).some((each) => each.toLowerCase().includes(name)))) return false;
  if (terms.labels.some(([key, value]) => !Object.hasOwn(labels, key) || (value !== "" && labels[key] !== value))) return false;
  if (!terms.words.length) return true;
  const pairs = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  const text = [sandbox.name, sandbox.status.reason, sandbox.status.message, cluster, description, match ? matchText(match) : "", ...pairs].join("\n").toLowerCase();
  return terms.words.every((word) => text.includes(word));
}

export type Order = "name" | "age" | "state" | "left";

/** A sorted copy, ascending or descending. Equal keys are sorted by name. */
export function sorted<T extends Listed>(found: T[], by: Order, backwards = false): T[] {
  const key: (each: T) => number = {
    name: () => 0,
    age: (each: T) => -Date.parse(each.createdAt),
    state: (each: T) => TONES.indexOf(toneOf(each)),
    left: (each: T) => Date.parse(each.status.scheduledDeleteTime || "9999-01-01"),
  }[by];
  const ahead = backwards ? -1 : 1;
  const keyed = found.map((each): [number, T] => [key(each), each]);
  keyed.sort(([a, one], [b, other]) => ahead * (a - b) || (one.name < other.name ? -1 : 1) * (by === "name" ? ahead : 1));
  return keyed.map(([, each]) => each);
}
