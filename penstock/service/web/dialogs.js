// What can be done: each action asks in a dialog, and shows the server's words when it does not come about.

import { get, longAction, request } from "./api.js";
import { h, toast } from "./dom.js";

// A form in a modal dialog. `send` may throw: the dialog stays open with the message. Resolves when the dialog closes.
function ask({ title, fields, button, back = "Cancel", danger, send }) {
  const error = h("p", { class: "error", role: "alert" });
  const go = h("button", { class: danger ? "danger" : "primary" }, button);
  const close = h("button", { type: "button" }, back);
  const form = h("form", {}, h("h2", { id: "dialog-title" }, title), fields, error,
    h("div", { class: "buttons" }, close, go));
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
  close.addEventListener("click", () => dialog.close());
  // The button that opened it has been drawn anew since: the browser cannot give the focus back to it, we can.
  const opener = document.activeElement?.dataset?.key;
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (opener) document.querySelector(`[data-key="${CSS.escape(opener)}"]`)?.focus({ preventScroll: true });
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    error.textContent = "";
    go.disabled = true;
    go.textContent = "Working…";
    try {
      await send(new FormData(form));
      dialog.close();
    } catch (problem) {
      if (dialog.open) error.textContent = problem.message;
      else toast(`${title}: ${problem.message}`, "bad"); // it was closed meanwhile, and what was asked for went on
    } finally {
      go.disabled = false;
      go.textContent = button;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
}

const label = (text, control, hint) => h("label", {}, text, hint && h("span", { class: "hint" }, hint), control);
const check = (name, text) => h("label", { class: "check" }, h("input", { type: "checkbox", name }), text);
const folder = (name) => label("Folder", h("input", { name, placeholder: "the job's own", autocomplete: "off" }),
  "A path or URL. Empty: execution.checkpointing.savepoint-dir, or below the job's folder.");

function savepointTaken(job, path, words) {
  const resume = h("button", { type: "button", class: "tiny" }, "Resume…");
  resume.addEventListener("click", () => submitDialog({ savepoint: path, before: job.submitted }));
  toast(`${words}: ${path}`, "good", resume);
}

export function savepointDialog(job) {
  ask({
    title: "Take a savepoint", button: "Take savepoint", fields: [folder("folder")],
    async send(form) {
      const json = { "target-directory": form.get("folder").trim() || null };
      const base = `/jobs/${job.jid}/savepoints`;
      savepointTaken(job, await longAction("POST", base, base, { json }), "Savepoint");
    },
  });
}

export function stopDialog(job) {
  ask({
    title: "Stop with a savepoint", button: "Stop job",
    fields: [folder("folder"), check("drain", "Drain: let event time end first, so that every window fires")],
    async send(form) {
      const json = { targetDirectory: form.get("folder").trim() || null, drain: form.has("drain") };
      const path = await longAction("POST", `/jobs/${job.jid}/stop`, `/jobs/${job.jid}/savepoints`, { json });
      savepointTaken(job, path, "Stopped with savepoint");
    },
  });
}

export function cancelDialog(job) {
  ask({
    title: "Cancel the job", button: "Cancel job", back: "Let it run", danger: true,
    fields: [h("p", {}, `“${job.name}” ends without a savepoint. It can be resumed from its last checkpoint.`)],
    async send() {
      await request("PATCH", `/jobs/${job.jid}`, { query: { mode: "cancel" } });
      toast(`Cancelling ${job.name}`);
    },
  });
}

export function rescaleDialog(job) {
  const now = Math.max(...job.vertices.map((v) => v.parallelism));
  ask({
    title: "Rescale", button: "Rescale",
    fields: [label("Parallelism", h("input", { name: "parallelism", type: "number", min: 1, max: job.maxParallelism, value: now, required: true }),
      `From 1 to the job's max parallelism, ${job.maxParallelism}. The job takes a checkpoint and goes on from it.`)],
    async send(form) {
      const parallelism = form.get("parallelism");
      const base = `/jobs/${job.jid}/rescaling`;
      await longAction("PATCH", base, base, { query: { parallelism } });
      toast(`Rescaled ${job.name} to ${parallelism}`, "good");
    },
  });
}

function settings(text) {
  const found = {};
  for (const line of text.split("\n").map((l) => l.trim()).filter((l) => l && !l.startsWith("#"))) {
    const parts = /^([^\s:=]+)\s*[:=]\s*(.*)$/.exec(line);
    if (!parts) throw new Error(`“${line}” is not a setting: write name: value`);
    found[parts[1]] = parts[2];
  }
  return found;
}

// Words as a shell would split them: "two words" is one.
const words = (text) => [...text.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)].map((m) => m[1] ?? m[2] ?? m[3]);

// A word as `words` takes it apart again.
const quoted = (word) => (/^[^\s"']+$/.test(word) ? word : word.includes('"') ? `'${word}'` : `"${word}"`);

const HERE = "/"; // a program on the JobManager's machine: no upload has such an id

// `before`: how the job was submitted that is run again; what it was given then is in the form already.
export async function submitDialog({ savepoint = "", before = null } = {}) {
  let files;
  try {
    files = (await get("/programs")).files.filter((file) => file.name.endsWith(".py"));
  } catch (error) {
    toast(error.message, "bad");
    return;
  }
  const upload = h("input", { type: "file", name: "file", accept: ".py" });
  const here = before && !before.program;
  const stored = h("select", { name: "stored" }, here && h("option", { value: HERE, selected: true }, before.entry),
    h("option", { value: "" }, "– upload a file –"),
    files.map((f) => h("option", { value: f.id, selected: f.id === before?.program }, `${f.name} (${f.id.slice(0, 6)}, ${new Date(f.uploaded).toLocaleString("sv-SE")})`)));
  const bring = label("Python file", upload);
  const more = label("Modules it imports", h("input", { type: "file", name: "more", multiple: true, accept: ".py,.zip" }), "Modules (.py) and packages (.zip), for the program and its workers");
  const pyflink = h("input", { type: "checkbox", name: "pyflink", checked: before?.pyflink });
  const kept = (before?.pyFiles ?? []).map((file) => h("label", { class: "check" },
    h("input", { type: "checkbox", name: "kept", value: file, checked: true }), `with ${file.split("/").at(-1).replace(/^[0-9a-f]{32}_/, "")}, as before`));
  const again = () => before && stored.value === (before.program ?? HERE);
  const show = () => {
    bring.hidden = stored.value !== "";
    upload.required = stored.value === "";
    more.hidden = stored.value === HERE; // its modules are on that machine, as it is
    for (const each of kept) each.hidden = !again();
  };
  stored.addEventListener("change", show);
  show();
  const options = [["", "default"], ["spark", "Spark"], ["embedded", "embedded (one process)"]];
  ask({
    title: savepoint ? "Resume from a savepoint" : "Submit a job", button: savepoint ? "Resume" : "Submit",
    fields: [
      (here || files.length > 0) && label("Program", stored), bring,
      h("label", { class: "check" }, pyflink, h("span", {}, "PyFlink program: ", h("code", {}, "import pyflink"), " means Penstock")), more, kept,
      label("Arguments", h("input", { name: "arguments", autocomplete: "off", value: (before?.programArgsList ?? []).map(quoted).join(" ") })),
      h("div", { class: "columns" },
        label("Parallelism", h("input", { name: "parallelism", type: "number", min: 1, max: 32768, placeholder: "as the program says", value: before?.parallelism })),
        label("Runtime", h("select", { name: "runtime" }, options.map(([value, text]) => h("option", { value, selected: value === (before?.runtime ?? "") }, text))))),
      label("Savepoint or checkpoint to start from", h("input", { name: "savepoint", value: savepoint, autocomplete: "off" }), "Empty: a fresh start"),
      check("allow", "Allow state that no operator of the program claims"),
      label("Settings", h("textarea", { name: "settings", rows: 2, placeholder: "penstock.epoch.target: 2 s" },
        Object.entries(before?.flinkConfiguration ?? {}).map(([name, value]) => `${name}: ${value}`).join("\n")), "One name: value on each line"),
    ],
    async send(form) {
      const json = { programArgsList: words(form.get("arguments")), flinkConfiguration: settings(form.get("settings")), allowNonRestoredState: form.has("allow") };
      if (form.get("parallelism")) json.parallelism = Number(form.get("parallelism"));
      if (form.get("runtime")) json.runtime = form.get("runtime");
      if (form.get("savepoint").trim()) json.savepointPath = form.get("savepoint").trim();
      json.pyflink = form.has("pyflink");
      json.pyFiles = again() ? form.getAll("kept") : [];
      const added = more.hidden ? [] : form.getAll("more").filter((file) => file.name);
      for (const file of added) json.pyFiles.push(await uploaded(file));
      const { jobid } = await (stored.value === HERE
        ? request("POST", "/jobs", { json: { ...json, entry: before.entry, module: before.module } })
        : request("POST", `/programs/${encodeURIComponent(stored.value || await uploaded(form.get("file")))}/run`, { json }));
      location.hash = `#/jobs/${jobid}`;
    },
  });
}

async function uploaded(file) {
  const body = new FormData();
  // A file may be called anything here; the server takes plain names only.
  body.append("jarfile", file, file.name.replace(/[^A-Za-z0-9_.-]/g, "_").replace(/^[.-]+/, "").slice(-96));
  return (await request("POST", "/programs/upload", { form: body })).filename;
}
