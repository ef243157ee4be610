import { describe, expect, test } from "vitest";
import { details, graphOf, layoutKey, planned, producer, type Graph } from "../src/graph-model";
import { layOut, NODE_H, NODE_W } from "../src/layout";
import type { Plan, Unit } from "../src/types";

function unit(id: string, event: string, more: Partial<Unit> = {}): Unit {
  const slash = id.lastIndexOf("/");
  return { id, resource: id.slice(0, Math.max(0, slash)), name: id.slice(slash + 1), event, kind: "exec", state: "waiting", ...more };
}

function step(id: string, sources: string[] = []): Plan["events"][number]["waves"][number][number] {
  return {
    id,
    image: "",
    inputs: sources.map((source) => ({ name: source, source })),
    outputs: [],
    clocks: "",
    tries: "",
  };
}

function large(resources: number, steps: number): Graph {
  const units: Unit[] = [];
  for (let r = 0; r < resources; r++) {
    for (let s = 0; s < steps - 1; s++) {
      const reads = [s ? `r${r}/s${s - 1}` : "", r % 3 && !s ? `r${r - 1}/s0` : ""].filter(Boolean);
      units.push(unit(`r${r}/s${s}`, "preStart", { reads }));
    }
    units.push(unit(`r${r}/drop`, "postStop", { reads: [`r${r}/s0`] }));
  }
  return graphOf(units, null);
}

function overlaps(graph: Graph): string[] {
  const at = [...layOut(graph).nodes];
  return at.flatMap(([a, p], i) =>
    at.slice(i + 1).flatMap(([b, q]) => (Math.abs(p.x - q.x) < NODE_W && Math.abs(p.y - q.y) < NODE_H ? [`${a} ${b}`] : [])),
  );
}

describe("a graph", () => {
  const units = [
    unit("db/make", "preStart"),
    unit("db/fill", "preStart", { reads: ["db/make"] }),
    unit("fork:default/shop", "start", { reads: ["db/make"] }),
    unit("db/drop", "postStop", { reads: ["db/make"] }),
  ];
  const plan: Plan = {
    events: [{ event: "preStart", waves: [[step("db/make")], [step("db/fill", ["db/make.host", "db/make.port"])]] }],
    forks: [{ id: "fork:default/shop", kind: "Deployment", env: [{ name: "DB", source: "db/make.host" }], images: [], patch: "" }],
    deletion: [],
    warnings: [],
  };

  test("has outputs as the names of its edges, and order alone where it knows no more", () => {
    const { edges } = graphOf(units, plan);
    expect(edges).toEqual([
      { from: "db/make", to: "db/fill", names: ["host", "port"] },
      { from: "db/make", to: "fork:default/shop", names: ["host"] },
      { from: "db/make", to: "db/drop", names: [] },
    ]);
  });

  test("has routes behind their forks, and previews behind routes", () => {
    const routed: Plan = {
      ...plan,
      routes: [
        { id: "route:default/shop", kind: "route", after: ["fork:default/shop"], keys: ["k3v9"], address: "" },
        { id: "preview:front", kind: "preview", after: ["route:default/shop"], keys: ["k3v9"], address: "http://shop:80" },
      ],
    };
    const shown = graphOf(planned(routed), routed);
    expect(shown.shapes.map((each) => each.id)).toEqual(expect.arrayContaining(["route:default/shop", "preview:front"]));
    const names = shown.edges.map((each) => `${each.from} ${each.to}`);
    expect(names).toContain("fork:default/shop route:default/shop");
    expect(names).toContain("route:default/shop preview:front");
    expect(details(routed).get("preview:front")).toMatchObject({ request: "http://shop:80", inputs: [{ value: "k3v9" }] });
  });

  test("stands in lanes from top to bottom, inside its resource's block", () => {
    const laid = layOut(graphOf(units, plan));
    expect(laid.lanes.map((lane) => lane.event)).toEqual(["preStart", "start", "postStop"]);
    const y = (id: string): number => laid.nodes.get(id)?.y ?? NaN;
    expect(y("db/make")).toBeLessThan(y("fork:default/shop"));
    expect(y("fork:default/shop")).toBeLessThan(y("db/drop"));
    expect(laid.nodes.get("db/make")?.x).toBeLessThan(laid.nodes.get("db/fill")?.x ?? 0);
    expect(laid.order).toEqual(units.map((each) => each.id));
    for (const block of laid.blocks) {
      const inside = units.filter((each) => each.resource === block.title && block.key.startsWith(each.event));
      for (const each of inside) {
        const at = laid.nodes.get(each.id) ?? { x: 0, y: 0 };
        expect(at.x).toBeGreaterThanOrEqual(block.x);
        expect(at.x + NODE_W).toBeLessThanOrEqual(block.x + block.w);
        expect(at.y + NODE_H).toBeLessThanOrEqual(block.y + block.h);
      }
    }
  });

  test("is laid out anew for other units, never for other states", () => {
    const key = layoutKey(graphOf(units, plan));
    const later = units.map((each) => ({ ...each, state: "succeeded", attempt: 2, message: "m", since: 5 }));
    expect(layoutKey(graphOf(later, plan))).toBe(key);
    expect(layoutKey(graphOf(later.slice(1), plan))).not.toBe(key);
  });

  test("never puts one unit over another", () => {
    for (const [r, s] of [[1, 2], [7, 4], [40, 3], [64, 4]] as const) expect(overlaps(large(r, s))).toEqual([]);
  });

  test("is the same picture each time", () => {
    expect(layOut(large(9, 4))).toEqual(layOut(large(9, 4)));
  });

  test("survives circles, strangers and names with dots", () => {
    const odd = graphOf([unit("a/x", "preStart", { reads: ["a/y", "a/x", "no/body"] }), unit("a/y", "preStart", { reads: ["a/x"] })], null);
    expect(odd.edges).toHaveLength(2);
    expect(layOut(odd).nodes.size).toBe(2);
    expect(layOut({ shapes: [], edges: [] }).nodes.size).toBe(0);
    expect(producer("a.b/c.d.e", new Set(["a.b/c"]))).toEqual(["a.b/c", "d.e"]);
    expect(producer("params.x", new Set(["a"]))).toBeNull();
  });
});
