// What a job keeps: a state is chosen, and some of its entries, or what one key has, are shown as of the newest checkpoint.

import { get } from "./api.js";
import { h, table } from "./dom.js";
import { clock, count, watermark } from "./format.js";

const operator = (kind) => kind.startsWith("operator") || kind === "broadcast"; // belongs to a subtask, not to a key

// A form that stays as it was typed: built once, when the tab is opened, and again while there is nothing to choose from.
export async function state({ body, stale, show }, job) {
  if (body.dataset.form === job.jid) return;
  const found = await get(`/jobs/${job.jid}/states`);
  if (stale() || body.dataset.form === job.jid) return;
  const own = found.states.filter((each) => !each.internal); // what the engine keeps for itself says nothing to a person
  if (own.length === 0) {
    show(h("section", { class: "card" }, h("h2", {}, "State"),
      h("p", { class: "muted" }, "There is no checkpoint with state in it yet.")));
    return;
  }
  body.dataset.form = job.jid;
  const states = own.sort((a, b) => operator(a.kind) - operator(b.kind));
  const which = h("select", { name: "state", required: true },
    states.map((each, i) => h("option", { value: i }, `${each.uid} · ${each.name}${each.kind === each.name ? "" : ` (${each.kind})`}`)));
  const key = h("input", { name: "key", autocomplete: "off", placeholder: '"user-1", 17 or [1, "a"]' });
  const answer = h("div", { role: "status", "aria-live": "polite" });
  const form = h("form", { class: "state-form" }, h("label", {}, "State", which),
    h("label", {}, "Key, as JSON (empty: some of all)", key), h("button", { class: "primary" }, "Look up"));
  let asked = null; // the newest question: an answer to one before it comes too late
  const look = async () => {
    const chosen = states[which.value];
    key.disabled = operator(chosen.kind);
    const query = { uid: chosen.uid, name: chosen.name, ...(key.value.trim() && !key.disabled ? { key: key.value } : {}) };
    asked = query;
    let shown;
    try {
      const found = await get(`/jobs/${job.jid}/state`, query);
      shown = found.entries ? entries(found) : one(chosen, query.key, found);
    } catch (error) {
      shown = [h("p", { class: "error" }, error.message)];
    }
    if (asked === query) answer.replaceChildren(...shown);
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); look(); });
  which.addEventListener("change", look);
  body.replaceChildren(h("section", { class: "card" }, h("h2", {}, "State"), form, answer));
  await look();
}

const asOf = (words) => h("p", { class: "muted small" }, `${words}, asked at ${clock(Date.now())}`);

function one(chosen, key, shown) {
  return [asOf(`${chosen.name} of ${key} as of the newest checkpoint`),
    h("pre", { tabindex: 0, "aria-label": "Value" }, shown.text === "None" ? "None: nothing is kept for this key" : shown.text),
    shown.shortened && h("p", { class: "muted small" }, "Only its beginning is shown.")].filter(Boolean);
}

function entries({ checkpoint, kind, entries: found, more }) {
  const timers = kind.startsWith("timer");
  const words = `${more ? "The first " : ""}${count(found.length)} ${found.length === 1 ? "entry" : "entries"} in checkpoint ${checkpoint}`;
  const columns = [
    { title: "Key", kind: "wide", cell: (e) => h("code", {}, e.key) },
    { title: "Window", kind: "line", cell: (e) => (e.window ? e.window.map((end) => watermark(end, { fraction: end % 1000 !== 0 })).join(" – ") : e.namespace ?? "–") },
    { title: timers ? "Fires at" : "Value", kind: "wide", cell: (e) => (timers ? watermark(Number(e.text)) : h("code", {}, e.text)) },
  ].filter((c) => (c.title === "Window" ? found.some((e) => e.namespace != null) : c.title !== "Key" || !operator(kind)));
  const cut = found.some((e) => e.shortened) && h("p", { class: "muted small" }, "What ends with … is only the beginning: look up its key to see more.");
  return [asOf(words), table(columns, found, "Nothing is kept."), cut].filter(Boolean);
}
