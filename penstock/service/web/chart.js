// One measure over time as SVG: a line, and around it a band from the least to the most of its subtasks. Pure: data in, elements out.

import { h, s } from "./dom.js";
import { bytes, clock, count, duration, rate, watermark } from "./format.js";

const [WIDE, HIGH] = [600, 120];
const GAP_MS = 6000; // nobody looked for so long: the line is not drawn through it

// As its name says what it measures.
export function shown(metric, value) {
  if (value == null) return "–";
  if (/watermark/i.test(metric)) return watermark(value, { fraction: false });
  if (/TimeMsPerSecond$/.test(metric)) return `${count(value)} ms/s`;
  if (/PerSecond$/.test(metric)) return rate(value);
  if (/(Size|Bytes)$/i.test(metric)) return bytes(Math.round(value));
  if (/Time$|TimeMs$|Duration$|uptime$|latency_|_ms$/i.test(metric)) return duration(value);
  return Math.abs(value) < 100 && !Number.isInteger(value) ? value.toFixed(2) : count(value);
}

// `samples`: [{ at, min, avg, max, sum }], oldest first. `of`: "sum", or "spread" over subtasks. `pointed`: a part of the width,
// or null; `onPoint` hears of another.
export function chart(metric, samples, { of, from, to, pointed, onPoint }) {
  const line = (sample) => (of === "sum" ? sample.sum : sample.avg);
  const seen = samples.filter((sample) => sample.at >= from && Number.isFinite(line(sample)));
  if (seen.length === 0) return h("p", { class: "muted small" }, "Nothing has been measured yet.");
  const lows = seen.map((sample) => (of === "sum" ? sample.sum : sample.min));
  const highs = seen.map((sample) => (of === "sum" ? sample.sum : sample.max));
  let [bottom, top] = [Math.min(...lows), Math.max(...highs)];
  if (bottom >= 0 && (bottom < top / 2 || /PerSecond$/.test(metric))) bottom = 0; // a measure that hardly changes, as a watermark, is not drawn from 0
  if (top === bottom) [bottom, top] = top === 0 ? [0, 1] : [Math.min(0, bottom), Math.max(0, top)];
  const x = (at) => (WIDE * (at - from)) / Math.max(1, to - from);
  const y = (value) => HIGH - ((HIGH - 4) * (value - bottom)) / (top - bottom) - 2;
  const runs = [];
  for (const sample of seen) {
    if (runs.length === 0 || sample.at - runs.at(-1).at(-1).at > GAP_MS) runs.push([]);
    runs.at(-1).push(sample);
  }
  const path = (run, value) => run.map((sample) => `${x(sample.at).toFixed(1)} ${y(value(sample)).toFixed(1)}`).join("L");
  const cursor = s("line", { class: "pointed", y1: 0, y2: HIGH });
  const reading = h("p", { class: "reading" });
  const drawing = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${metric}: ${shown(metric, line(seen.at(-1)))} now, from ${shown(metric, bottom)} to ${shown(metric, top)}` },
  of === "spread" && runs.map((run) => s("path", { class: "band", d: `M${path(run, (p) => p.max)}L${path([...run].reverse(), (p) => p.min)}Z` })),
  runs.map((run) => (run.length === 1 // a single look has no length
    ? s("line", { class: "line", x1: x(run[0].at) - 1, x2: x(run[0].at) + 1, y1: y(line(run[0])), y2: y(line(run[0])) })
    : s("path", { class: "line", d: `M${path(run, line)}` }))), cursor);
  // What is under the pointer is told in place: the chart itself is drawn anew once a second.
  const point = (part) => {
    const at = part === null ? null : from + part * (to - from);
    const told = at === null ? seen.at(-1) : seen.reduce((best, each) => (Math.abs(each.at - at) < Math.abs(best.at - at) ? each : best));
    cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(told.at));
    const spread = of === "spread" && told.max !== told.min && `${shown(metric, told.min)} – ${shown(metric, told.max)} over subtasks, `;
    reading.replaceChildren(h("strong", {}, shown(metric, line(told))), " ", h("span", { class: "muted small" }, spread, at === null ? "now" : clock(told.at)));
    onPoint(part);
  };
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    point(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
  });
  drawing.addEventListener("pointerleave", () => point(null));
  point(pointed);
  return [
    reading,
    h("div", { class: "plot" }, h("div", { class: "scale muted", "aria-hidden": "true" }, h("span", {}, shown(metric, top)), h("span", {}, shown(metric, bottom))), drawing),
    h("p", { class: "axis" }, h("span", {}, clock(from)), h("span", {}, clock(to)))];
}
