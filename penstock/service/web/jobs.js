// The list of jobs.

import { get } from "./api.js";
import { badge, h, table, update } from "./dom.js";
import { clock, count, duration, ENDED } from "./format.js";

export function jobsView(content) {
  const body = h("div", {});
  update(content, h("div", { class: "head" }, h("h1", {}, "Jobs")), body);
  return {
    title: "Jobs",
    async refresh() {
      const { jobs } = await get("/jobs/overview");
      const running = jobs.filter((job) => !ENDED.has(job.state));
      const ended = jobs.filter((job) => ENDED.has(job.state));
      update(body,
        section("Running", running, h("span", {}, "No job is running. Submit one with the button above, or with ",
          h("code", {}, "penstock run --detached job.py"), ".")),
        ended.length > 0 && section("Ended", ended));
    },
  };
}

function section(title, jobs, empty) {
  return h("section", { class: "card", "aria-label": title }, h("h2", {}, `${title} (${jobs.length})`), table([
    { title: "Name", kind: "wide", cell: (j) => [
      h("a", { class: "name", href: `#/jobs/${j.jid}`, "data-key": `job-${j.jid}`, title: j.name }, j.name),
      h("div", { class: "muted mono" }, j.jid.slice(0, 12))] },
    { title: "State", cell: (j) => badge(j.state) },
    { title: "Started", kind: "moment", cell: (j) => clock(j["start-time"]) },
    { title: "Duration", kind: "n", cell: (j) => duration(j.duration) },
    { title: "Runs", cell: (j) => j["execution-mode"] ?? j.runtime },
    { title: "Slots", kind: "n", cell: (j) => count(j.slots) },
    { title: "Records in", kind: "n", cell: (j) => count(j["records-in"]) },
    { title: "Records out", kind: "n", cell: (j) => count(j["records-out"]) },
  ], jobs, empty));
}
