/** The attempts of each unit, computed from a sandbox's history for the timeline. Pure. */
import type { Move, Unit } from "./types";

export interface Bar {
  attempt: number;
  from: number;
  /** 0 if it is still running. */
  to: number;
  state: string;
  /** Why it failed, as a message if the host sent one. */
  reason: string;
}

export interface Row {
  unit: string;
  bars: Bar[];
}

const MOVES_WITH_REASON = new Set(["Record", "Void", "Doubt"]);

/** One row for each unit, in the units' order. The newest attempt comes from the report, which has its exact times. */
export function rows(units: readonly Unit[], moves: readonly Move[]): Row[] {
  const older = new Map<string, Map<number, Bar>>();
  for (const move of moves) {
    if (!move.unit || !move.attempt) continue;
    const of = older.get(move.unit) ?? new Map<number, Bar>();
    older.set(move.unit, of);
    const bar = of.get(move.attempt) ?? { attempt: move.attempt, from: move.at, to: 0, state: "running", reason: "" };
    of.set(move.attempt, bar);
    bar.to = move.at;
    if (MOVES_WITH_REASON.has(move.move)) bar.reason = move.message || move.reason;
    if (move.move === "Void") bar.state = "skipped"; // it never ran
    if (move.move === "Record") bar.state = move.reason.toLowerCase() === "succeeded" ? "succeeded" : "failed";
  }
  return units.map((unit) => {
    const bars = [...(older.get(unit.id)?.values() ?? [])].filter((bar) => bar.attempt < (unit.attempt ?? 0));
    for (const bar of bars) if (bar.state === "running") bar.state = "failed"; // a later attempt exists
    if (unit.attempt && (unit.startedAt || unit.since)) {
      const from = unit.startedAt || unit.since || 0;
      const over = !["running", "unknown"].includes(unit.state);
      const to = over ? unit.endedAt || Math.max(from, unit.since ?? 0) : 0;
      const state = unit.state === "retrying" ? "failed" : unit.state;
      if (unit.startedAt || over) bars.push({ attempt: unit.attempt, from, to, state, reason: unit.message || (unit.reason ?? "") });
    }
    return { unit: unit.id, bars: bars.sort((a, b) => a.attempt - b.attempt) };
  });
}

export interface Scale {
  begin: number;
  end: number;
}

/** The range from the first to the last time, or to now if an attempt is running; at least one second. */
export function scale(found: readonly Row[], now: number): Scale {
  const bars = found.flatMap((row) => row.bars);
  if (!bars.length) return { begin: now, end: now + 1000 };
  const begin = Math.min(...bars.map((bar) => bar.from));
  const end = Math.max(...bars.map((bar) => bar.to || now));
  return { begin, end: Math.max(end, begin + 1000) };
}

/** The positions in percent of the marks on the time axis, from 0 to 100. */
export const MARKS = [0, 25, 50, 75, 100];

/** The time since the beginning at a mark, in milliseconds. */
export function sinceBegin(at: Scale, percent: number): number {
  return ((at.end - at.begin) * percent) / 100;
}

/** The number of attempts and the time that they ran, in milliseconds. */
export function total(row: Row, now: number): { attempts: number; ms: number } {
  return { attempts: row.bars.length, ms: row.bars.reduce((sum, bar) => sum + (bar.to || now) - bar.from, 0) };
}

/** A bar's position and width in percent of the scale; the width is at least 0.5. */
export function place(bar: Bar, at: Scale, now: number): { left: number; width: number } {
  const whole = at.end - at.begin;
  const left = Math.min(99.5, Math.max(0, ((bar.from - at.begin) / whole) * 100));
  const width = Math.max(0.5, Math.min(100 - left, (((bar.to || now) - bar.from) / whole) * 100));
  return { left, width };
}

/** The units of an ended sandbox, rebuilt from its history, because its report has none.
 *
 * `before` is what the page showed before the end: it adds events, kinds and inputs, which the history lacks.
 */
export function fromHistory(moves: readonly Move[], before: readonly Unit[]): Unit[] {
  const found = new Map<string, Unit>(before.map((unit) => [unit.id, { ...unit, state: unit.state === "waiting" ? "skipped" : unit.state }]));
  let closed = false;
  for (const move of moves) {
    if (!move.unit) {
      closed ||= move.move === "Close" || move.move === "GiveUp";
      continue;
    }
    const fork = move.unit.startsWith("fork:");
    const slash = move.unit.lastIndexOf("/");
    const known = found.get(move.unit) ?? {
      id: move.unit,
      resource: fork || slash < 0 ? "" : move.unit.slice(0, slash),
      name: move.unit.slice(slash + 1),
      event: fork ? "start" : closed ? "postStop" : "preStart",
      kind: fork ? "fork" : "step",
      state: "running",
    };
    const unit: Unit = { ...known, attempt: move.attempt, reason: "", message: "", since: move.at, until: 0, waitsOn: [] };
    if (move.move === "Claim") Object.assign(unit, { state: fork ? "stopped" : "unknown", startedAt: move.at, endedAt: 0 });
    if (move.move === "Void") unit.state = "skipped";
    if (move.move === "Record") {
      const well = move.reason.toLowerCase() === "succeeded";
      Object.assign(unit, { state: fork ? "stopped" : well ? "succeeded" : "failed", endedAt: move.at });
      if (!well) Object.assign(unit, { reason: move.reason, message: move.message });
    }
    found.set(move.unit, unit);
  }
  for (const unit of found.values()) if (unit.kind === "fork") unit.state = "stopped";
  return [...found.values()];
}
