// Which view is shown (by the address's hash), the colours, and what is said when the server does not answer.

import { get } from "./api.js";
import { submitDialog } from "./dialogs.js";
import { h } from "./dom.js";
import { duration } from "./format.js";
import { jobView } from "./job.js";
import { jobsView } from "./jobs.js";
import { poll } from "./poll.js";
import { TABS } from "./tabs.js";

const content = document.getElementById("content");
const connection = document.getElementById("connection");
let polling = null;
let view = null;

function show() {
  const [, page, id, named] = location.hash.replace(/^#/, "").split("/");
  const tab = Object.hasOwn(TABS, named ?? "") ? named : "vertices";
  const refreshNow = () => polling?.now();
  const isJob = page === "jobs" && /^[0-9a-f]{32}$/.test(id ?? "");
  if (isJob && view?.job === id) {
    view.show(tab);
    refreshNow();
    return;
  }
  polling?.stop();
  view = isJob ? jobView(content, id, tab, refreshNow) : jobsView(content);
  scrollTo(0, 0);
  polling = poll(async () => {
    await view.refresh();
    document.title = `${view.title} – Penstock`;
    await cluster();
  }, (error, pause) => trouble(error, pause));
}

function trouble(error, pause) {
  if (error?.gone) {
    polling.stop();
    view = null;
    content.replaceChildren(h("p", { class: "note bad", role: "alert" }, error.message), h("a", { href: "#/" }, "← Jobs"));
    return;
  }
  connection.hidden = error === null;
  const words = error === null ? "" : `${error.message} Next try in ${duration(pause)}.`;
  if (connection.textContent !== words) connection.textContent = words;
  if (error !== null && !(error.status >= 0)) console.error(error);
}

async function cluster() {
  const found = await get("/overview");
  const slots = found["slots-limited"] ? `${found["slots-total"] - found["slots-available"]} of ${found["slots-total"]} slots taken` : `${found["slots-total"]} slots taken`;
  document.getElementById("cluster").textContent = `${found["jobs-running"]} running · ${found["jobs-failed"]} failed · ${slots}`;
}

// ---------------------------------------------------------------- colours

const THEMES = ["auto", "light", "dark"];
const toggle = document.getElementById("theme");

function paint(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  toggle.replaceChildren(h("span", { class: "hide-small" }, "Theme: "), theme);
  toggle.setAttribute("aria-label", `Theme: ${theme}`);
}

toggle.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(localStorage.getItem("penstock.theme") ?? "auto") + 1) % THEMES.length];
  localStorage.setItem("penstock.theme", next);
  paint(next);
});
paint(THEMES.find((theme) => theme === localStorage.getItem("penstock.theme")) ?? "auto");
document.getElementById("submit").addEventListener("click", () => submitDialog());
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); content.focus(); });
addEventListener("hashchange", show);
show();
