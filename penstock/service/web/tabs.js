// The tabs below a job's graph. Those that are more than a screen of code have a file of their own.

import { get } from "./api.js";
import { checkpoints } from "./checkpoints.js";
import { h, table } from "./dom.js";
import { flame } from "./flame.js";
import { clock, shortName } from "./format.js";
import { hosts } from "./hosts.js";
import { metrics } from "./metrics.js";
import { state } from "./states.js";
import { vertices } from "./vertices.js";

// Each is given where it is shown: `show(…)` draws it, unless something newer has been asked for since; `stale()` says whether;
// `again()` asks at once.

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

export const TABS = {
  vertices: ["Vertices", vertices],
  checkpoints: ["Checkpoints", checkpoints],
  metrics: ["Metrics", metrics],
  hosts: ["Hosts", hosts],
  flame: ["Flame graph", flame],
  exceptions: ["Exceptions", exceptions],
  state: ["State", state],
  configuration: ["Configuration", configuration],
  log: ["Log", log],
};
