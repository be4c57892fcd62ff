// The vertices of a job, and the subtasks of one: how busy they are, how evenly records are spread, how long they take.

import { get } from "./api.js";
import { badge, h, table } from "./dom.js";
import { count, duration, ENDED, percent, rate, watermark } from "./format.js";

const PARTS = [["busy", "busy"], ["pressed", "back-pressured"], ["idle", "idle"]];
const UNEVEN = 0.3; // so much of the mean is worth a look

// One bar of three parts: busy, back-pressured, idle. Together they are all of the time.
function meter(busy, pressed) {
  const idle = Math.max(0, 1 - busy - pressed);
  const shares = [busy, pressed, idle];
  return [
    h("span", { class: "meter stacked", role: "img", "aria-label": PARTS.map(([, name], i) => `${name} ${percent(shares[i])}`).join(", "),
      title: PARTS.map(([, name], i) => `${name} ${percent(shares[i])}`).join("\n") },
    PARTS.map(([kind], i) => h("i", { class: kind, style: { width: `${100 * shares[i]}%` } }))),
    h("span", { class: "parts", "aria-hidden": "true" }, shares.map((share) => Math.round(100 * share)).join(" · "), " %")];
}

const level = (ratio) => (ratio > 0.5 ? "high" : ratio > 0.1 ? "low" : "ok");

const legend = () => h("p", { class: "legend" }, PARTS.map(([kind, name]) => h("span", { class: `sw-${kind}` }, name)));

export async function vertices({ show }, job, selected, select) {
  const chosen = job.vertices.find((v) => v.id === selected) ?? job.vertices[0];
  if (!chosen) {
    show(h("p", { class: "muted" }, "The program has not started its job yet."));
    return;
  }
  const details = await get(`/jobs/${job.jid}/vertices/${chosen.id}`);
  const all = job.vertices.map((v) => ({ ...v, class: v.id === chosen.id ? "chosen" : null }));
  show(
    h("section", { class: "card" }, h("h2", {}, "Vertices"), table([
      { title: "Vertex", kind: "wide", cell: (v) => [
        h("a", { href: `#/jobs/${job.jid}`, "data-key": `row-${v.id}`, onclick: (e) => { e.preventDefault(); select(v.id); } }, v.name),
        v.id === job.bottleneck && [" ", h("span", { class: "state FAILED" }, "bottleneck")]] },
      { title: "Slots", kind: "n", cell: (v) => v.parallelism },
      { title: "Time", kind: "meters", cell: (v) => meter(v.rates.busy, v.rates["back-pressured"]) },
      { title: "Back pressure", cell: (v) => badge(level(v.rates["back-pressured"])) },
      { title: "In", kind: "n", cell: (v) => rate(v.rates["records-in-per-second"]) },
      { title: "Out", kind: "n", cell: (v) => rate(v.rates["records-out-per-second"]) },
      { title: "Records in", kind: "n", cell: (v) => count(v.metrics["read-records"]) },
      { title: "Records out", kind: "n", cell: (v) => count(v.metrics["write-records"]) },
      { title: "Skew", kind: "n", cell: (v) => uneven(v) },
      { title: "State entries", kind: "n", cell: (v) => count(v["state-entries"]) },
      { title: "Watermark", kind: "line", cell: (v) => watermark(v.watermark, { fraction: false }) },
    ], all, ""), legend()),
    subtasks(job, chosen, details),
    latency(chosen, details));
}

// The mean distance of a subtask's records from the mean, as a part of it: 0 is even.
function uneven(vertex) {
  if (vertex.parallelism < 2) return "–";
  const text = percent(vertex.skew);
  return vertex.skew > UNEVEN ? h("strong", { class: "uneven", title: "Some subtasks get many more records than others" }, text) : text;
}

function subtasks(job, vertex, details) {
  const columns = [
    { title: "Subtask", kind: "n", cell: (t) => t.subtask },
    { title: "Time", kind: "meters", cell: (t) => (t.part ? `busy ${percent(t.busy)}` : meter(t.busy, t["back-pressured"])) },
    { title: "Back pressure", cell: (t) => (t.part ? percent(t["back-pressured"]) : [badge(level(t["back-pressured"])), ` ${percent(t["back-pressured"])}`]) },
    { title: "In", kind: "n", cell: (t) => rate(t["records-in-per-second"]) },
    { title: "Out", kind: "n", cell: (t) => rate(t["records-out-per-second"]) },
    { title: "Records in", kind: "n", cell: (t) => count(t.metrics["read-records"]) },
    { title: "Records out", kind: "n", cell: (t) => count(t.metrics["write-records"]) },
    { title: "State entries", kind: "n", cell: (t) => count(t["state-entries"]) },
    { title: "Watermark", kind: "line", cell: (t) => (t.part ? "" : watermark(t.watermark)) },
    { title: "Process", kind: "line", cell: (t) => (t.part ? "" : h("span", { class: "mono" }, t.endpoint || "–")) },
  ];
  const spread = details.subtasks.length > 1 ? ["min", "median", "max"].map((part) => summary(details.aggregated.metrics, part)) : [];
  return h("section", { class: "card", "aria-label": "Subtasks" }, h("h2", {}, `Subtasks of ${vertex.name}`),
    table(columns, [...spread, ...details.subtasks], ""), legend(), heldBack(vertex, details.subtasks, ENDED.has(job.state)));
}

// A row over all subtasks, in the shape of one.
function summary(metrics, part) {
  const values = Object.fromEntries(Object.entries(metrics).map(([name, spread]) => [name, spread[part]]));
  return { ...values, metrics: values, subtask: part, part, class: "summary" };
}

// Event time is the least of all inputs: one subtask that reads nothing stops every window behind it.
function heldBack(vertex, subtasks, over) {
  const without = subtasks.filter((t) => t.watermark == null || t.watermark < -9e18);
  if (over || without.length === 0 || without.length === subtasks.length) return null;
  const which = without.length === 1 ? `Subtask ${without[0].subtask} has` : `Subtasks ${without.map((t) => t.subtask).join(", ")} have`;
  return h("p", { class: "muted small" }, `${which} no watermark yet, and event time behind ${vertex.name} waits for it. `,
    "If there is nothing for it to read, a watermark strategy with ", h("code", {}, "with_idleness"), " goes on without it.");
}

// Where the runtime measures how long records take from a source to here: half, nearly all, all but the slowest.
export function latency(vertex, details) {
  const rows = details.subtasks.flatMap((t) => (t.latency ?? []).map((pair) => ({ ...pair, subtask: t.subtask })));
  if (rows.length === 0) return null;
  const whole = (vertex.latency ?? []).map((pair) => ({ ...pair, subtask: "all", class: "summary" }));
  const shown = [...(details.subtasks.length > 1 ? whole : []), ...rows];
  const longest = Math.max(1, ...shown.map((p) => p.p99));
  const share = (ms) => `${(100 * ms) / longest}%`;
  return h("section", { class: "card", "aria-label": "Latency of the vertex" }, h("h2", {}, `Latency from sources to ${vertex.name}`), table([
    { title: "Source", kind: "wide", cell: (p) => h("span", { title: p.source }, p["source-name"]) },
    { title: "Subtask", kind: "n", cell: (p) => p.subtask },
    { title: "", kind: "hide-small", cell: (p) => h("span", { class: "meter", role: "presentation" }, h("i", { class: "half", style: { width: share(p.p50) } }),
      h("i", { class: "most", style: { width: share(p.p95 - p.p50) } }), h("i", { class: "rest", style: { width: share(p.p99 - p.p95) } })) },
    { title: "p50", kind: "n", cell: (p) => duration(p.p50) },
    { title: "p95", kind: "n", cell: (p) => duration(p.p95) },
    { title: "p99", kind: "n", cell: (p) => duration(p.p99) },
    { title: "Longest", kind: "n", cell: (p) => duration(p.max) },
    { title: "Samples", kind: "n", cell: (p) => count(p.count) },
  ], shown, ""), h("p", { class: "muted small" }, "The bar ends at p99; its parts are p50 and p95. “all” has the slowest subtask's."));
}
