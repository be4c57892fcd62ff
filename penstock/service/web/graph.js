// The job graph as SVG: a box for each vertex with its chain, a square for each of its slots, arrows with partitioners.

import { s } from "./dom.js";
import { count, percent, rate } from "./format.js";
import { HEAD, layout, OPERATOR } from "./layout.js";

const SQUARE = 12;
const SMALLEST = 0.55; // of a graph's natural size: below that it cannot be read
const SCROLLED = 0.7; // the size of one that does not fit even so

// `room`: pixels there are.
export function graph(job, { selected, onSelect, upright, room }) {
  const { boxes, arrows, width, height } = layout(job.vertices, job.plan, upright);
  const scale = room / width < SMALLEST ? SCROLLED : Math.min(1, room / width);
  return s("svg", {
    width: width * scale, height: height * scale, viewBox: `0 0 ${width} ${height}`, role: "group",
    "aria-label": `Job graph with ${job.vertices.length} vertices`,
  },
  s("defs", {}, ["still", "moving"].map((kind) => s("marker", { id: `arrow-${kind}`, viewBox: "0 0 10 10", refX: 0, refY: 5,
    markerWidth: 10, markerHeight: 10, orient: "auto", markerUnits: "userSpaceOnUse" }, s("path", { d: "M0 0 10 5 0 10z", class: `arrow ${kind}` })))),
  arrows.map((arrow) => edge(arrow, job)),
  arrows.map((arrow) => s("text", { x: arrow.x, y: arrow.y, dy: 4, class: "edge-label",
    transform: arrow.turned ? `rotate(-90 ${arrow.x} ${arrow.y})` : null }, words(arrow, job))),
  job.vertices.map((v) => vertexBox(v, boxes.get(v.id), job, v.id === selected, onSelect)));
}

export const hasFeedback = (job) => job.plan.nodes.some((node) => node.feedback?.length);

function words({ feedback, input }, job) {
  if (!feedback) return input.side_output == null ? input.ship_strategy : `${input.ship_strategy} · ${input.side_output}`;
  const loops = job.plan.nodes.reduce((sum, node) => sum + (node.feedback?.length ?? 0), 0);
  const waiting = job.epochs.at(-1)?.feedback; // on all loops together
  return loops === 1 && waiting != null ? `FEEDBACK · ${count(waiting)} on the way` : "FEEDBACK";
}

function edge({ path, feedback, from, to }, job) {
  const target = job.vertices.find((v) => v.id === to);
  const flow = target.rates["records-in-per-second"];
  const moving = job.state === "RUNNING" && (feedback ? job.epochs.at(-1)?.feedback > 0 : flow > 0);
  const width = moving && !feedback ? 1.5 + Math.min(3, Math.log10(1 + flow) / 2) : 1.75;
  const kind = `edge${feedback ? " feedback" : ""}${moving ? " moving" : ""}`;
  return [
    moving && !feedback && s("path", { d: path, class: "edge-bed", "stroke-width": width }),
    s("path", { d: path, class: kind, "stroke-width": width, "data-from": from, "data-to": to,
      "marker-end": `url(#arrow-${moving ? "moving" : "still"})` }),
  ];
}

// The more it works the redder; what waits for others behind it is violet.
export function shade(busy, pressed) {
  const [b, p] = [Math.round(busy * 100), Math.round(pressed * 100)];
  return `color-mix(in oklab, color-mix(in oklab, var(--idle), var(--busy) ${b}%), var(--pressed) ${p}%)`;
}

const pen = document.createElement("canvas").getContext("2d");

// As much of a text as fits into so many pixels, in bold 13px (a title) or in 12px, the sizes of style.css.
function cut(text, pixels, title = false) {
  pen.font = `${title ? "bold 13px" : "12px"} ${getComputedStyle(document.body).fontFamily}`;
  const fits = (shown) => pen.measureText(shown).width <= pixels;
  if (fits(text)) return text;
  let length = text.length - 1;
  while (length > 1 && !fits(`${text.slice(0, length)}…`)) length -= 1;
  return `${text.slice(0, length).trimEnd()}…`;
}

function vertexBox(vertex, box, job, chosen, onSelect) {
  const live = vertex.rates;
  const bottleneck = job.bottleneck === vertex.id;
  // Commits of sinks are made by the driver: subtasks that wait for them are not busy.
  const work = live.committing > Math.max(0.1, live.busy) ? `committing ${percent(live.committing)}` : `busy ${percent(live.busy)}`;
  const label = `${vertex.name}, parallelism ${vertex.parallelism}, in ${rate(live["records-in-per-second"])}, ` +
    `out ${rate(live["records-out-per-second"])}, ${work}, ` +
    `back-pressured ${percent(live["back-pressured"])}${bottleneck ? ", the bottleneck" : ""}`;
  const choose = () => onSelect(vertex.id);
  const foot = HEAD + vertex.operators.length * OPERATOR;
  const [busy, pressed] = [live["busy-by-subtask"] ?? [], live["back-pressured-by-subtask"] ?? []];
  const room = Math.floor((box.width - 90) / SQUARE);
  const squares = vertex.parallelism > room ? room - 3 : vertex.parallelism; // and how many more there are
  const slots = `${vertex.parallelism} slot${vertex.parallelism === 1 ? "" : "s"}`;
  return s("g", {
    class: bottleneck ? "vertex bottleneck" : "vertex", transform: `translate(${box.x} ${box.y})`, tabindex: 0, role: "button",
    "aria-pressed": String(chosen), "aria-label": label, "data-key": `vertex-${vertex.id}`, "data-vertex": vertex.id,
    onclick: choose,
    onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } },
  },
  s("title", {}, label),
  s("rect", { width: box.width, height: box.height, rx: 9, class: "box" }),
  s("rect", { x: 3, y: 3, width: box.width - 6, height: HEAD - 4, rx: 6, class: "tint",
    style: { fill: shade(Math.max(live.busy, live.committing ?? 0), live["back-pressured"]) } }),
  s("text", { x: 11, y: 20, class: "title" }, cut(vertex.operators[0]?.name ?? vertex.name, box.width - 60, true)),
  s("text", { x: box.width - 11, y: 20, "text-anchor": "end", class: "title" }, `×${vertex.parallelism}`),
  vertex.operators.map((operator, i) => [
    s("rect", { x: 9, y: HEAD + 2 + i * OPERATOR, width: box.width - 18, height: OPERATOR - 3, rx: 4, class: "op" }),
    s("text", { x: 16, y: HEAD + 15 + i * OPERATOR }, cut(operator.name, box.width - (operator.stateful ? 66 : 30))),
    operator.stateful && s("text", { x: box.width - 15, y: HEAD + 15 + i * OPERATOR, "text-anchor": "end", class: "faint" }, "state"),
  ]),
  s("text", { x: 11, y: foot + 17 }, `${rate(live["records-in-per-second"])} → ${rate(live["records-out-per-second"])}`),
  Array.from({ length: squares }, (_, i) => s("rect", {
    x: 11 + i * SQUARE, y: foot + 25, width: 10, height: 10, rx: 2, class: "slot",
    style: { fill: shade(busy[i] ?? 0, pressed[i] ?? 0) },
  }, s("title", {}, `slot ${i}: busy ${percent(busy[i])}, back-pressured ${percent(pressed[i])}`))),
  squares < vertex.parallelism && s("text", { x: 13 + squares * SQUARE, y: foot + 34, class: "faint" }, `+${vertex.parallelism - squares}`),
  s("text", { x: box.width - 11, y: foot + 34, "text-anchor": "end", class: "faint" }, work),
  s("text", { x: 11, y: foot + 50, class: "faint" }, slots),
  bottleneck ? [
    s("rect", { x: box.width - 88, y: foot + 38, width: 78, height: 17, rx: 8, class: "badge" }),
    s("text", { x: box.width - 49, y: foot + 50, "text-anchor": "middle", class: "badge-text" }, "bottleneck"),
  ] : live["back-pressured"] > 0.1 && s("text", { x: box.width - 11, y: foot + 50, "text-anchor": "end", class: "faint" },
    `back-pressured ${percent(live["back-pressured"])}`));
}
