// Checkpoints and savepoints of a job: the history, and what its subtasks did in one of them.

import { get, longAction } from "./api.js";
import { submitDialog } from "./dialogs.js";
import { badge, h, numbers, table, toast } from "./dom.js";
import { bytes, clock, count, duration, ENDED } from "./format.js";

function partsOf(checkpoint, job) {
  return job.vertices.filter((v) => checkpoint.details[v.id]).flatMap((v) =>
    checkpoint.details[v.id].subtasks.map((t) => ({ ...t, vertex: v.name })));
}

let opened = null; // job and checkpoint whose subtasks are shown
const kept = new Map(); // subtasks of checkpoints that somebody opened: the server forgets them sooner, by job and checkpoint

export async function checkpoints({ show, again }, job) {
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
    chosen && kept.has(opened) && h("section", { class: "card", "aria-label": "Subtasks of checkpoint" }, h("h2", {}, `Subtasks of checkpoint ${chosen.id}`), subtasksOf(job, kept.get(opened))),
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

// What a runtime does not measure is in none of its subtasks, and has no column.
function subtasksOf(job, found) {
  const parts = partsOf(found, job);
  const told = (value) => parts.some((t) => value(t) > 0);
  return table([
    { title: "Vertex", kind: "wide", cell: (t) => t.vertex },
    { title: "Subtask", kind: "n", cell: (t) => t.index },
    { title: "Acknowledged", kind: "moment", cell: (t) => clock(t.ack_timestamp) },
    { title: "Duration", kind: "n", cell: (t) => duration(t.end_to_end_duration) },
    { title: "Size", kind: "n", cell: (t) => bytes(t.state_size) },
    { title: "Start delay", kind: "n", cell: (t) => duration(t.start_delay), if: (t) => t.start_delay },
    { title: "Alignment", kind: "n", cell: (t) => duration(t.alignment.duration) },
    { title: "Buffered", kind: "n", cell: (t) => bytes(t.alignment.buffered), if: (t) => t.alignment.buffered },
    { title: "Persisted", kind: "n", cell: (t) => bytes(t.alignment.persisted), if: (t) => t.alignment.persisted },
    { title: "Sync", kind: "n", cell: (t) => duration(t.checkpoint.sync), if: (t) => t.checkpoint.sync },
    { title: "Async", kind: "n", cell: (t) => duration(t.checkpoint.async) },
    { title: "", cell: (t) => t.unaligned_checkpoint && badge("unaligned"), if: (t) => Number(t.unaligned_checkpoint) },
  ].filter((column) => !column.if || told(column.if)), parts, "");
}
