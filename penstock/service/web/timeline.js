// The last epochs: a bar for each, as high as it took long, and a line of records read.

import { h, s } from "./dom.js";
import { clock, count, duration } from "./format.js";

const LEAST = 40; // few epochs do not become few wide bars

export function timeline(epochs, targetMs) {
  if (epochs.length === 0) return h("p", { class: "muted" }, "No epoch has ended yet.");
  const wide = Math.max(LEAST, epochs.length);
  const slow = Math.max(...epochs.map((e) => e.duration_ms));
  const longest = Math.max(targetMs ?? 0, slow) * 1.05;
  const most = Math.max(1, ...epochs.map((e) => e.records_in)) * 1.05;
  const [first, last] = [epochs[0], epochs.at(-1)];
  const y = (value, top) => 100 - (100 * value) / top;
  const line = epochs.map((e, i) => `${i ? "L" : "M"}${i + 0.5} ${y(e.records_in, most)}`).join("");
  const restored = epochs.some(isRestored);
  return [
    s("svg", { class: "timeline", viewBox: `0 0 ${wide} 100`, preserveAspectRatio: "none", role: "img",
      "aria-label": `Last ${epochs.length} epochs; the newest, ${last.epoch}, took ${duration(last.duration_ms)}` },
    epochs.map((e, i) => s("rect", {
      x: i + 0.1, width: 0.8, y: y(e.duration_ms, longest), height: 100 - y(e.duration_ms, longest),
      class: isRestored(e) ? "restored" : e.checkpoint ? "checkpoint" : "epoch",
    }, s("title", {}, `epoch ${e.epoch}: ${duration(e.duration_ms)}, ${count(e.records_in)} in, ${count(e.records_out)} out` +
        (e.checkpoint ? ", checkpoint" : "") + (isRestored(e) ? `, ${count(e.restored_tasks)} subtasks restored` : "")))),
    targetMs && s("line", { x1: 0, x2: wide, y1: y(targetMs, longest), y2: y(targetMs, longest), class: "target" }),
    s("path", { d: line, class: "rate" })),
    h("p", { class: "axis" }, h("span", {}, `epoch ${count(first.epoch)}, ${clock(first.wall_ms - first.duration_ms)}`),
      epochs.length > LEAST / 2 && h("span", {}, `epoch ${count(last.epoch)}, ${clock(last.wall_ms)}`)),
    h("p", { class: "legend" },
      h("span", { class: "sw-epoch" }, `epoch (longest ${duration(slow)})`),
      h("span", { class: "sw-checkpoint" }, "with a checkpoint"),
      restored && h("span", { class: "sw-restored" }, "with subtasks restored"),
      h("span", { class: "sw-rate" }, `records read (most ${count(most / 1.05)})`),
      targetMs && h("span", { class: "sw-target" }, `target ${duration(targetMs)}`)),
  ];
}

// The first epoch of a job that was resumed restores everything, too.
const isRestored = (epoch) => epoch.restored_tasks > 0;
