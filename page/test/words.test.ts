import { describe, expect, test } from "vitest";
import { fromHistory, MARKS, place, rows, scale, sinceBegin, total } from "../src/attempts";
import { part } from "../src/api";
import { causeOf } from "../src/cause";
import { howEnded, mergeEnded } from "../src/ended";
import { summarize } from "../src/past-runs";
import { countTones, matches, parse, sorted, toneOf, withTone } from "../src/filter";
import { matchText, shown } from "../src/match";
import { labelColumns } from "../src/label-columns";
import { advice, messageOf } from "../src/messages";
import { qualify } from "../src/router";
import { stepUnits, params, plan, type PluginSpec } from "../src/plugin-model";
import { graphOf } from "../src/graph-model";
import { duration, findAll, lastPart, logPiece, logText, prose, roughly, shellWord, visible } from "../src/text";
import type { Ended, Group, Move, Sandbox, Unit } from "../src/types";

function sandbox(name: string, more: { labels?: Record<string, string>; tone?: string; ready?: boolean; cluster?: string } = {}): Sandbox {
  return {
    name,
    routingKey: "k",
    createdAt: "2026-01-01T00:00:00Z",
    updatedAt: "2026-01-01T00:00:00Z",
    spec: { cluster: more.cluster ?? "local", labels: more.labels ?? {} } as unknown as Sandbox["spec"],
    endpoints: [],
    status: { ready: more.ready ?? false, reason: "Ready", message: "" },
    progress: { phase: "open", done: 1, total: 2, severity: more.tone ?? "progress" },
  };
}

function move(seq: number, unit: string, attempt: number, name: string, reason = ""): Move {
  return { seq, at: seq * 1000, unit, attempt, move: name, reason, message: "" };
}

describe("what has ended", () => {
  const ended = (...names: string[]): Ended[] => names.map((name) => ({ uid: name, name }) as Ended);
  const names = (found: Ended[]): string => found.map((each) => each.name).join(" ");

  test("goes on where the newer ones end", () => {
    expect(names(mergeEnded(ended("d", "c"), ended("c", "b", "a")))).toBe("d c b a");
    expect(names(mergeEnded([], ended("b", "a")))).toBe("b a");
    expect(names(mergeEnded(ended("b", "a"), []))).toBe("b a");
  });

  test("is abandoned, failed, expired or clean, in this order", () => {
    const word = (ended: Partial<Ended>): string => howEnded(ended as Ended).word;
    expect(word({ abandoned: true, failed: true, reason: "Expired" })).toBe("abandoned");
    expect(word({ failed: true, reason: "Expired" })).toBe("failed");
    expect(["Expired", "LeaseExpired", "Deleted", ""].map((reason) => word({ reason }))).toEqual(["expired", "expired", "clean", "clean"]);
  });

  test("is counted by its end, worst first", () => {
    const clean = (count: number): Ended[] => Array(count).fill({});
    expect(summarize([{ failed: true } as Ended, ...clean(2)], 60)).toBe("3: 1 failed, 2 clean.");
    expect(summarize(clean(60), 60)).toBe("The last 60: 60 clean.");
  });

  test("shows a trend if the halves differ", () => {
    const [clean, failed] = [{} as Ended, { failed: true } as Ended];
    const newestFirst = [failed, failed, clean, clean, clean, clean, clean, clean, clean, failed];
    expect(summarize(newestFirst, 60)).toBe("10: 3 failed, 7 clean. Of the newest 5, 2 went wrong; of the 5 oldest, 1.");
    expect(summarize([failed, ...newestFirst.slice(2)], 60)).toBe("9: 2 failed, 7 clean.");
  });

  test("has no gap that nobody is told of", () => {
    expect(names(mergeEnded(ended("d", "c"), ended("a")))).toBe("d c");
  });
});

describe("the columns for labels", () => {
  test("appear for a label that a sandbox has, and for the key that created one", () => {
    const titles = (...all: Sandbox[]): string[] => labelColumns(all).map((each) => each.title);
    const created = { ...sandbox("a"), createdBy: "ci" };
    expect(titles(sandbox("a", { labels: { team: "x" } }))).toEqual([]);
    expect(titles(created)).toEqual(["Owner"]);
    expect(titles(sandbox("a"), sandbox("b", { labels: { pr: "17", link: "https://a.example" } }))).toEqual(["PR", "Link"]);
    expect(labelColumns([created])[0]?.tip?.(created)).toBe("ci");
    expect(labelColumns([created])[0]?.tip?.({ ...created, ...sandbox("b", { labels: { owner: "ann" } }) })).toBe("ann");
  });
});

describe("a search in a log", () => {
  test("finds words in any case, without overlaps, up to a limit", () => {
    expect(findAll("Error error ERROR", "error", 10)).toEqual([0, 6, 12]);
    expect(findAll("aaaa", "aa", 10)).toEqual([0, 2]);
    expect(findAll("aaaa", "a", 2)).toEqual([0, 1]);
    expect([findAll("abc", "", 10), findAll("abc", "x", 10)]).toEqual([[], []]);
  });
  test("finds the right places behind characters whose lower case is longer", () => {
    expect(findAll("\u0130\u0130 error", "error", 10)).toEqual([3]);
  });
});

describe("the time axis of attempts", () => {
  test("begins with the first attempt and adds up the time of each unit", () => {
    const at = { begin: 1000, end: 9000 };
    expect(MARKS.map((percent) => sinceBegin(at, percent))).toEqual([0, 2000, 4000, 6000, 8000]);
    const bars = [
      { attempt: 1, from: 1000, to: 2500, state: "failed", reason: "" },
      { attempt: 2, from: 5000, to: 0, state: "running", reason: "" },
    ];
    expect(total({ unit: "db/make", bars }, 7000)).toEqual({ attempts: 2, ms: 3500 });
  });
});

describe("advice with commands that the page has buttons for", () => {
  test("keeps only the clauses without such commands", () => {
    const stuck =
      "read its log with `dayfly logs a db drop` and fix the cause; it is retried until it succeeds, or at once with `dayfly retry a`. " +
      "If everything that it would remove is certainly gone: `dayfly abandon a --reason ...`";
    expect(advice(stuck)).toEqual({ text: "Fix the cause; it is retried until it succeeds", actions: ["log", "retry", "abandon"] });
    const failed = "read its log with `dayfly logs a db make`, fix the plugin or the parameters, delete the sandbox and apply it again";
    expect(advice(failed)).toEqual({ text: "Fix the plugin or the parameters, delete the sandbox and apply it again", actions: ["log"] });
    const expiring = "let it expire, or extend it: `dayfly sandbox extend a --for 2h`";
    expect(advice(expiring)).toEqual({ text: "Let it expire", actions: ["extend"] });
    expect(advice("watch it with `dayfly logs a db make -f`")).toEqual({ text: "", actions: ["log"] });
  });
  test("keeps all other advice, with its commands", () => {
    const slots = "wait, or raise the limit: on one machine with `dayfly up --parallel N`; in a cluster, the administrator sets it";
    expect(advice(slots)).toEqual({ text: `W${slots.slice(1)}`, actions: [] });
    expect(advice("")).toEqual({ text: "", actions: [] });
  });
});

describe("a log that comes in pieces", () => {
  const whole = "a\r\n\u001b[1;31mred\u001b[0m\r\nb\rc\r";

  test("is shown alike wherever it is cut", () => {
    for (let at = 0; at <= whole.length; at++) {
      const [first, rest] = logPiece(whole.slice(0, at), false);
      const [second] = logPiece(rest + whole.slice(at), true);
      expect(first + second, `cut at ${at}`).toBe("a\nred\nb\nc\n");
    }
  });

  test("keeps its end, by lines where they are short", () => {
    const lines = "0123456\n".repeat(30);
    expect(lastPart(lines, 240)).toBe(lines);
    expect(lastPart(lines, 203)).toBe("0123456\n".repeat(25));
    const long = "x".repeat(1000);
    for (const text of [long, `${long}\n`, `a\n${long}\nb`]) expect(lastPart(text, 100)).toBe(text.slice(-100));
  });
});

describe("a sentence of the server", () => {
  test("has its code between backticks", () => {
    expect(prose("run `dayfly why a`; see `x`")).toEqual([
      ["run ", false],
      ["dayfly why a", true],
      ["; see ", false],
      ["x", true],
    ]);
    expect(prose("`all`")).toEqual([["all", true]]);
    expect(prose("plain <b>")).toEqual([["plain <b>", false]]);
    expect(prose("")).toEqual([]);
  });
  test("keeps a backtick that is alone, and an empty pair", () => {
    expect(prose("one ` alone")).toEqual([["one ` alone", false]]);
    expect(prose("``")).toEqual([["``", false]]);
    expect(prose("a `b` c ` d")).toEqual([
      ["a ", false],
      ["b", true],
      [" c ` d", false],
    ]);
  });
});

describe("text of others", () => {
  test("is shown with everything that deceives written out", () => {
    expect(visible("a\u202eb\u200bc\u0007\u2028\ufeff")).toBe("a⟨202E⟩b⟨200B⟩c⟨0007⟩⟨2028⟩⟨FEFF⟩");
    expect(visible("öäü 漢字 🙂\n\t<b>")).toBe("öäü 漢字 🙂\n\t<b>");
  });
  test("loses a terminal's colours in logs, and nothing else of them", () => {
    expect(logText("\u001b[1;31mred\u001b[0m\r\nnext\u001b]0;t\u0007")).toBe("red\nnext⟨001B⟩]0;t⟨0007⟩");
  });
  test("is one word for a shell", () => {
    expect(shellWord("db/make")).toBe("db/make");
    expect(shellWord("a'; rm -rf /")).toBe("'a'\\''; rm -rf /'");
  });
});

test("durations have two units at most", () => {
  expect([98, 1234, 45_000, 200_000, 7_500_000, 273_600_000].map(duration)).toEqual(["98 ms", "1.2 s", "45 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"]);
  expect([999.4, 999.6, 1000, 9949, 9951].map(duration)).toEqual(["999 ms", "1.0 s", "1.0 s", "9.9 s", "10 s"]);
  expect([5_000, 100_000, 5_000_000, 90_000_000, 900_000_000].map(roughly)).toEqual(["5 s", "1 min", "83 min", "25 h", "10 d"]);
});

describe("a plugin", () => {
  const spec: PluginSpec = {
    create: [
      { name: "make", inputs: [{ name: "size", valueFromSandbox: true }], outputs: [{ name: "url" }] },
      { name: "fill", webhook: {}, inputs: [{ name: "at", valueFromStep: { name: "make", output: "url" } }, { name: "key", valueFromSandbox: true, secret: true }] },
    ],
    delete: [
      { name: "save", object: {}, inputs: [{ name: "size", valueFromSandbox: true, default: "small" }] },
      { name: "make", inputs: [{ name: "copy", valueFromStep: { name: "save", output: "id" } }, { name: "at", valueFromStep: { name: "make", output: "url" } }] },
    ],
  };
  test("is a graph of its create and delete steps, with the outputs that go between them", () => {
    const units = stepUnits(spec, "db");
    expect(units.map((each) => [each.id, each.event, each.kind])).toEqual([
      ["create/make", "preStart", "exec"],
      ["create/fill", "preStart", "webhook"],
      ["delete/save", "postStop", "object"],
      ["delete/make", "postStop", "exec"],
    ]);
    expect(graphOf(units, plan(spec)).edges).toEqual([
      { from: "create/make", to: "create/fill", names: ["url"] },
      { from: "delete/save", to: "delete/make", names: ["id"] },
    ]);
  });
  test("says of each param what any of its steps says", () => {
    expect(params(spec)).toEqual([
      { name: "size", says: 'default "small"', takers: ["make", "save"] },
      { name: "key", says: "a secret, required", takers: ["fill"] },
    ]);
  });
});

test("an address goes on saying which of a name is meant", () => {
  expect(part("/orgs/o/sandboxes/a", "log", { unit: "x/y" })).toBe("/orgs/o/sandboxes/a/log?unit=x%2Fy");
  expect(part("/orgs/o/sandboxes/a?uid=u", "log", { wait: "1" })).toBe("/orgs/o/sandboxes/a/log?uid=u&wait=1");
  expect(part("/orgs/o/sandboxes/a?uid=u", "report")).toBe("/orgs/o/sandboxes/a/report?uid=u");
});

test("what holds a unit up is found wherever it stands", () => {
  const because = [{ subject: "a/x", reason: "r", because: [{ subject: "b/y", reason: "root", next: "do it" }] }];
  const why = { subject: "sandbox s", reason: "r", because } as unknown as Parameters<typeof causeOf>[1];
  expect(causeOf("b/y", why)?.next).toBe("do it");
  expect(causeOf("c/z", why)).toBe(null);
});

describe("a filter", () => {
  const all = [
    sandbox("b", { labels: { team: "x" }, ready: true }),
    sandbox("a", { tone: "failed", cluster: "far" }),
    sandbox("c", { labels: { team: "y" } }),
  ];
  const found = (query: string): string[] => all.filter((each) => matches(parse(query), each)).map((each) => each.name);
  test("finds words, labels, states and hosts, all of them", () => {
    expect(found("")).toEqual(["b", "a", "c"]);
    expect(found("team=x")).toEqual(["b"]);
    expect(found("team=")).toEqual(["b", "c"]);
    expect(found("is:failed")).toEqual(["a"]);
    expect(found("is:ready is:working")).toEqual(["b", "c"]);
    expect(found("on:far")).toEqual(["a"]);
    expect(found("team=x is:failed")).toEqual([]);
    expect(found("TEAM=")).toEqual([]);
  });
  test("knows no labels but those that are there", () => {
    expect(found("constructor=")).toEqual([]);
    expect(found("toString=")).toEqual([]);
  });
  test("counts as stuck if its cleanup does not continue until a person acts", () => {
    const [ready, failed] = ["ready", "failed"].map((tone) => all.find((each) => toneOf(each) === tone)) as [Sandbox, Sandbox];
    const stuck = { ...ready, name: "s", status: { ...ready.status, ready: false, reason: "CleanupStuck" }, progress: { ...ready.progress, severity: "warning" } };
    const lost = { ...failed, name: "l", progress: { ...failed.progress, phase: "closed" } };
    expect([stuck, lost].map(toneOf)).toEqual(["stuck", "stuck"]);
    expect(sorted([...all, stuck], "state").map((each) => each.name)[0]).toBe("s");
    expect([...countTones([...all, stuck, lost])].sort()).toEqual([["failed", 1], ["ready", 1], ["stuck", 2], ["working", 1]]);
  });
  test("is filtered by one state at a time with a click on its count", () => {
    expect(withTone("team=x is:failed", "stuck")).toBe("team=x is:stuck");
    expect(withTone("team=x is:stuck", "")).toBe("team=x");
    expect(withTone("", "trouble")).toBe("is:blocked");
    expect(parse("is:blocked").is).toEqual(parse("is:trouble").is);
  });
  test("is described by its message, and by \"ready\" if there are no workloads to describe", () => {
    const status = { reason: "AllDesiredWorkloadsReady", message: "All desired workloads are available." };
    const forked = { forks: [{}] } as unknown as Sandbox["spec"];
    const bare = {} as unknown as Sandbox["spec"];
    expect(messageOf({ spec: forked, status })).toBe(status.message);
    expect(messageOf({ spec: bare, status })).toBe("ready");
    expect(messageOf({ spec: bare, status: { reason: "Blocked", message: "" } })).toBe("Blocked");
  });
  test("is sorted as asked, of equals by name", () => {
    expect(sorted(all, "name").map((each) => each.name)).toEqual(["a", "b", "c"]);
    expect(sorted(all, "state").map(toneOf)).toEqual(["failed", "working", "ready"]);
  });
});

describe("a timeline", () => {
  const units: Unit[] = [{ id: "db/drop", name: "drop", event: "postStop", kind: "exec", state: "running", attempt: 3, startedAt: 9000 }];
  const moves = [
    move(1, "db/drop", 1, "Claim"),
    move(3, "db/drop", 1, "Record", "ExitCode"),
    move(4, "db/drop", 2, "Claim"),
    move(5, "db/drop", 2, "Void", "StartInterrupted"),
    move(8, "db/drop", 3, "Claim"),
  ];
  test("has a bar for each attempt, and the newest goes on", () => {
    const [row] = rows(units, moves);
    expect(row?.bars.map((bar) => [bar.attempt, bar.from, bar.to, bar.state])).toEqual([
      [1, 1000, 3000, "failed"],
      [2, 4000, 5000, "skipped"],
      [3, 9000, 0, "running"],
    ]);
    const at = scale(row ? [row] : [], 11_000);
    expect(at).toEqual({ begin: 1000, end: 11_000 });
    expect(row?.bars[2] && place(row.bars[2], at, 11_000)).toEqual({ left: 80, width: 20 });
  });
  test("of one that has ended comes from its history, with what was seen before", () => {
    const before: Unit[] = [
      { id: "db/make", name: "make", resource: "db", event: "preStart", kind: "webhook", state: "succeeded" },
      { id: "db/later", name: "later", resource: "db", event: "postStart", kind: "exec", state: "waiting" },
    ];
    const told = fromHistory(
      [move(1, "db/make", 1, "Claim"), move(2, "db/make", 1, "Record", "succeeded"), move(3, "", 0, "Close"), move(4, "db/drop", 1, "Claim"), move(5, "db/drop", 1, "Record", "succeeded"), move(6, "fork:default/a", 1, "Claim")],
      before,
    );
    expect(told.map((each) => [each.id, each.event, each.kind, each.state])).toEqual([
      ["db/make", "preStart", "webhook", "succeeded"],
      ["db/later", "postStart", "exec", "skipped"],
      ["db/drop", "postStop", "step", "succeeded"],
      ["fork:default/a", "start", "fork", "stopped"],
    ]);
  });
});

describe("what a route group matches", () => {
  const pay = { label: { key: "team", value: "pay*" } };
  const no = { label: { key: "draft", value: "no" } };
  test("is said in one line, with brackets where they are needed", () => {
    expect(matchText(pay)).toBe("team=pay*");
    expect(matchText({ any: [pay, { all: [no, pay] }, { all: [no] }] })).toBe("team=pay* or (draft=no and team=pay*) or draft=no");
  });
  test("tells patterns from plain values", () => {
    expect([pay, no].map((each) => shown(each))).toMatchObject([{ pattern: true }, { pattern: false }]);
  });
  test("may be nonsense, and endlessly deep", () => {
    let deep: unknown = pay;
    for (let n = 0; n < 5000; n++) deep = { any: [deep] };
    expect(matchText(deep)).toBe("…");
    expect(matchText({ any: Array.from({ length: 90_000 }, () => pay) }).length).toBeLessThan(3000);
    for (const odd of [null, undefined, 5, "x", [], { label: 5 }, { label: { key: 1, value: 2 } }, { any: 5 }]) expect(shown(odd).kind).toBe("odd");
  });
  test("is found by its words, and a group by its sandboxes", () => {
    const group = {
      ...sandbox("checkout"),
      spec: { match: { any: [pay] } },
      status: { ready: true, reason: "Ready", message: "", matchedSandboxes: ["pay-api"], matched: 1, conditions: [] },
    } as unknown as Group;
    const found = (query: string): boolean => matches(parse(query), group);
    expect([found("team=pay"), found("pay*"), found("has:api"), found("has:web"), found("is:ready")]).toEqual([false, true, true, false, true]);
  });
});

test("a name of another namespace is qualified by that namespace", () => {
  expect(qualify("warm", "bank:box")).toBe("bank:warm");
  expect(qualify("warm", "box")).toBe("warm");
  expect(qualify("shop/warm", "bank:box")).toBe("shop:warm");
});
