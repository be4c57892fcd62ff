// How long records take from a source to a sink: a bar for each pair, half of the epochs within its dark part.

import { h, table } from "./dom.js";
import { count, duration } from "./format.js";

const SHOWN = 10;

export const slowest = (pairs) => pairs.reduce((worst, p) => (worst === null || p.p99_ms > worst.p99_ms ? p : worst), null);

export function latencies(pairs) {
  if (pairs.length === 0) return null;
  const longest = Math.max(1, ...pairs.map((p) => p.p99_ms));
  const share = (ms) => `${(100 * ms) / longest}%`;
  const sorted = [...pairs].sort((a, b) => b.p99_ms - a.p99_ms);
  return h("section", { class: "card", "aria-label": "Latency" }, h("h2", {}, "Latency from source to sink"), table([
    { title: "Source", kind: "wide", cell: (p) => h("span", { title: p.source }, p["source-name"]) },
    { title: "Sink", kind: "wide", cell: (p) => h("span", { title: p.sink }, p["sink-name"]) },
    { title: "", kind: "hide-small", cell: (p) => h("span", { class: "meter", role: "presentation" },
      h("i", { class: "half", style: { width: share(p.p50_ms) } }), h("i", { class: "most", style: { width: share(p.p99_ms - p.p50_ms) } })) },
    { title: "p50", kind: "n", cell: (p) => duration(p.p50_ms) },
    { title: "p99", kind: "n", cell: (p) => duration(p.p99_ms) },
    { title: "Last", kind: "n", cell: (p) => duration(p.last_ms) },
    { title: "Epochs", kind: "n", cell: (p) => count(p.epochs) },
  ], sorted.slice(0, SHOWN), ""),
  sorted.length > SHOWN && h("p", { class: "muted small" }, `and ${count(sorted.length - SHOWN)} faster ones`),
  h("p", { class: "muted small" }, "From the moment an epoch is planned until the sink has committed it: the wait for the checkpoint is in it."));
}
