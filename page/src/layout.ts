/** The layout of a graph. Pure: the same graph always gets the same picture.
 *
 * Each event is a lane across the picture. Within a lane, the units of a resource form a block. Blocks that read
 * each other are placed from left to right; all others wrap like words. dagre runs separately for each block and for each
 * family of connected blocks. These small graphs keep 256 units fast.
 */
import { Graph as Dagre, layout as place } from "@dagrejs/dagre";
import { LANES, type Edge, type Graph, type Shape } from "./graph-model";

export const NODE_W = 196;
export const NODE_H = 54;
const GAP = 18;
const PAD = 12;
const TITLE = 20;
const HEAD = 30;
const LABEL = 15;
const MOST_LABELS = 4;
const CHAR = 6.4;

export interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface Laid {
  w: number;
  h: number;
  lanes: (Box & { event: string; title: string })[];
  blocks: (Box & { key: string; title: string })[];
  nodes: Map<string, { x: number; y: number }>;
  edges: { from: string; to: string; names: string[]; path: string; labels: { text: string; x: number; y: number }[] }[];
  /** Unit IDs in reading order: by lane, then from left to right. */
  order: string[];
}

interface Block {
  key: string;
  title: string;
  shapes: Shape[];
  w: number;
  h: number;
  at: Map<string, { x: number; y: number }>;
}

export function short(text: string, most = 22): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

export function nameOf(edge: Edge): string {
  return edge.names.length > 1 ? `${short(edge.names[0] ?? "", 16)} +${edge.names.length - 1}` : short(edge.names[0] ?? "");
}

function labelWidth(edge: Edge): number {
  return edge.names.length ? nameOf(edge).length * CHAR + 18 : 26;
}

function run(sizes: Map<string, { w: number; h: number }>, edges: Edge[]): { w: number; h: number; at: Map<string, { x: number; y: number }> } {
  const dagre = new Dagre();
  dagre.setGraph({ rankdir: "LR", nodesep: GAP, ranksep: 14, edgesep: 8, ranker: "tight-tree" });
  dagre.setDefaultEdgeLabel(() => ({}));
  for (const [key, { w, h }] of sizes) dagre.setNode(key, { width: w, height: h });
  for (const edge of edges) dagre.setEdge(edge.from, edge.to, { width: labelWidth(edge), height: LABEL, labelpos: "c" });
  place(dagre);
  const found = dagre.graph();
  const at = new Map<string, { x: number; y: number }>();
  for (const [key, { w, h }] of sizes) {
    const node = dagre.node(key);
    at.set(key, { x: node.x - w / 2, y: node.y - h / 2 });
  }
  return { w: found.width ?? 0, h: found.height ?? 0, at };
}

function blockOf(key: string, title: string, shapes: Shape[], edges: Edge[]): Block {
  const ids = new Set(shapes.map((each) => each.id));
  const own = edges.filter((edge) => ids.has(edge.from) && ids.has(edge.to));
  const frame = title ? { left: PAD, top: PAD + TITLE, right: PAD, bottom: PAD } : { left: 0, top: 0, right: 0, bottom: 0 };
  const inner = run(new Map(shapes.map((each) => [each.id, { w: NODE_W, h: NODE_H }])), own);
  const at = new Map([...inner.at].map(([id, { x, y }]) => [id, { x: x + frame.left, y: y + frame.top }]));
  return { key, title, shapes, w: inner.w + frame.left + frame.right, h: inner.h + frame.top + frame.bottom, at };
}

/** Groups of blocks that read each other, directly or indirectly. */
function families(blocks: Block[], links: Edge[]): Block[][] {
  const root = new Map(blocks.map((block) => [block.key, block.key]));
  const find = (key: string): string => {
    let at = key;
    while (root.get(at) !== at) at = root.get(at) ?? at;
    return at;
  };
  for (const link of links) root.set(find(link.to), find(link.from));
  const found = new Map<string, Block[]>();
  for (const block of blocks) {
    const key = find(block.key);
    found.set(key, [...(found.get(key) ?? []), block]);
  }
  return [...found.values()];
}

function between(blocks: Block[], edges: Edge[]): Edge[] {
  const home = new Map(blocks.flatMap((block) => block.shapes.map((each) => [each.id, block.key] as const)));
  const found = new Map<string, Edge>();
  for (const edge of edges) {
    const [from, to] = [home.get(edge.from), home.get(edge.to)];
    if (from === undefined || to === undefined || from === to) continue;
    const link = found.get(`${from}\n${to}`) ?? { from, to, names: [] };
    if (labelWidth(edge) > labelWidth(link)) link.names = edge.names;
    found.set(`${from}\n${to}`, link);
  }
  return [...found.values()];
}

/** Compute the layout for a picture of roughly this width. */
export function layOut(graph: Graph, wide = 1080): Laid {
  const laid: Laid = { w: 0, h: 0, lanes: [], blocks: [], nodes: new Map(), edges: [], order: [] };
  const lane = new Map(graph.shapes.map((each) => [each.id, each.event]));
  const coming = new Map<string, Edge[]>();
  for (const edge of graph.edges)
    if (lane.get(edge.from) !== lane.get(edge.to)) coming.set(edge.to, [...(coming.get(edge.to) ?? []), edge]);
  let y = 0;
  for (const [event, title] of LANES) {
    const shapes = graph.shapes.filter((each) => each.event === event);
    if (!shapes.length) continue;
    const labels = Math.max(0, ...shapes.map((each) => Math.min(MOST_LABELS, (coming.get(each.id) ?? []).filter((e) => e.names.length).length)));
    const top = y + HEAD + (labels ? labels * LABEL + 6 : 0);
    const inside = placeLane(laid, shapes, graph.edges, top, wide);
    laid.lanes.push({ event, title, x: 0, y, w: 0, h: top + inside.h + PAD - y });
    laid.w = Math.max(laid.w, inside.w);
    y = top + inside.h + PAD + GAP;
  }
  laid.h = Math.max(0, y - GAP);
  laid.w = Math.max(laid.w + PAD, 320);
  for (const each of laid.lanes) each.w = laid.w;
  drawEdges(laid, graph, lane, coming);
  laid.order = LANES.flatMap(([event]) =>
    graph.shapes
      .filter((each) => each.event === event)
      .map((each) => each.id)
      .sort((a, b) => column(laid, a) - column(laid, b)),
  );
  return laid;
}

function column(laid: Laid, id: string): number {
  const at = laid.nodes.get(id) ?? { x: 0, y: 0 };
  return Math.round(at.y / 10) * 100_000 + at.x;
}

function placeLane(laid: Laid, shapes: Shape[], edges: Edge[], top: number, wide: number): { w: number; h: number } {
  const event = shapes[0]?.event ?? "";
  const groups = new Map<string, Shape[]>();
  for (const each of shapes) {
    // Forks and the sandbox's own hooks have no resource, so each of them forms a separate block.
    const key = each.resource ? `resource ${each.resource}` : `unit ${each.id}`;
    groups.set(key, [...(groups.get(key) ?? []), each]);
  }
  const blocks = [...groups].map(([key, members]) => blockOf(key, members[0]?.resource ?? "", members, edges));
  const links = between(blocks, edges);
  let [x, y, row, right] = [PAD, top, 0, 0];
  for (const family of families(blocks, links)) {
    const keys = new Set(family.map((block) => block.key));
    const own = links.filter((link) => keys.has(link.from));
    const one = family.length === 1 ? family[0] : undefined;
    const inner = one
      ? { w: one.w, h: one.h, at: new Map([[one.key, { x: 0, y: 0 }]]) }
      : run(new Map(family.map((block) => [block.key, { w: block.w, h: block.h }])), own);
    if (x > PAD && x + inner.w > wide) [x, y, row] = [PAD, y + row + GAP, 0];
    for (const block of family) {
      const at = inner.at.get(block.key) ?? { x: 0, y: 0 };
      const [bx, by] = [x + at.x, y + at.y];
      if (block.title) laid.blocks.push({ key: `${event} ${block.key}`, title: block.title, x: bx, y: by, w: block.w, h: block.h });
      for (const [id, within] of block.at) laid.nodes.set(id, { x: bx + within.x, y: by + within.y });
    }
    x += inner.w + GAP;
    row = Math.max(row, inner.h);
    right = Math.max(right, x - GAP);
  }
  return { w: right, h: y + row - top };
}

function drawEdges(laid: Laid, graph: Graph, lane: Map<string, string>, coming: Map<string, Edge[]>): void {
  for (const edge of graph.edges) {
    const [from, to] = [laid.nodes.get(edge.from), laid.nodes.get(edge.to)];
    if (!from || !to) continue;
    const text = nameOf(edge);
    if (lane.get(edge.from) === lane.get(edge.to)) {
      const [x1, y1, x2, y2] = [from.x + NODE_W, from.y + NODE_H / 2, to.x, to.y + NODE_H / 2];
      const bend = Math.max(14, (x2 - x1) / 2);
      const labels = text ? [{ text, x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 5 }] : [];
      laid.edges.push({ from: edge.from, to: edge.to, names: edge.names, path: curve(x1, y1, x1 + bend, y1, x2 - bend, y2, x2, y2), labels });
      continue;
    }
    // An edge between lanes has its label at the target; labels are stacked.
    const named = (coming.get(edge.to) ?? []).filter((each) => each.names.length);
    const index = named.indexOf(edge);
    const [x1, y1, x2, y2] = [from.x + NODE_W / 2, from.y + NODE_H, to.x + NODE_W / 2, to.y];
    const bend = Math.max(20, Math.min(90, (y2 - y1) / 2));
    const more = index === MOST_LABELS - 1 && named.length > MOST_LABELS ? ` +${named.length - MOST_LABELS}` : "";
    const labels = index >= 0 && index < MOST_LABELS ? [{ text: text + more, x: x2, y: y2 - 7 - index * LABEL }] : [];
    laid.edges.push({ from: edge.from, to: edge.to, names: edge.names, path: curve(x1, y1, x1, y1 + bend, x2, y2 - bend, x2, y2), labels });
  }
}

function curve(...at: number[]): string {
  const [a, b, c, d, e, f, g, h] = at.map((each) => Math.round(each * 10) / 10);
  return `M${a} ${b}C${c} ${d} ${e} ${f} ${g} ${h}`;
}
