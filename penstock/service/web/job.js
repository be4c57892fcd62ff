// One job: what it is, its graph, its epochs and latencies, and a tab of details below.

import { get } from "./api.js";
import { cancelDialog, rescaleDialog, savepointDialog, stopDialog, submitDialog } from "./dialogs.js";
import { badge, h, numbers, toast, update } from "./dom.js";
import { behind, clock, count, duration, ENDED, percent, rate, settingMs, short, shortName, watermark } from "./format.js";
import { graph, hasFeedback } from "./graph.js";
import { latencies, slowest } from "./latency.js";
import { sample } from "./metrics.js";
import { TABS } from "./tabs.js";
import { timeline } from "./timeline.js";

const narrow = matchMedia("(max-width: 640px)");

export function jobView(content, id, firstTab, refreshNow) {
  const names = ["head", "note", "figures", "graph", "epochs", "latency", "body"];
  const parts = Object.fromEntries(names.map((name) => [name, h("div", {})]));
  const links = Object.entries(TABS).map(([key, [title]]) => h("a", { href: `#/jobs/${id}/${key}`, "data-tab": key }, title));
  let tab = null;
  let body = null; // of the tab that is shown: what an earlier one still loads goes nowhere
  let selected = null;
  let fixed = null; // what does not change while a job runs
  let newest = 0; // the last time that something was asked for: what is answered to an earlier one is not shown over it
  const epochs = h("section", { class: "card", "aria-label": "Epochs" }, h("h2", {}, "Epochs"), parts.epochs);
  content.replaceChildren(parts.head, parts.note, parts.figures,
    h("section", { class: "card", "aria-label": "Job graph" }, h("h2", {}, "Graph"), parts.graph), epochs,
    parts.latency, h("nav", { class: "tabs", "aria-label": "Details" }, links), parts.body);

  // Another tab of the same job: the page stays where it is, and so does the focus.
  function show(next) {
    if (next === tab) return;
    tab = next;
    for (const link of links) {
      const chosen = link.dataset.tab === tab;
      if (chosen) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      if (chosen) link.parentElement.scrollTo({ left: link.offsetLeft - link.parentElement.offsetLeft - 60 });
    }
    // A tab that is still loading, or has little to say, leaves room down to the end of the window: a page that
    // became shorter than where it is scrolled to would move under the reader.
    const below = Math.max(0, innerHeight - parts.body.getBoundingClientRect().top);
    parts.body.style.setProperty("min-height", `${below}px`);
    body = h("div", {});
    parts.body.replaceChildren(body);
  }
  const select = (vertex) => {
    selected = vertex;
    if (tab !== "vertices" && tab !== "flame") location.hash = `#/jobs/${id}/vertices`;
    refreshNow();
  };
  show(firstTab);

  return {
    title: "Job",
    job: id,
    show,
    async refresh() {
      const turn = ++newest;
      const stale = () => turn !== newest;
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
      if (stale()) return;
      update(parts.head, head(job, fixed));
      update(parts.note, notes(job, failure));
      update(parts.figures, h("dl", { class: "numbers" }, numbers(figures(job))));
      update(parts.graph, job.vertices.length
        ? [h("div", { class: "graph", "data-key": "graph" }, graph(job, { selected, onSelect: select, upright: narrow.matches, room: parts.graph.clientWidth })), legend(job)]
        : h("p", { class: "muted" }, ENDED.has(job.state) ? "The program ended without starting a job." : "The program has not started its job yet."));
      epochs.hidden = job["execution-mode"] === "pipelined" && job.epochs.length === 0; // its time is not cut into any
      update(parts.epochs, timeline(job.epochs, fixed.targetMs));
      update(parts.latency, latencies(job.latency));
      await sample(job);
      if (stale()) return;
      const view = { body, stale, show: (...children) => stale() || update(body, ...children), again: refreshNow };
      await TABS[tab][1](view, job, selected, select);
    },
  };
}

function legend(job) {
  return h("p", { class: "legend" }, h("span", { class: "sw-idle" }, "idle"), h("span", { class: "sw-busy" }, "busy"),
    h("span", { class: "sw-pressed" }, "back-pressured"), h("i", {}, "a square is a slot"),
    hasFeedback(job) && h("span", { class: "sw-feedback" }, "back to the head of an iteration, in the next epoch"));
}

// From sources to the vertices that feed nobody, where the runtime measures that.
function atEnds(job) {
  const feeding = new Set(job.plan.nodes.flatMap((node) => node.inputs.map((input) => input.id)));
  const pairs = job.vertices.filter((v) => !feeding.has(v.id)).flatMap((v) => v.latency ?? []);
  return pairs.map((pair) => ({ p50_ms: pair.p50, p99_ms: pair.p99 }));
}

const total = (value) => h("span", { title: count(value) }, short(value));

function figures(job) {
  const over = ENDED.has(job.state);
  const sources = new Set(job.plan.nodes.filter((n) => n.inputs.length === 0).map((n) => n.id));
  const read = job.vertices.filter((v) => sources.has(v.id)).reduce((sum, v) => sum + v.rates["records-in-per-second"], 0);
  const lag = over ? null : behind(job.watermark, job.now);
  const late = slowest(job.latency.length > 0 ? job.latency : atEnds(job));
  return {
    ...(over ? { "Read, on average": rate(job.totals.records_in / Math.max(0.001, job.duration / 1000)) } : { "Read now": rate(read) }),
    "Records in": [total(job.totals.records_in), job.repeated?.records_in > 0 && h("small", {}, `and ${short(job.repeated.records_in)} again`)],
    "Records out": total(job.totals.records_out),
    "Latency, p50": late ? [duration(late.p50_ms), h("small", {}, `p99 ${duration(late.p99_ms)}`)] : "–",
    Watermark: [watermark(job.watermark, { fraction: false }), lag && h("small", {}, lag)],
    "Late, dropped": total(job.totals.late_dropped), Epochs: total(job.totals.epochs),
    [over ? "Ran for" : "Running for"]: duration(job.duration),
  };
}

export function notes(job, failure) {
  const slow = job.vertices.find((v) => v.id === job.bottleneck);
  const restarts = job.drivers > 1 ? h("p", { class: "note" }, `Driver ${job.drivers}: the ones before died, and the job went on from its last checkpoint.`) : null;
  return [
    (job.notices ?? []).map((notice) => h("p", { class: "note bad", role: "alert", "data-key": `notice-${notice.key}` }, notice.text)),
    failure && h("p", { class: "note bad", role: "alert" }, h("strong", {}, shortName(failure.exceptionName)), ": ", failure.message.split("\n")[0], " ",
      h("a", { href: `#/jobs/${job.jid}/exceptions`, "data-key": "see-exceptions" }, "Details")),
    slow && h("p", { class: "note" }, "The bottleneck is ", h("strong", {}, slow.name), ": it holds epochs up, and what feeds it waits. ",
      slow.rates.committing > Math.max(0.1, slow.rates.busy) && `Its commits take ${percent(slow.rates.committing)} of the time. `,
      job.epochs.at(-1)?.admitted != null && `A source may read ${count(job.epochs.at(-1).admitted)} records an epoch now.`),
    (job["held-back"] ?? []).map((source) => h("p", { class: "note" }, "Event time has not begun: ", h("strong", {}, source.name),
      ` has no watermark in ${source.subtasks.length} of its ${source.of} subtasks, and no window fires until it has. If there is nothing for them to read, lower its parallelism, or give its watermark strategy `,
      h("code", {}, "with_idleness"), ".")),
    restarts,
  ];
}

function head(job, fixed) {
  const running = job.state === "RUNNING";
  const over = running ? null : `The job is ${job.state}.`;
  const noStorage = fixed.storage ? null : "Checkpointing is off: set execution.checkpointing.interval and a job folder.";
  const alive = !ENDED.has(job.state);
  const button = (title, action, reason, kind) => h("button", {
    type: "button", class: kind, "data-key": `action-${title}`, "aria-disabled": reason ? "true" : null, title: reason,
    onclick: () => (reason ? toast(`${title}: ${reason}`) : action(job)),
  }, `${title}…`);
  return [h("div", { class: "head" },
    h("a", { href: "#/", "data-key": "back", "aria-label": "All jobs" }, "← Jobs"), h("h1", { title: job.name }, job.name), badge(job.state),
    h("span", { class: "space" }),
    h("div", { class: "actions", role: "group", "aria-label": "Actions" },
      button("Savepoint", savepointDialog, over), button("Rescale", rescaleDialog, over ?? noStorage),
      button("Stop", stopDialog, over), alive
        ? button("Cancel", cancelDialog, job.state === "CANCELLING" ? over : null, "danger")
        : button("Resume", () => resume(job), null, "primary"))),
  h("p", { class: "muted small about" }, h("span", { class: "mono" }, job.jid),
    [`started ${clock(job["start-time"])}`, alive ? null : `ended ${clock(job["end-time"])}`,
      `${count(job.slots)} slot${job.slots === 1 ? "" : "s"}`].map((words) => words && h("span", {}, words)), mode(job))];
}

// How its subtasks run, and why so where there was a choice.
function mode(job) {
  const [name, reason] = [job["execution-mode"], job["execution-mode-reason"]];
  return name && h("span", { class: "mode" }, h("strong", {}, name), reason && `: ${reason}`);
}

// From its newest savepoint, or its newest checkpoint if it has none.
async function resume(job) {
  try {
    const { latest } = await get(`/jobs/${job.jid}/checkpoints`);
    const [a, b] = [latest.savepoint, latest.completed];
    const newest = [a, b].filter(Boolean).sort((x, y) => y.latest_ack_timestamp - x.latest_ack_timestamp)[0];
    await submitDialog({ savepoint: (a ?? newest)?.external_path ?? "", before: job.submitted });
  } catch (error) {
    toast(error.message, "bad");
  }
}
