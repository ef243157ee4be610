/** The data of a plugin's page: its graph and its params. Pure. */
import type { Plan, Step as Line, Unit } from "./types";

export interface Step {
  name?: string;
  inputs?: Input[];
  outputs?: { name?: string; sensitive?: boolean; valueFromPath?: string }[];
  script?: string;
  command?: unknown;
  webhook?: unknown;
  object?: unknown;
}

interface Input {
  name?: string;
  value?: string;
  valueFromSandbox?: boolean;
  valueFromStep?: { name?: string; output?: string };
  required?: boolean;
  default?: unknown;
  secret?: boolean;
}

export interface PluginSpec {
  description?: string;
  create?: Step[];
  delete?: Step[];
  [key: string]: unknown;
}

type Phase = "create" | "delete";

const EVENTS: [Phase, string][] = [
  ["create", "preStart"],
  ["delete", "postStop"],
];

function id(phase: Phase, step: string): string {
  return `${phase}/${step}`;
}

function kind(step: Step): string {
  return step.webhook ? "webhook" : step.object ? "object" : "exec";
}

/** The steps as units for the graph, each with its spec. */
export function stepUnits(spec: PluginSpec, plugin: string): (Unit & { step: Step })[] {
  return EVENTS.flatMap(([phase, event]) =>
    (spec[phase] ?? []).map((step) => {
      const name = step.name ?? "";
      return { id: id(phase, name), resource: plugin, name, event, kind: kind(step), state: "", step };
    }),
  );
}

/** The inputs and outputs between steps, in the form of a sandbox's plan. */
export function plan(spec: PluginSpec): Plan {
  const own = new Set((spec.delete ?? []).map((step) => step.name));
  const source = (phase: Phase, input: Input): string => {
    const { name = "", output = "" } = input.valueFromStep ?? {};
    return name ? `${id(phase === "delete" && own.has(name) ? "delete" : "create", name)}.${output}` : "";
  };
  const line = (phase: Phase, step: Step): Line => ({
    id: id(phase, step.name ?? ""),
    image: "",
    request: "",
    clocks: "",
    tries: "",
    inputs: (step.inputs ?? []).map((input) => ({ name: input.name ?? "", source: source(phase, input) })),
    outputs: [],
  });
  const events = EVENTS.map(([phase, event]) => ({ event, waves: [(spec[phase] ?? []).map((step) => line(phase, step))] }));
  return { events, forks: [], deletion: [], warnings: [] } as unknown as Plan;
}

export interface Param {
  name: string;
  /** Whether it is required, or its default. */
  says: string;
  /** The steps that read it. */
  takers: string[];
}

/** The params of a plugin. `required`, `secret` and `default` may be set in any step that reads the param. */
export function params(spec: PluginSpec): Param[] {
  const found = new Map<string, { of: Input; takers: string[] }>();
  for (const step of [...(spec.create ?? []), ...(spec.delete ?? [])])
    for (const input of step.inputs ?? []) {
      if (!input.valueFromSandbox || !input.name) continue;
      const { of, takers } = found.get(input.name) ?? { of: {}, takers: [] };
      found.set(input.name, { of: { ...of, ...defined(input) }, takers: [...takers, step.name ?? ""] });
    }
  return [...found].map(([name, { of, takers }]) => ({ name, takers, says: rule(of) }));
}

function defined({ required, secret, ...more }: Input): Input {
  return {
    ...(required ? { required } : {}),
    ...(secret ? { secret } : {}),
    ...(more.default === undefined || more.default === null ? {} : { default: more.default }),
  };
}

function rule({ required, secret, default: otherwise }: Input): string {
  if (secret) return "a secret, required";
  if (otherwise !== undefined) return `default ${JSON.stringify(otherwise)}`;
  return required ? "required" : "optional";
}
