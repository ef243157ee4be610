/** What is typed into the search box, and which sandboxes it finds. Pure.
 *
 * Words are looked for in name, reason, host and labels; `key=value` is a label, `key=` any of its values, `is:failed` a
 * tone, `on:NAME` a host. All have to fit.
 */
import type { Sandbox, Spec } from "./types";

export interface Terms {
  words: string[];
  labels: [string, string][];
  is: string[];
  on: string[];
}

export const TONES = ["ready", "working", "trouble", "warning", "failed"] as const;
export type Tone = (typeof TONES)[number];

export function spec(sandbox: Sandbox): Spec {
  return sandbox.spec as Spec;
}

/** Where it lives: its host or, on the page of a plain cluster, its namespace. */
export function hostOf(sandbox: Sandbox): string {
  return sandbox.namespace || (spec(sandbox).cluster ?? "");
}

/** How a sandbox stands, in one word. */
export function toneOf(sandbox: Sandbox): Tone {
  if (sandbox.status.ready && sandbox.progress.tone === "progress") return "ready";
  return sandbox.progress.tone === "progress" ? "working" : (sandbox.progress.tone as Tone);
}

export function parse(query: string): Terms {
  const terms: Terms = { words: [], labels: [], is: [], on: [] };
  for (const word of query.split(/\s+/).filter(Boolean)) {
    const is = /^is:(.+)$/.exec(word);
    const on = /^on:(.+)$/.exec(word);
    const label = /^([^=]+)=(.*)$/.exec(word);
    if (is?.[1]) terms.is.push(is[1].toLowerCase());
    else if (on?.[1]) terms.on.push(on[1].toLowerCase());
    else if (label?.[1]) terms.labels.push([label[1], label[2] ?? ""]);
    else terms.words.push(word.toLowerCase());
  }
  return terms;
}

export function takes(terms: Terms, sandbox: Sandbox): boolean {
  const { labels = {}, description = "" } = spec(sandbox);
  const cluster = hostOf(sandbox);
  if (terms.is.length && !terms.is.includes(toneOf(sandbox))) return false;
  if (terms.on.some((name) => !cluster.toLowerCase().includes(name))) return false;
  if (terms.labels.some(([key, value]) => !(key in labels) || (value !== "" && labels[key] !== value))) return false;
  if (!terms.words.length) return true;
  const pairs = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  const text = [sandbox.name, sandbox.status.reason, cluster, description, ...pairs].join("\n").toLowerCase();
  return terms.words.every((word) => text.includes(word));
}

export type Order = "name" | "age" | "state" | "left";

const RANK: Record<Tone, number> = { failed: 0, warning: 1, trouble: 2, working: 3, ready: 4 };

/** The sandboxes in an order; of equals by name. */
export function sorted(found: Sandbox[], by: Order): Sandbox[] {
  const key: (each: Sandbox) => number = {
    name: () => 0,
    age: (each: Sandbox) => -Date.parse(each.createdAt),
    state: (each: Sandbox) => RANK[toneOf(each)],
    left: (each: Sandbox) => Date.parse(each.status.scheduledDeleteTime || "9999-01-01"),
  }[by];
  return [...found].sort((a, b) => key(a) - key(b) || (a.name < b.name ? -1 : 1));
}
