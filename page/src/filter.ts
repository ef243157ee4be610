/** What is typed into the search box, and which sandboxes or route groups it finds. Pure.
 *
 * Words are looked for in name, reason, host, labels and what a group matches; `key=value` is a label, `key=` any of its
 * values, `is:failed` a tone, `on:NAME` a host, `has:NAME` a sandbox of a group. All have to fit.
 */
import { matchText } from "./match";
import type { Group, Living, Spec } from "./types";

export interface Terms {
  words: string[];
  labels: [string, string][];
  is: string[];
  on: string[];
  has: string[];
}

export const TONES = ["ready", "working", "trouble", "warning", "failed"] as const;
export type Tone = (typeof TONES)[number];

export function spec(living: Living): Spec {
  return living.spec as Spec;
}

/** Where it lives: its host or, on the page of a plain cluster, its namespace. */
export function hostOf(living: Living): string {
  return living.namespace || (spec(living).cluster ?? "");
}

/** The sandboxes that a group has now; none for a sandbox. */
export function matched(living: Living): readonly string[] {
  return (living as Partial<Group>).status?.matchedSandboxes ?? [];
}

/** How it stands, in one word. */
export function toneOf(sandbox: Living): Tone {
  if (sandbox.status.ready && sandbox.progress.tone === "progress") return "ready";
  return sandbox.progress.tone === "progress" ? "working" : (sandbox.progress.tone as Tone);
}

export function parse(query: string): Terms {
  const terms: Terms = { words: [], labels: [], is: [], on: [], has: [] };
  for (const word of query.split(/\s+/).filter(Boolean)) {
    const is = /^is:(.+)$/.exec(word);
    const on = /^on:(.+)$/.exec(word);
    const has = /^has:(.+)$/.exec(word);
    const label = /^([^=]+)=(.*)$/.exec(word);
    if (is?.[1]) terms.is.push(is[1].toLowerCase());
    else if (on?.[1]) terms.on.push(on[1].toLowerCase());
    else if (has?.[1]) terms.has.push(has[1].toLowerCase());
    else if (label?.[1]) terms.labels.push([label[1], label[2] ?? ""]);
    else terms.words.push(word.toLowerCase());
  }
  return terms;
}

export function takes(terms: Terms, sandbox: Living): boolean {
  const { labels = {}, description = "", match } = spec(sandbox);
  const cluster = hostOf(sandbox);
  if (terms.is.length && !terms.is.includes(toneOf(sandbox))) return false;
  if (terms.on.some((name) => !cluster.toLowerCase().includes(name))) return false;
  if (terms.has.some((name) => !matched(sandbox).some((each) => each.toLowerCase().includes(name)))) return false;
  if (terms.labels.some(([key, value]) => !Object.hasOwn(labels, key) || (value !== "" && labels[key] !== value))) return false;
  if (!terms.words.length) return true;
  const pairs = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  const text = [sandbox.name, sandbox.status.reason, cluster, description, match ? matchText(match) : "", ...pairs].join("\n").toLowerCase();
  return terms.words.every((word) => text.includes(word));
}

export type Order = "name" | "age" | "state" | "left";

const RANK: Record<Tone, number> = { failed: 0, warning: 1, trouble: 2, working: 3, ready: 4 };

/** All in an order, or the other way round; of equals by name. */
export function sorted<T extends Living>(found: T[], by: Order, backwards = false): T[] {
  const key: (each: T) => number = {
    name: () => 0,
    age: (each: T) => -Date.parse(each.createdAt),
    state: (each: T) => RANK[toneOf(each)],
    left: (each: T) => Date.parse(each.status.scheduledDeleteTime || "9999-01-01"),
  }[by];
  const ahead = backwards ? -1 : 1;
  return [...found].sort((a, b) => ahead * (key(a) - key(b)) || (a.name < b.name ? -1 : 1) * (by === "name" ? ahead : 1));
}
