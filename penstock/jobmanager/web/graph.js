// The job graph as SVG: a box for each vertex with its chain, a square for each of its slots, arrows with partitioners.

import { s } from "./dom.js";
import { percent, rate } from "./format.js";

const WIDTH = 236;
const OPERATOR = 21;
const HEAD = 30;
const FOOT = 58;
const GAP_ALONG = 96;
const GAP_ACROSS = 26;
const SLOTS_SHOWN = 14;

// Where boxes go. `upright`: levels from top to bottom, for narrow screens.
export function layout(vertices, plan, upright) {
  const inputs = new Map(plan.nodes.map((node) => [node.id, node.inputs]));
  const boxes = new Map();
  const levels = [];
  for (const vertex of vertices) (levels[vertex.level] ??= []).push(vertex);
  let along = 4;
  let across = 0;
  for (const level of levels.filter(Boolean)) {
    // Beside what they read from, so that arrows cross little.
    const place = (v) => {
      const from = inputs.get(v.id).map((i) => boxes.get(i.id)).filter(Boolean);
      return from.length ? from.reduce((sum, b) => sum + b.order, 0) / from.length : 0;
    };
    level.sort((a, b) => place(a) - place(b));
    let at = 4;
    let deep = 0;
    level.forEach((vertex, order) => {
      const height = HEAD + vertex.operators.length * OPERATOR + FOOT;
      const box = upright ? { x: at, y: along } : { x: along, y: at };
      boxes.set(vertex.id, { ...box, width: WIDTH, height, order, level: levels.indexOf(level) });
      at += (upright ? WIDTH : height) + GAP_ACROSS;
      deep = Math.max(deep, upright ? height : WIDTH);
    });
    along += deep + (upright ? 58 : GAP_ALONG);
    across = Math.max(across, at - GAP_ACROSS);
  }
  along -= upright ? 58 : GAP_ALONG;
  for (const level of levels.filter(Boolean)) { // each level in the middle
    const ends = level.map((v) => boxes.get(v.id));
    const extent = Math.max(...ends.map((b) => (upright ? b.x + b.width : b.y + b.height)));
    for (const box of ends) box[upright ? "x" : "y"] += (across - extent) / 2;
  }
  return { boxes, width: (upright ? across : along) + 4, height: (upright ? along : across) + 4 };
}

// `room`: pixels there are; a wider graph shrinks as far as it can still be read, then it is scrolled.
export function graph(job, { selected, onSelect, upright, room }) {
  const { boxes, width, height } = layout(job.vertices, job.plan, upright);
  const scale = Math.min(1, Math.max(room / width, 0.62));
  const byId = new Map(job.vertices.map((v) => [v.id, v]));
  const running = job.state === "RUNNING";
  const arrows = [];
  for (const node of job.plan.nodes) {
    for (const input of node.inputs) {
      const moving = running && byId.get(node.id).rates["records-in-per-second"] > 0;
      arrows.push(edge(boxes.get(input.id), boxes.get(node.id), input, moving, byId.get(node.id), upright));
    }
  }
  return s("svg", {
    width: width * scale, height: height * scale, viewBox: `0 0 ${width} ${height}`, role: "group",
    "aria-label": `Job graph with ${job.vertices.length} vertices`,
  },
  s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8,
    orient: "auto", markerUnits: "userSpaceOnUse" }, s("path", { d: "M0 0 8 4 0 8z", class: "arrow" }))),
  arrows,
  job.vertices.map((v) => vertexBox(v, boxes.get(v.id), job, v.id === selected, onSelect)));
}

function edge(from, to, input, moving, target, upright) {
  const [x1, y1] = upright ? [from.x + from.width / 2, from.y + from.height] : [from.x + from.width, from.y + from.height / 2];
  const [x2, y2] = upright ? [to.x + to.width / 2, to.y - 2] : [to.x - 2, to.y + to.height / 2];
  const bend = (upright ? y2 - y1 : x2 - x1) / 2;
  const path = upright
    ? `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`
    : `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  const flow = target.rates["records-in-per-second"];
  const label = input.side_output == null ? input.ship_strategy : `${input.ship_strategy} · ${input.side_output}`;
  return [
    s("path", { d: path, class: moving ? "edge moving" : "edge", "marker-end": "url(#arrow)",
      "stroke-width": moving ? 1.5 + Math.min(4, Math.log10(1 + flow) / 1.5) : 1.5 }),
    s("text", { x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 7, class: "edge-label" }, label),
  ];
}

// The more it works the redder; what waits for others behind it is violet.
export function shade(busy, pressed) {
  const [b, p] = [Math.round(busy * 100), Math.round(pressed * 100)];
  return `color-mix(in oklab, color-mix(in oklab, var(--idle), var(--busy) ${b}%), var(--pressed) ${p}%)`;
}

function cut(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

function vertexBox(vertex, box, job, chosen, onSelect) {
  const live = vertex.rates;
  const bottleneck = job.bottleneck === vertex.id;
  const words = `${vertex.name}, parallelism ${vertex.parallelism}, in ${rate(live["records-in-per-second"])}, ` +
    `out ${rate(live["records-out-per-second"])}, busy ${percent(live.busy)}, ` +
    `back-pressured ${percent(live["back-pressured"])}${bottleneck ? ", the bottleneck" : ""}`;
  const choose = () => onSelect(vertex.id);
  const foot = HEAD + vertex.operators.length * OPERATOR;
  const [busy, pressed] = [live["busy-by-subtask"] ?? [], live["back-pressured-by-subtask"] ?? []];
  const squares = Math.min(vertex.parallelism, SLOTS_SHOWN);
  return s("g", {
    class: bottleneck ? "vertex bottleneck" : "vertex", transform: `translate(${box.x} ${box.y})`, tabindex: 0, role: "button",
    "aria-pressed": String(chosen), "aria-label": words, "data-key": `vertex-${vertex.id}`, "data-vertex": vertex.id,
    onclick: choose,
    onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } },
  },
  s("title", {}, words),
  s("rect", { width: box.width, height: box.height, rx: 9, class: "box" }),
  s("rect", { x: 3, y: 3, width: box.width - 6, height: HEAD - 4, rx: 6, class: "tint",
    style: { fill: shade(live.busy, live["back-pressured"]) } }),
  s("text", { x: 11, y: 20, class: "title" }, cut(vertex.operators[0]?.name ?? vertex.name, 22)),
  s("text", { x: box.width - 11, y: 20, "text-anchor": "end", class: "title" }, `×${vertex.parallelism}`),
  vertex.operators.map((operator, i) => [
    s("rect", { x: 9, y: HEAD + 2 + i * OPERATOR, width: box.width - 18, height: OPERATOR - 3, rx: 4, class: "op" }),
    s("text", { x: 16, y: HEAD + 15 + i * OPERATOR }, cut(operator.name, 26)),
    operator.stateful && s("text", { x: box.width - 15, y: HEAD + 15 + i * OPERATOR, "text-anchor": "end", class: "faint" }, "state"),
  ]),
  s("text", { x: 11, y: foot + 17 }, `${rate(live["records-in-per-second"])} → ${rate(live["records-out-per-second"])}`),
  s("text", { x: box.width - 11, y: foot + 17, "text-anchor": "end", class: "faint" }, `busy ${percent(live.busy)}`),
  Array.from({ length: squares }, (_, i) => s("rect", {
    x: 11 + i * 12, y: foot + 27, width: 10, height: 10, rx: 2, class: "slot",
    style: { fill: shade(busy[i] ?? 0, pressed[i] ?? 0) },
  }, s("title", {}, `slot ${i}: busy ${percent(busy[i])}, back-pressured ${percent(pressed[i])}`))),
  s("text", { x: 11, y: foot + 50, class: "faint" },
    `${vertex.parallelism} slot${vertex.parallelism === 1 ? "" : "s"}` +
    (live["back-pressured"] > 0.1 ? ` · back-pressured ${percent(live["back-pressured"])}` : "")),
  bottleneck && [
    s("rect", { x: box.width - 88, y: foot + 34, width: 78, height: 18, rx: 9, class: "badge" }),
    s("text", { x: box.width - 49, y: foot + 47, "text-anchor": "middle", class: "badge-text" }, "bottleneck"),
  ]);
}
