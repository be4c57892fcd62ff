// Charts of whatever somebody wants to watch: metrics of the job, of a vertex, of the user's own functions. What is chosen is asked for
// once a second while the job's page is open, whichever tab is shown, and kept in the page.

import { get } from "./api.js";
import { chart } from "./chart.js";
import { h, update } from "./dom.js";
import { ENDED } from "./format.js";

const JOB = "job";
const MOST = 3600; // samples of each: an hour; then every second one of the older half goes
const RANGES = { 60_000: "the last minute", 300_000: "five minutes", 1_800_000: "half an hour", 0: "all there is" };
const kept = new Map(); // by job: { chosen: [{ of, metric, as }], samples: by "of metric" }
let range = 300_000;
let pointed = null; // { key, part } of the chart under the pointer

const key = ({ of, metric }) => `${of} ${metric}`;
const stored = (jid) => `penstock.charts.${jid}`;

function about(job) {
  if (!kept.has(job.jid)) {
    const remembered = JSON.parse(localStorage.getItem(stored(job.jid)) ?? "null");
    kept.set(job.jid, { chosen: remembered ?? atFirst(job), samples: new Map() });
  }
  return kept.get(job.jid);
}

// Something to see before anybody has chosen: what is read, and where it takes its time.
function atFirst(job) {
  const sources = job.plan.nodes.filter((node) => node.inputs.length === 0).slice(0, 2).map((node) => node.id);
  const ends = job.vertices.filter((v) => !sources.includes(v.id)).slice(-1).map((v) => v.id);
  return [...sources.map((of) => ({ of, metric: "numRecordsInPerSecond", as: "sum" })),
    ...[...sources, ...ends].slice(-1).map((of) => ({ of, metric: "busyTimeMsPerSecond", as: "spread" }))];
}

function keep(job, chosen) {
  about(job).chosen = chosen;
  localStorage.setItem(stored(job.jid), JSON.stringify(chosen));
}

// Called with every refresh of the job's page.
export async function sample(job) {
  if (ENDED.has(job.state) || job.vertices.length === 0) return;
  const { chosen, samples } = about(job);
  const wanted = new Map();
  for (const { of, metric } of chosen) wanted.set(of, new Set([...(wanted.get(of) ?? []), metric]));
  await Promise.all([...wanted].map(async ([of, metrics]) => {
    const names = [...metrics].join();
    const base = `/jobs/${job.jid}${of === JOB ? "" : `/vertices/${of}/subtasks`}/metrics`;
    const found = await get(base, of === JOB ? { get: names } : { get: names, agg: "min,max,avg,sum" }).catch((error) => {
      if (error.status === 404) return []; // a vertex of another run of the program
      throw error;
    });
    for (const { id, value, ...spread } of found) {
      const one = Number(value);
      const values = of === JOB ? { min: one, avg: one, max: one, sum: one } : spread;
      if (Math.abs(values.avg) > 9e18) continue; // no watermark yet, or the end of it
      const series = samples.get(key({ of, metric: id })) ?? [];
      samples.set(key({ of, metric: id }), series);
      series.push({ at: job.now, ...values });
      if (series.length > MOST) samples.set(key({ of, metric: id }), series.filter((_, i) => i > MOST / 2 || i % 2 === 0));
    }
  }));
}

export async function metrics({ body, stale, again }, job) {
  if (job.vertices.length === 0) {
    update(body, h("p", { class: "muted" }, "The program has not started its job yet."));
    return;
  }
  if (body.dataset.charts !== job.jid) { // built once: a choice half made stays as it is
    const names = h("select", { name: "metric", "data-key": "chart-metric" });
    const of = h("select", { name: "of", "data-key": "chart-of" }, h("option", { value: JOB }, "the job"),
      job.vertices.map((v) => h("option", { value: v.id }, v.name)));
    const load = async () => {
      const found = await get(`/jobs/${job.jid}${of.value === JOB ? "" : `/vertices/${of.value}/subtasks`}/metrics`);
      const before = names.value; // what was chosen while this was loading stays so
      names.replaceChildren(...found.map(({ id }) => h("option", { value: id, selected: id === before }, id)));
    };
    const span = h("select", { name: "range", onchange: (event) => { range = Number(event.target.value); again(); } },
      Object.entries(RANGES).sort(([a], [b]) => (a || Infinity) - (b || Infinity)).map(([ms, name]) => h("option", { value: ms, selected: Number(ms) === range }, name)));
    const form = h("form", { class: "chart-form" }, h("label", {}, "Of", of), h("label", {}, "Metric", names),
      h("button", { class: "primary" }, "Add chart"), h("label", {}, "Show", span));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const added = { of: of.value, metric: names.value, as: of.value === JOB || /^num|Entries$|Size$/.test(names.value) ? "sum" : "spread" };
      keep(job, [...about(job).chosen.filter((each) => key(each) !== key(added)), added]);
      again();
    });
    of.addEventListener("change", load);
    await load();
    if (stale()) return;
    body.dataset.charts = job.jid;
    body.replaceChildren(h("section", { class: "card", "aria-label": "Choose metrics" }, h("h2", {}, "Metrics"), form), h("div", { class: "charts" }));
  }
  draw(body.querySelector(".charts"), job, again);
}

function draw(container, job, again) {
  const { chosen, samples } = about(job);
  const named = new Map(job.vertices.map((v) => [v.id, v]));
  const cards = chosen.filter(({ of }) => of === JOB || named.has(of)).map((each) => {
    const series = samples.get(key(each)) ?? [];
    const to = series.at(-1)?.at ?? job.now;
    const from = range ? Math.max(to - range, Math.min(series[0]?.at ?? to, to - 60_000)) : Math.min(series[0]?.at ?? to, to - 60_000);
    const vertex = named.get(each.of);
    const name = vertex ? vertex.name : job.name;
    const as = h("select", { "aria-label": `Subtasks of ${each.metric}`, "data-key": `as-${key(each)}`,
      onchange: (event) => { keep(job, chosen.map((other) => (other === each ? { ...each, as: event.target.value } : other))); again(); } },
    [["sum", "sum"], ["spread", "min, average, max"]].map(([value, title]) => h("option", { value, selected: value === each.as }, title)));
    const remove = h("button", { type: "button", class: "tiny quiet", "data-key": `remove-${key(each)}`, "aria-label": `Remove the chart of ${each.metric}`,
      onclick: () => { keep(job, chosen.filter((other) => other !== each)); again(); } }, "✕");
    const onPoint = (part) => { if (part !== null || pointed?.key === key(each)) pointed = part === null ? null : { key: key(each), part }; };
    return h("section", { class: "card", "aria-label": `${each.metric} of ${name}` },
      h("div", { class: "head" }, h("h2", {}, each.metric), h("span", { class: "space" }), vertex?.parallelism > 1 && as, remove),
      h("p", { class: "muted small of" }, vertex ? name : "the job"),
      chart(each.metric, series, { of: each.as, from, to, pointed: pointed?.key === key(each) ? pointed.part : null, onPoint }));
  });
  update(container, cards.length ? cards : h("p", { class: "muted" }, "Choose a metric above: it is drawn from now on, and for as long as this page is open."));
}
