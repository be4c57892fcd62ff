// The lower half of a job's view. Each tab loads what it shows, and nothing else is loaded.

import { get, longAction } from "./api.js";
import { badge, h, table, toast } from "./dom.js";
import { submitDialog } from "./dialogs.js";
import { flame } from "./flame.js";
import { state } from "./states.js";
import { bytes, clock, count, duration, ENDED, percent, rate, shortName, watermark } from "./format.js";

const meter = (busy, pressed) => [
  h("span", { class: "meter", role: "img", "aria-label": `busy ${percent(busy)}, back-pressured ${percent(pressed)}` },
    h("i", { class: "busy", style: { width: percent(busy).replace(" ", "") } }),
    h("i", { class: "pressed", style: { width: percent(pressed).replace(" ", "") } })),
  percent(busy)];

const level = (ratio) => (ratio > 0.5 ? "high" : ratio > 0.1 ? "low" : "ok");

// Each is given where it is shown: `show(…)` draws it, unless something newer has been asked for since; `stale()` says whether;
// `again()` asks at once.

async function vertices({ show }, job, selected, select) {
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
      { title: "Busy", kind: "meters", cell: (v) => meter(v.rates.busy, v.rates["back-pressured"]) },
      { title: "Back pressure", cell: (v) => badge(level(v.rates["back-pressured"])) },
      { title: "In", kind: "n", cell: (v) => rate(v.rates["records-in-per-second"]) },
      { title: "Out", kind: "n", cell: (v) => rate(v.rates["records-out-per-second"]) },
      { title: "Records in", kind: "n", cell: (v) => count(v.metrics["read-records"]) },
      { title: "Records out", kind: "n", cell: (v) => count(v.metrics["write-records"]) },
      { title: "State entries", kind: "n", cell: (v) => count(v["state-entries"]) },
      { title: "Watermark", kind: "line", cell: (v) => watermark(v.watermark) },
    ], all, "")),
    h("section", { class: "card" }, h("h2", {}, `Subtasks of ${chosen.name}`), table([
      { title: "Subtask", kind: "n", cell: (t) => t.subtask },
      { title: "Busy", kind: "meters", cell: (t) => meter(t.busy, t["back-pressured"]) },
      { title: "Back pressure", cell: (t) => [badge(level(t["back-pressured"])), ` ${percent(t["back-pressured"])}`] },
      { title: "In", kind: "n", cell: (t) => rate(t["records-in-per-second"]) },
      { title: "Out", kind: "n", cell: (t) => rate(t["records-out-per-second"]) },
      { title: "State entries", kind: "n", cell: (t) => count(t["state-entries"]) },
      { title: "Watermark", kind: "line", cell: (t) => watermark(t.watermark) },
      { title: "Process", kind: "line", cell: (t) => h("span", { class: "mono" }, t.endpoint || "–") },
    ], details.subtasks, ""), heldBack(chosen, details.subtasks, ENDED.has(job.state))));
}

// Event time is the least of all inputs: one subtask that reads nothing stops every window behind it.
function heldBack(vertex, subtasks, over) {
  const without = subtasks.filter((t) => t.watermark == null || t.watermark < -9e18);
  if (over || without.length === 0 || without.length === subtasks.length) return null;
  const which = without.length === 1 ? `Subtask ${without[0].subtask} has` : `Subtasks ${without.map((t) => t.subtask).join(", ")} have`;
  return h("p", { class: "muted small" }, `${which} no watermark yet, and event time behind ${vertex.name} waits for it. `,
    "If there is nothing for it to read, a watermark strategy with ", h("code", {}, "with_idleness"), " goes on without it.");
}

function partsOf(checkpoint, job) {
  return job.vertices.filter((v) => checkpoint.details[v.id]).flatMap((v) =>
    checkpoint.details[v.id].subtasks.map((t) => ({ ...t, vertex: v.name })));
}

let opened = null; // job and checkpoint whose subtasks are shown
const kept = new Map(); // subtasks of checkpoints that somebody opened: the server forgets them sooner, by job and checkpoint

async function checkpoints({ show, again }, job) {
  const found = await get(`/jobs/${job.jid}/checkpoints`);
  const longest = Math.max(1, ...found.history.map((c) => c.end_to_end_duration));
  const name = (c) => `${job.jid}-${c.id}`;
  const chosen = found.history.find((c) => name(c) === opened && !c.is_savepoint);
  if (chosen && !kept.has(opened)) {
    await load(job, chosen).catch((error) => { opened = null; toast(error.message, "bad"); });
  }
  // Retention deletes older checkpoints, and a running job's newest is an old one in a moment.
  const newest = ENDED.has(job.state) ? found.latest.completed?.id : null;
  const resumable = (c) => c.external_path && c.status === "COMPLETED" && (c.is_savepoint || c.id === newest);
  const cell = (c) => h("div", { class: "actions" },
    Object.keys(c.tasks).length > 0 && h("button", {
      type: "button", class: "tiny", "data-key": `subtasks-${c.id}`, "aria-expanded": String(name(c) === opened),
      "aria-label": `Subtasks of checkpoint ${c.id}`,
      onclick: () => { opened = opened === name(c) ? null : name(c); again(); },
    }, "Subtasks"),
    resumable(c) && h("button", {
      type: "button", class: "tiny", "data-key": `resume-${c.id}-${c.is_savepoint}`,
      "aria-label": `Resume from ${c.is_savepoint ? "savepoint" : "checkpoint"} ${c.id}`,
      onclick: () => submitDialog({ savepoint: c.external_path, before: job.submitted }),
    }, "Resume…"));
  show(
    h("dl", { class: "numbers" }, numbers({
      Completed: count(found.counts.completed), Failed: count(found.counts.failed), Restored: count(found.counts.restored),
      "Size, average": bytes(Math.round(found.summary.state_size.avg)), "Duration, average": duration(found.summary.end_to_end_duration.avg),
      "Duration, 99 %": duration(found.summary.end_to_end_duration.p99),
    })),
    chosen && kept.has(opened) && h("section", { class: "card" }, h("h2", {}, `Subtasks of checkpoint ${chosen.id}`), subtasksOf(job, kept.get(opened))),
    h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "History"), h("span", { class: "space" }),
      job.state === "RUNNING" && h("button", { type: "button", class: "tiny", "data-key": "checkpoint-now", onclick: () => checkpointNow(job) }, "Checkpoint now")), table([
      { title: "Id", kind: "n", cell: (c) => c.id },
      { title: "Kind", cell: (c) => (c.is_savepoint ? "savepoint" : "checkpoint") },
      { title: "State", cell: (c) => [badge(c.status), c.failure_message && h("div", { class: "error small" }, c.failure_message)] },
      { title: "Begun", kind: "moment", cell: (c) => clock(c.trigger_timestamp) },
      { title: "Size", kind: "n", cell: (c) => bytes(c.state_size) },
      { title: "Duration", kind: "n", cell: (c) => duration(c.end_to_end_duration) },
      { title: "", kind: "hide-small", cell: (c) => h("span", { class: "meter", "aria-hidden": "true" }, h("i", { class: "half", style: { width: `${(100 * c.end_to_end_duration) / longest}%` } })) },
      { title: "Alignment", kind: "n", cell: (c) => duration(c.alignment_duration) },
      { title: "", cell },
    ], found.history.slice(0, 25), "No checkpoint yet. Is execution.checkpointing.interval set?")));
}

async function checkpointNow(job) {
  const base = `/jobs/${job.jid}/checkpoints`;
  try {
    await longAction("POST", base, base, { json: {} });
    toast(`A checkpoint of ${job.name} is complete`, "good");
  } catch (error) {
    toast(error.message, "bad");
  }
}

async function load(job, checkpoint) {
  if (Object.keys(checkpoint.tasks).length === 0) return;
  const details = {};
  for (const vertex of Object.keys(checkpoint.tasks)) {
    details[vertex] = await get(`/jobs/${job.jid}/checkpoints/details/${checkpoint.id}/subtasks/${vertex}`);
  }
  kept.set(`${job.jid}-${checkpoint.id}`, { details });
  if (kept.size > 50) kept.delete(kept.keys().next().value);
}

function subtasksOf(job, found) {
  return table([
    { title: "Vertex", cell: (t) => t.vertex },
    { title: "Subtask", kind: "n", cell: (t) => t.index },
    { title: "Size", kind: "n", cell: (t) => bytes(t.state_size) },
    { title: "Stored in", kind: "n", cell: (t) => duration(t.checkpoint.async) },
    { title: "Alignment", kind: "n", cell: (t) => duration(t.alignment.duration) },
  ], partsOf(found, job), "");
}

async function exceptions({ show }, job) {
  const { exceptionHistory: { entries, truncated } } = await get(`/jobs/${job.jid}/exceptions`);
  show(h("section", { class: "card" }, h("h2", {}, "Exceptions, newest first"),
    entries.length === 0 && h("p", { class: "muted" }, "None."),
    entries.map((e, i) => h("details", { "data-key": `exception-${e.timestamp}`, open: i === 0 && job.state === "FAILED" },
      h("summary", {}, h("span", { class: "muted" }, clock(e.timestamp), " "), h("strong", {}, shortName(e.exceptionName)), " ", e.message.split("\n")[0]),
      e.taskName && h("p", { class: "muted small" }, `in ${e.taskName}`, e.endpoint && ` on ${e.endpoint}`),
      h("pre", { "data-key": `trace-${e.timestamp}`, tabindex: 0, "aria-label": "Traceback" }, e.stacktrace))),
    truncated && h("p", { class: "muted" }, "Older ones are left out.")));
}

async function configuration({ show }, job) {
  const found = await get(`/jobs/${job.jid}/config`);
  const values = Object.entries(found["execution-config"]["user-config"]).sort();
  show(h("section", { class: "card" }, h("h2", {}, "Settings"), table([
    { title: "Setting", kind: "wide", cell: ([name]) => h("code", {}, name) },
    { title: "Value", kind: "wide", cell: ([, value]) => h("code", {}, value) },
  ], values, "None besides the defaults.")));
}

async function log({ body, stale, show }, job) {
  const text = await get(`/jobs/${job.jid}/log`, { size: 65536 });
  if (stale()) return;
  const before = body.querySelector("pre");
  const following = !before || before.scrollTop + before.clientHeight >= before.scrollHeight - 4;
  show(h("section", { class: "card" }, h("h2", {}, "What the driver printed"),
    text ? h("pre", { "data-key": "log", tabindex: 0, "aria-label": "Log" }, text)
      : h("p", { class: "muted" }, "Nothing, or the job was not started by penstock.")));
  const shown = body.querySelector("pre");
  if (shown && following) shown.scrollTop = shown.scrollHeight;
}

export const numbers = (values) => Object.entries(values).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));

export const TABS = {
  vertices: ["Vertices", vertices],
  checkpoints: ["Checkpoints", checkpoints],
  flame: ["Flame graph", flame],
  exceptions: ["Exceptions", exceptions],
  state: ["State", state],
  configuration: ["Configuration", configuration],
  log: ["Log", log],
};
