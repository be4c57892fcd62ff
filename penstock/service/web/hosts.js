// The processes that a job's subtasks run in, by host: their memory, how busy they are, and what they print.

import { get } from "./api.js";
import { h, table } from "./dom.js";
import { bytes, clock, count, ENDED, percent } from "./format.js";

let opened = null; // the process whose log is shown

export async function hosts({ body, stale, show, again }, job) {
  if (ENDED.has(job.state)) {
    show(h("section", { class: "card" }, h("h2", {}, "Hosts"), h("p", { class: "muted" }, "The job does not run: its processes are gone.")));
    return;
  }
  const { taskmanagers } = await get("/taskmanagers", { job: job.jid });
  const chosen = taskmanagers.find((t) => t.id === opened);
  const text = chosen && await get(`/taskmanagers/${encodeURIComponent(chosen.id)}/log`, { size: 65536 });
  if (stale()) return;
  const before = body.querySelector("pre");
  const following = !before || before.scrollTop + before.clientHeight >= before.scrollHeight - 4;
  const used = (t) => 1 - t.hardware.freeMemory / t.hardware.physicalMemory;
  const sorted = [...taskmanagers].sort((a, b) => a.id.localeCompare(b.id, undefined, { numeric: true }));
  show(
    h("section", { class: "card", "aria-label": "Hosts" }, h("h2", {}, `Hosts (${new Set(sorted.map((t) => t.host)).size})`), table([
      { title: "Process", kind: "wide", cell: (t) => h("span", { class: "mono" }, t.id) },
      { title: "Memory", kind: "n", cell: (t) => (t.usedMemory ? bytes(t.usedMemory) : "–") },
      { title: "Its host's memory", kind: "meters", cell: (t) => (t.hardware.physicalMemory ? [
        h("span", { class: "meter", role: "img", "aria-label": `${percent(used(t))} of the host's memory is taken` }, h("i", { class: "half", style: { width: `${100 * used(t)}%` } })),
        h("span", { class: "parts" }, `${bytes(t.hardware.freeMemory)} of ${bytes(t.hardware.physicalMemory)} free`)] : "–") },
      { title: "Processors", kind: "n", cell: (t) => (t.hardware.cpuCores ? count(t.hardware.cpuCores) : "–") },
      { title: "Subtasks", kind: "n", cell: (t) => h("span", { title: t.subtasks.map((s) => `${s.name} ${s.subtask}`).join("\n") }, count(t.subtasks.length)) },
      { title: "Busy", kind: "n", cell: (t) => percent(t.subtasks.reduce((sum, s) => sum + s.busy, 0)) },
      { title: "Last heard of", kind: "moment", cell: (t) => clock(t.timeSinceLastHeartbeat) },
      { title: "", cell: (t) => h("button", { type: "button", class: "tiny", "data-key": `log-${t.id}`, "aria-expanded": String(t.id === opened), "aria-label": `Log of ${t.id}`,
        onclick: () => { opened = opened === t.id ? null : t.id; again(); } }, "Log") },
    ], sorted, "No process has told of itself yet."),
    h("p", { class: "muted small" }, "Busy is the sum over the subtasks of the process: 100 % is all of one processor.")),
    chosen && h("section", { class: "card", "aria-label": "Log of a process" }, h("h2", {}, `Log of ${chosen.id}`),
      h("p", { class: "muted small" }, "A slot prints where its executor does: on this machine that is the driver's log, on a cluster the executor's, which Spark's page shows."),
      text ? h("pre", { "data-key": "host-log", tabindex: 0, "aria-label": "Log" }, text) : h("p", { class: "muted" }, "Nothing has been printed here.")));
  const shown = body.querySelector("pre");
  if (shown && following) shown.scrollTop = shown.scrollHeight;
}
