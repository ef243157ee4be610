/** The graph of a sandbox. Its layout changes only if units come or go; other changes update only signs and colours. */
import type { JSX } from "preact";
import { useMemo, useRef } from "preact/hooks";
import { graphOf, layoutKey, type Graph } from "./graph-model";
import { layOut, NODE_H, NODE_W, type Laid } from "./layout";
import { withQuery } from "./router";
import { visible } from "./text";
import type { Plan, Unit } from "./types";
import { State, Text } from "./ui";

export function useLaid(units: readonly Unit[], plan: Plan | null): { graph: Graph; laid: Laid } {
  const graph = useMemo(() => graphOf(units, plan), [units, plan]);
  const kept = useRef<{ key: string; laid: Laid } | null>(null);
  const key = layoutKey(graph);
  if (kept.current?.key !== key) {
    performance.mark("layout-begins");
    kept.current = { key, laid: layOut(graph, Math.max(320, Math.min(window.innerWidth - 64, 1180))) };
    performance.measure("graph layout", "layout-begins");
  }
  return { graph, laid: kept.current.laid };
}

interface Props {
  units: readonly Unit[];
  plan: Plan | null;
  chosen: string;
  /** Titles of lanes whose units are not executed, such as a plugin's steps. */
  titles?: Record<string, string>;
}

export function GraphView({ units, plan, chosen, titles }: Props): JSX.Element {
  const { graph, laid } = useLaid(units, plan);
  const byId = useMemo(() => new Map(units.map((unit) => [unit.id, unit])), [units]);
  const near = (from: string, to: string): string => (chosen && (from === chosen || to === chosen) ? "near" : "");
  return (
    <div class="graph" role="region" aria-label="Graph of units" tabIndex={0}>
      <div class="canvas" style={{ width: `${laid.w}px`, height: `${laid.h}px` }}>
        {laid.lanes.map((lane) => (
          <div key={lane.event} class="lane" style={box(lane)}>
            <p>
              {titles?.[lane.event] ?? lane.title} <code>{titles || lane.event === "start" ? "" : lane.event}</code>
            </p>
          </div>
        ))}
        {laid.blocks.map((block) => (
          <div key={block.key} class="block" style={box(block)}>
            <Text>{block.title}</Text>
          </div>
        ))}
        <svg width={laid.w} height={laid.h} aria-hidden="true">
          <defs>
            <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
              <path d="M0 0L8 4L0 8z" />
            </marker>
          </defs>
          {laid.edges.map((edge) => (
            <path key={`${edge.from} ${edge.to}`} class={near(edge.from, edge.to)} d={edge.path} marker-end="url(#arrow)" />
          ))}
          {laid.edges.flatMap((edge) =>
            edge.labels.map((label) => (
              <text key={`${edge.from} ${edge.to}`} class={near(edge.from, edge.to)} x={label.x} y={label.y}>
                {visible(label.text)}
                {edge.names.length > 1 && <title>{visible(edge.names.join(", "))}</title>}
              </text>
            )),
          )}
        </svg>
        <ul aria-label="Units">
          {laid.order.map((id) => {
            const unit = byId.get(id);
            return unit ? <Node key={id} unit={unit} graph={graph} laid={laid} chosen={chosen === id} /> : null;
          })}
        </ul>
      </div>
    </div>
  );
}

function Node({ unit, graph, laid, chosen }: { unit: Unit; graph: Graph; laid: Laid; chosen: boolean }): JSX.Element {
  const at = laid.nodes.get(unit.id) ?? { x: 0, y: 0 };
  const reads = graph.edges.filter((edge) => edge.to === unit.id).map((edge) => edge.from);
  const tries = (unit.attempt ?? 0) > 1 ? ` ×${unit.attempt}` : "";
  const more = `, ${unit.resource ? `of ${unit.resource}, ` : ""}${unit.event}${reads.length ? `, reads ${reads.join(", ")}` : ""}`;
  return (
    <li style={{ left: `${at.x}px`, top: `${at.y}px`, width: `${NODE_W}px`, height: `${NODE_H}px` }}>
      <a
        class={`node ${unit.state}`}
        href={withQuery({ unit: chosen ? "" : unit.id })}
        aria-current={chosen ? "true" : undefined}
      >
        <span class="name">
          <Text>{unit.resource ? unit.name : unit.id}</Text>
        </span>
        <span class="line">
          {unit.state && <State state={unit.state}>{unit.state}</State>}
          <span class="kind">
            {unit.kind}
            {tries}
          </span>
        </span>
        <span class="offstage">{visible(more)}</span>
      </a>
    </li>
  );
}

function box(at: { x: number; y: number; w: number; h: number }): Record<string, string> {
  return { left: `${at.x}px`, top: `${at.y}px`, width: `${at.w}px`, height: `${at.h}px` };
}
