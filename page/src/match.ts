/** The match of a route group, as a tree for display. It is untrusted and may be malformed. Pure. */

export type Shown =
  | { kind: "label"; key: string; value: string; pattern: boolean }
  | { kind: "any" | "all"; terms: Shown[] }
  | { kind: "odd"; text: string };

// Limits of the server. A larger match is shown only up to them.
const MOST = 130;
const DEEPEST = 16;
const LONGEST = 500;

export function shown(match: unknown): Shown {
  let left = MOST;
  const look = (at: unknown, depth: number): Shown => {
    const of = (at ?? {}) as { label?: { key?: unknown; value?: unknown }; any?: unknown; all?: unknown };
    if (--left < 0 || depth > DEEPEST) return { kind: "odd", text: "…" };
    if (typeof of.label?.key === "string" && typeof of.label.value === "string") {
      const { key, value } = of.label;
      return { kind: "label", key, value, pattern: /[*?[\\]/.test(value) };
    }
    for (const kind of ["any", "all"] as const) {
      const terms: unknown = of[kind];
      if (Array.isArray(terms)) return { kind, terms: terms.slice(0, left + 1).map((each) => look(each, depth + 1)) };
    }
    return { kind: "odd", text: written(at) };
  };
  return look(match, 0);
}

function written(odd: unknown): string {
  try {
    return (JSON.stringify(odd) ?? "nothing").slice(0, LONGEST);
  } catch {
    return "…"; // nested too deeply for JSON.stringify
  }
}

/** The match in one line: team=pay* and (feature=a or feature=b). */
export function matchText(match: unknown): string {
  return line(shown(match), false);
}

function line(of: Shown, inner: boolean): string {
  if (of.kind === "label") return `${of.key}=${of.value}`;
  if (of.kind === "odd") return of.text;
  const said = of.terms.map((each) => line(each, of.terms.length > 1)).join(of.kind === "any" ? " or " : " and ");
  return inner && of.terms.length > 1 ? `(${said})` : said;
}
