// The last epochs: a bar for each, as high as it took long, and a line of records read.

import { h, s } from "./dom.js";
import { count, duration } from "./format.js";

const SHOWN = 120;

export function timeline(epochs, targetMs) {
  if (epochs.length === 0) return h("p", { class: "muted" }, "No epoch has ended yet.");
  const longest = Math.max(targetMs ?? 0, ...epochs.map((e) => e.duration_ms)) * 1.05;
  const most = Math.max(1, ...epochs.map((e) => e.records_in)) * 1.05;
  const last = epochs.at(-1);
  const x = (i) => SHOWN - epochs.length + i;
  const line = epochs.map((e, i) => `${i ? "L" : "M"}${x(i) + 0.5} ${100 - (100 * e.records_in) / most}`).join("");
  return [
    s("svg", { class: "timeline", viewBox: `0 0 ${SHOWN} 100`, preserveAspectRatio: "none", role: "img",
      "aria-label": `Last ${epochs.length} epochs; the newest, ${last.epoch}, took ${duration(last.duration_ms)}` },
    epochs.map((e, i) => s("rect", {
      x: x(i) + 0.1, width: 0.8, y: 100 - (100 * e.duration_ms) / longest, height: (100 * e.duration_ms) / longest,
      class: e.checkpoint ? "checkpoint" : "epoch",
    }, s("title", {}, `epoch ${e.epoch}: ${duration(e.duration_ms)}, ${count(e.records_in)} in, ${count(e.records_out)} out` +
        (e.checkpoint ? ", checkpoint" : "")))),
    targetMs && s("line", { x1: 0, x2: SHOWN, y1: 100 - (100 * targetMs) / longest, y2: 100 - (100 * targetMs) / longest, class: "target" }),
    s("path", { d: line, class: "rate" })),
    h("p", { class: "legend" },
      h("span", { class: "sw-epoch" }, `epoch (highest ${duration(Math.max(...epochs.map((e) => e.duration_ms)))})`),
      h("span", { class: "sw-checkpoint" }, "epoch with a checkpoint"),
      h("span", { class: "sw-rate" }, `records read (highest ${count(most / 1.05)})`),
      targetMs && `target ${duration(targetMs)}`),
  ];
}
