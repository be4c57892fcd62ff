// One job: what it is, its graph, its epochs, and a tab of details below.

import { get } from "./api.js";
import { cancelDialog, rescaleDialog, savepointDialog, stopDialog, submitDialog } from "./dialogs.js";
import { badge, h, toast, update } from "./dom.js";
import { clock, count, duration, rate, settingMs, watermark } from "./format.js";
import { graph } from "./graph.js";
import { numbers, TABS } from "./tabs.js";
import { timeline } from "./timeline.js";

const narrow = matchMedia("(max-width: 640px)");

export function jobView(content, id, tab, refreshNow) {
  const parts = Object.fromEntries(["head", "note", "figures", "graph", "epochs", "body"].map((name) => [name, h("div", {})]));
  const tabs = h("nav", { class: "tabs", "aria-label": "Details" }, Object.entries(TABS).map(([key, [title]]) =>
    h("a", { href: `#/jobs/${id}/${key}`, "aria-current": key === tab ? "page" : null }, title)));
  let selected = null;
  let fixed = null; // what does not change while a job runs
  content.replaceChildren(parts.head, parts.note, parts.figures,
    h("section", { class: "card", "aria-label": "Job graph" }, h("h2", {}, "Graph"), parts.graph,
      h("p", { class: "legend" }, h("span", { class: "sw-idle" }, "idle"), h("span", { class: "sw-busy" }, "busy"),
        h("span", { class: "sw-pressed" }, "back-pressured"), "a square is a slot")),
    h("section", { class: "card", "aria-label": "Epochs" }, h("h2", {}, "Epochs"), parts.epochs),
    tabs, parts.body);

  const select = (vertex) => {
    selected = vertex;
    if (tab !== "vertices") location.hash = `#/jobs/${id}/vertices`;
    refreshNow();
  };

  return {
    title: "Job",
    async refresh() {
      const job = await get(`/jobs/${id}`).catch((error) => { throw Object.assign(error, { gone: error.status === 404 }); });
      this.title = job.name;
      if (fixed === null || job.vertices.length !== fixed.vertices) {
        const checkpointing = await get(`/jobs/${id}/checkpoints/config`);
        const config = await get(`/jobs/${id}/config`);
        fixed = { vertices: job.vertices.length, storage: checkpointing.checkpoint_storage,
          targetMs: settingMs(config["execution-config"]["user-config"]["penstock.epoch.target"]) };
      }
      const failure = ["FAILED", "FAILING", "RESTARTING"].includes(job.state)
        ? (await get(`/jobs/${id}/exceptions`, { maxExceptions: 1 })).exceptionHistory.entries[0] : null;
      update(parts.head, head(job, fixed));
      update(parts.note, notes(job, failure));
      update(parts.figures, h("dl", { class: "numbers" }, numbers(figures(job))));
      update(parts.graph, job.vertices.length
        ? h("div", { class: "graph", "data-key": "graph" }, graph(job, { selected, onSelect: select, upright: narrow.matches, room: parts.graph.clientWidth }))
        : h("p", { class: "muted" }, "The program has not started its job yet."));
      update(parts.epochs, timeline(job.epochs, fixed.targetMs));
      await TABS[tab][1](parts.body, job, selected, select);
    },
  };
}

function figures(job) {
  const sources = new Set(job.plan.nodes.filter((n) => n.inputs.length === 0).map((n) => n.id));
  const read = job.vertices.filter((v) => sources.has(v.id)).reduce((sum, v) => sum + v.rates["records-out-per-second"], 0);
  return {
    "Read now": rate(read), "Records in": count(job.totals.records_in), "Records out": count(job.totals.records_out),
    Epochs: count(job.totals.epochs), Watermark: watermark(job.watermark), Late: count(job.totals.late_dropped),
    Slots: count(job.slots), Running: duration(job.duration),
  };
}

function notes(job, failure) {
  const slow = job.vertices.find((v) => v.id === job.bottleneck);
  const restarts = job.drivers > 1 ? h("p", { class: "note" }, `Driver ${job.drivers}: the ones before died, and the job went on from its last checkpoint.`) : null;
  return [
    failure && h("p", { class: "note bad", role: "alert" }, h("strong", {}, failure.exceptionName), ": ", failure.message.split("\n")[0], " ",
      h("a", { href: `#/jobs/${job.jid}/exceptions`, "data-key": "see-exceptions" }, "Details")),
    slow && h("p", { class: "note" }, "The bottleneck is ", h("strong", {}, slow.name), ": it holds epochs up, and what feeds it waits. ",
      job.epochs.at(-1)?.admitted != null && `A source may read ${count(job.epochs.at(-1).admitted)} records an epoch now.`),
    restarts,
  ];
}

function head(job, fixed) {
  const running = job.state === "RUNNING";
  const over = running ? null : `The job is ${job.state}.`;
  const noStorage = fixed.storage ? null : "Checkpointing is off: set execution.checkpointing.interval and a job folder.";
  const alive = !["FINISHED", "FAILED", "CANCELED"].includes(job.state);
  const button = (title, action, reason, kind) => h("button", {
    type: "button", class: kind, "data-key": `action-${title}`, "aria-disabled": reason ? "true" : null, title: reason,
    onclick: () => (reason ? toast(`${title}: ${reason}`) : action(job)),
  }, `${title}…`);
  return [h("div", { class: "head" },
    h("a", { href: "#/", "data-key": "back", "aria-label": "All jobs" }, "← Jobs"), h("h1", {}, job.name), badge(job.state),
    h("span", { class: "muted mono hide-small" }, job.jid), h("span", { class: "space" }),
    h("div", { class: "actions", role: "group", "aria-label": "Actions" },
      button("Savepoint", savepointDialog, over), button("Rescale", rescaleDialog, over ?? noStorage),
      button("Stop", stopDialog, over), alive
        ? button("Cancel", cancelDialog, job.state === "CANCELLING" ? over : null, "danger")
        : button("Resume", () => resume(job), null, "primary"))),
  h("p", { class: "muted small hide-small" }, `started ${clock(job["start-time"])}`, alive ? "" : `, ended ${clock(job["end-time"])}`)];
}

// From its newest savepoint, or its newest checkpoint if it has none.
async function resume(job) {
  try {
    const { latest } = await get(`/jobs/${job.jid}/checkpoints`);
    const [a, b] = [latest.savepoint, latest.completed];
    const newest = [a, b].filter(Boolean).sort((x, y) => y.latest_ack_timestamp - x.latest_ack_timestamp)[0];
    await submitDialog({ savepoint: (a ?? newest)?.external_path ?? "", program: job.program });
  } catch (error) {
    toast(error.message, "bad");
  }
}
