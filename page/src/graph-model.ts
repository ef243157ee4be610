/** The graph of a sandbox: units are nodes in lanes by event, outputs are edges between them. Pure. */
import type { Plan, Step, Unit } from "./types";

export interface Shape {
  id: string;
  name: string;
  resource: string;
  event: string;
  kind: string;
}

export interface Edge {
  from: string;
  to: string;
  /** The outputs that this edge carries; empty if only the order is known. */
  names: string[];
}

export interface Graph {
  shapes: Shape[];
  edges: Edge[];
}

export const LANES: [event: string, title: string][] = [
  ["preStart", "Before the start"],
  ["start", "Running"],
  ["postStart", "After the start"],
  ["preStop", "Before the stop"],
  ["postStop", "After the stop"],
];

export interface Details {
  inputs: Step["inputs"];
  outputs: Step["outputs"];
  image: string;
  request: string;
  clocks: string;
  tries: string;
}

const NOTHING: Details = { inputs: [], outputs: [], image: "", request: "", clocks: "", tries: "" };

/** The details of each unit from the plan. */
export function details(plan: Plan | null): Map<string, Details> {
  const found = new Map<string, Details>();
  for (const event of plan?.events ?? [])
    for (const wave of event.waves)
      for (const step of wave) found.set(step.id, { ...NOTHING, ...step, inputs: step.inputs ?? [], outputs: step.outputs ?? [] });
  for (const fork of plan?.forks ?? []) {
    const inputs = fork.env.map((each) => ({ ...each, value: each.value ?? null, env: each.name }));
    found.set(fork.id, { ...NOTHING, inputs, image: fork.images.join(", ") });
  }
  for (const route of plan?.routes ?? []) {
    const inputs = (route.keys ?? []).map((key) => ({ name: "routing key", value: key }));
    found.set(route.id, { ...NOTHING, inputs, request: route.address ?? "" });
  }
  return found;
}

/** The units of a plan that no host has accepted yet. */
export function planned(plan: Plan): Unit[] {
  const unit = (id: string, event: string, kind: string): Unit => {
    const slash = kind === "step" ? id.lastIndexOf("/") : -1;
    return { id, resource: slash < 0 ? "" : id.slice(0, slash), name: id.slice(slash + 1), event, kind, state: "waiting" };
  };
  const steps = plan.events.flatMap((event) => event.waves.flatMap((wave) => wave.map((step) => unit(step.id, event.event, "step"))));
  const kept = [...plan.forks.map((fork) => ({ ...fork, kind: "fork" })), ...(plan.routes ?? [])];
  return [...steps, ...kept.map((each) => unit(each.id, "start", each.kind))];
}

/** Split `db/provision.path` into unit and output; null if it names no known unit. */
export function producer(source: string, known: ReadonlySet<string>): [string, string] | null {
  for (let dot = source.indexOf("."); dot > 0; dot = source.indexOf(".", dot + 1)) {
    const unit = source.slice(0, dot);
    if (known.has(unit)) return [unit, source.slice(dot + 1)];
  }
  return null;
}

/** Build the graph from the host's report and, while the sandbox exists, its plan. */
export function graphOf(units: readonly Unit[], plan: Plan | null): Graph {
  const known = new Set(units.map((unit) => unit.id));
  const shapes = units.map(({ id, name, resource = "", event, kind }) => ({ id, name, resource, event, kind }));
  const of = details(plan);
  const edges = new Map<string, Edge>();
  const join = (from: string, to: string, name: string): void => {
    if (from === to || !known.has(from)) return;
    const key = `${from}\n${to}`;
    const edge = edges.get(key) ?? { from, to, names: [] };
    if (name && !edge.names.includes(name)) edge.names.push(name);
    edges.set(key, edge);
  };
  for (const route of plan?.routes ?? []) for (const from of route.after ?? []) join(from, route.id, "");
  for (const unit of units) {
    for (const input of of.get(unit.id)?.inputs ?? []) {
      const from = input.source ? producer(input.source, known) : null;
      if (from) join(from[0], unit.id, from[1]);
    }
    for (const from of unit.reads ?? []) join(from, unit.id, "");
  }
  return { shapes, edges: [...edges.values()] };
}

/** Graphs with equal keys have the same layout. States and times are not part of the key. */
export function layoutKey(graph: Graph): string {
  const shapes = graph.shapes.map((each) => `${each.event} ${each.id}`);
  const edges = graph.edges.map((each) => `${each.from}>${each.to}:${each.names.join(",")}`);
  return [...shapes.sort(), ...edges.sort()].join("\n");
}
