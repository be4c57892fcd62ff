// Requests to the dispatcher. An error carries the server's own words.

import { h } from "./dom.js";

const AWAY = 20; // times in all that nobody answers while the end of an action is waited for
const TOKEN = "penstock.token"; // of all tabs of this address; another start of the JobManager has another one

// `penstock ui` opens the page with the token after the #, which a browser sends to nobody. It does not stay in the address.
const given = /^#token=(.+)$/.exec(location.hash);
if (given) {
  localStorage.setItem(TOKEN, decodeURIComponent(given[1]));
  history.replaceState(null, "", `${location.pathname}#/`);
}

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function request(method, path, { query, json, form } = {}) {
  const headers = {};
  const token = localStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (json !== undefined) headers["Content-Type"] = "application/json";
  const url = path + (query ? `?${new URLSearchParams(query)}` : "");
  let answer;
  try {
    answer = await fetch(url, {
      method, headers, body: json !== undefined ? JSON.stringify(json) : form, signal: AbortSignal.timeout(30_000),
    });
  } catch {
    throw new ApiError(0, "The JobManager does not answer. Is `penstock jobmanager` running?");
  }
  if (answer.status === 401) {
    await askToken(token);
    return request(method, path, { query, json, form });
  }
  const text = await answer.text();
  const isJson = (answer.headers.get("content-type") ?? "").includes("json");
  const body = isJson && text ? JSON.parse(text) : text;
  if (!answer.ok) throw new ApiError(answer.status, body.errors?.join("\n") ?? `HTTP ${answer.status} for ${path}`);
  return body;
}

export const get = (path, query) => request("GET", path, { query });

// A long action: begin it, then ask until it is over. Returns where its result is, if anywhere.
export async function longAction(method, path, status, options) {
  const { "request-id": id } = await request(method, path, options);
  let silent = 0;
  for (let wait = 100; ; wait = Math.min(wait * 1.5, 2000)) {
    const found = await get(`${status}/${id}`).catch((error) => {
      silent += 1; // a JobManager that is started again; the action goes on meanwhile
      if (error.status !== 0 || silent > AWAY) throw error;
      return { status: { id: "UNKNOWN" } };
    });
    const { status: { id: state }, operation } = found;
    if (state === "COMPLETED") {
      const failure = operation?.["failure-cause"] ?? operation?.failureCause; // Flink has both names
      if (failure) throw new ApiError(200, failure["stack-trace"]);
      return operation?.location;
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

let asking = null;

function askToken(refused) {
  if (localStorage.getItem(TOKEN) !== refused) return Promise.resolve(); // another tab, or another request, knows it by now
  asking ??= new Promise((resolve) => {
    const input = h("input", { type: "password", name: "token", autocomplete: "off", required: true });
    const dialog = h("dialog", { "aria-labelledby": "token-title" },
      h("form", { method: "dialog" },
        h("h2", { id: "token-title" }, "Token"),
        h("p", {}, "This JobManager wants its token, which is another one after each start. ", h("code", {}, "penstock ui"),
          " opens this page with it; it is also in the file ", h("code", {}, "token"), " of the JobManager's home folder."),
        h("label", {}, "Token", input),
        refused !== null && h("p", { class: "error", role: "alert" }, "That token was not accepted."),
        h("div", { class: "buttons" }, h("button", { class: "primary" }, "Continue"))));
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => {
      localStorage.setItem(TOKEN, input.value.trim());
      dialog.remove();
      asking = null;
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
  return asking;
}
