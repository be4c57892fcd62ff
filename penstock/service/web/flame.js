// Where a vertex spends its time: a flame graph, widest is most, and the lines of code that it was seen in most often.

import { get } from "./api.js";
import { h, table } from "./dom.js";
import { clock, count, ENDED, percent } from "./format.js";

const KINDS = { full: "all time", on_cpu: "on a processor", off_cpu: "waiting" };
const NARROWEST = 0.004; // of the width: nobody could read, or hit, less
let kind = "full";
let zoomed = []; // the stack down to the place that fills the width

export async function flame({ body, show, again }, job, selected, select) {
  if (ENDED.has(job.state) || job.vertices.length === 0) {
    show(h("section", { class: "card" }, h("h2", {}, "Flame graph"),
      h("p", { class: "muted" }, "The job does not run: there is nothing to look at.")));
    return;
  }
  const busiest = [...job.vertices].sort((a, b) => b.rates.busy - a.rates.busy)[0];
  const vertex = job.vertices.find((v) => v.id === (selected ?? job.bottleneck)) ?? busiest;
  const found = await get(`/jobs/${job.jid}/vertices/${vertex.id}/flamegraph`, { type: kind });
  const version = `${vertex.id} ${kind} ${found.endTimestamp} ${zoomed.join()}`;
  if (body.querySelector("[data-version]")?.dataset.version === version) return; // what is pointed at, or read, stays
  const chooser = (name, options, value, change) => h("label", {}, name, h("select", {
    "data-key": `flame-${name}`, onchange: (event) => { zoomed = []; change(event.target.value); },
  }, options.map(([key, title]) => h("option", { value: key, selected: key === value }, title))));
  const root = found.root;
  show(h("section", { class: "card", "data-version": version },
    h("div", { class: "head" }, h("h2", {}, "Flame graph"), h("span", { class: "space" }),
      chooser("Vertex", job.vertices.map((v) => [v.id, v.name]), vertex.id, select),
      chooser("Time", Object.entries(KINDS), kind, (value) => { kind = value; again(); })),
    root === null ? h("p", { class: "muted", role: "status" }, "Looking at the running subtasks for five seconds…")
      : root.hitCount === 0 ? h("p", { class: "muted" }, `Nothing was seen ${kind === "off_cpu" ? "waiting" : "running"} in the five seconds before ${clock(found.endTimestamp)}.`)
        : [h("p", { class: "muted small" }, `${count(root.hitCount)} samples until ${clock(found.endTimestamp)}, taken every 10 ms while a subtask had something to do.`),
          h("p", { class: "legend" }, h("span", { class: "sw-job" }, "the job's code"), h("span", { class: "sw-engine" }, "Penstock"), h("span", { class: "sw-library" }, "libraries")),
          drawn(root, again)]),
  root?.hitCount > 0 && h("section", { class: "card" }, h("h2", {}, "Seen most often"), table([
    { title: "Line of code", kind: "wide", cell: (p) => h("code", {}, p.name) },
    { title: "Itself", kind: "n", cell: (p) => percent(p.own / root.hitCount) },
    { title: "", kind: "hide-small", cell: (p) => h("span", { class: "meter", "aria-hidden": "true" }, h("i", { class: "half", style: { width: `${(100 * p.own) / root.hitCount}%` } })) },
  ], hottest(root), "")));
}

// Each place is a button as wide as its part of the time, below the one that called it. Chosen, it gets the whole width.
function drawn(root, again) {
  const stack = [root];
  for (const name of zoomed) {
    const next = stack.at(-1).children.find((c) => c.stackTraceLocation === name);
    if (!next) break; // not seen any more
    stack.push(next);
  }
  const boxes = [];
  let deepest = 0;
  const box = (node, path, left, width) => {
    deepest = Math.max(deepest, path.length);
    const part = percent(node.hitCount / root.hitCount);
    const name = path.length ? node.stackTraceLocation : "all";
    boxes.push(h("button", {
      type: "button", class: `place ${path.length ? node.origin : ""}`, "data-key": `place-${path.join("/")}`,
      title: `${name}\n${part}, ${count(node.hitCount)} samples`, "aria-label": `${name}, ${part}`,
      style: { left: `${100 * left}%`, width: `${100 * width}%`, top: `${path.length * 22}px` },
      onclick: () => { zoomed = path; again(); },
    }, short(name)));
  };
  const below = (node, path, left, width) => {
    box(node, path, left, width);
    let at = left;
    for (const child of node.children) {
      const part = (width * child.hitCount) / node.hitCount;
      if (part >= NARROWEST) below(child, [...path, child.stackTraceLocation], at, part);
      at += part;
    }
  };
  const path = stack.slice(1).map((node) => node.stackTraceLocation);
  stack.slice(0, -1).forEach((node, depth) => box(node, path.slice(0, depth), 0, 1));
  below(stack.at(-1), path, 0, 1);
  return h("div", { class: "flame", role: "group", "aria-label": "Flame graph", style: { height: `${(deepest + 1) * 22}px` } }, boxes);
}

// module.Class.method:12 → Class.method:12
function short(name) {
  const parts = name.replace("<locals>.", "").split(".");
  return parts.slice(-2).filter((part, i, all) => i === all.length - 1 || /^[A-Z_<]/.test(part)).join(".");
}

function hottest(root) {
  const own = new Map();
  const visit = (node) => {
    const self = node.hitCount - node.children.reduce((sum, c) => sum + c.hitCount, 0);
    if (self > 0 && node !== root) own.set(node.stackTraceLocation, (own.get(node.stackTraceLocation) ?? 0) + self);
    node.children.forEach(visit);
  };
  visit(root);
  return [...own].map(([name, hits]) => ({ name, own: hits })).sort((a, b) => b.own - a.own).slice(0, 10);
}
