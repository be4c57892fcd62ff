// Elements from data. Text is always set as text, so nothing that a job is called can become markup.

const SVG = "http://www.w3.org/2000/svg";

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((child) => child != null && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

// What a finger, the mouse or the space bar is on between press and release: a click is both on the same element.
let pressed = null;
function release() { // after the click, which comes after the release; by then something else may be pressed
  const released = pressed;
  if (released) setTimeout(() => { if (pressed === released) pressed = null; });
}
addEventListener("pointerdown", (event) => { if (event.button === 0) pressed = event.target; }, true);
addEventListener("keydown", (event) => { if (event.key === " ") pressed = event.target; }, true);
for (const end of ["pointerup", "pointercancel", "dragend", "keyup"]) addEventListener(end, release, true);
// Releases that are never told: over a menu of the browser's, in another window.
addEventListener("pointermove", (event) => { if (event.pointerType === "mouse" && event.buttons === 0) release(); }, true);
addEventListener("blur", (event) => { if (event.target === window) release(); }, true);

// New content in place of the old, with what a person has opened, closed, focused, scrolled, selected or is clicking left as
// it is: elements are recognised by their data-key.
export function update(container, ...children) {
  const selection = document.getSelection();
  if (selection && !selection.isCollapsed && container.contains(selection.anchorNode)) return; // being copied
  if (pressed && container.contains(pressed)) return;
  const focused = container.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const open = new Map([...container.querySelectorAll("details[data-key]")].map((e) => [e.dataset.key, e.open]));
  const scrolled = new Map([...container.querySelectorAll("[data-key]")]
    .filter((e) => e.scrollTop || e.scrollLeft).map((e) => [e.dataset.key, [e.scrollTop, e.scrollLeft]]));
  container.replaceChildren(...children.flat(9).filter((child) => child != null && child !== false));
  for (const element of container.querySelectorAll("[data-key]")) {
    const key = element.dataset.key;
    if (open.has(key)) element.open = open.get(key);
    if (scrolled.has(key)) [element.scrollTop, element.scrollLeft] = scrolled.get(key);
  }
  if (focused !== undefined) refocus(container, focused);
}

// What had the focus may be gone: a checkpoint that became too old, Cancel of a job that has ended. The last of its kind has it
// then, which is the nearest in a list that grows at its top, so that the next Tab goes on from there.
function refocus(container, key) {
  const named = [...container.querySelectorAll("[data-key]")];
  const kind = key.slice(0, key.indexOf("-") + 1);
  const next = named.find((e) => e.dataset.key === key) ?? (kind ? named.findLast((e) => e.dataset.key.startsWith(kind)) : null);
  next?.focus({ preventScroll: true });
}

export const badge = (state) => h("span", { class: `state ${state}` }, state);

export const numbers = (values) => Object.entries(values).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));

export function table(columns, rows, empty) {
  if (rows.length === 0) return h("p", { class: "muted" }, empty);
  const head = columns.map((c) => h("th", { scope: "col", class: c.kind }, c.title));
  const body = rows.map((row) => h("tr", { class: row.class },
    columns.map((c) => h("td", { class: c.kind, "data-label": c.title || null }, h("div", {}, c.cell(row))))));
  const key = `table-${columns.map((c) => c.title).join()}`; // where it is scrolled to, and whether it has the focus
  return h("div", { class: "scroll", "data-key": key }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export function toast(message, kind = "", ...actions) {
  const close = h("button", { type: "button", class: "tiny quiet", "aria-label": "Dismiss message" }, "✕");
  const element = h("div", { class: `toast ${kind}` }, h("p", {}, message), close, actions.length > 0 && h("div", { class: "actions" }, actions));
  close.addEventListener("click", () => element.remove());
  document.getElementById("toasts").append(element);
  if (kind !== "bad") setTimeout(() => element.remove(), 15_000);
  return element;
}
