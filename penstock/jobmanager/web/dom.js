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

// New content in place of the old, with what a person has opened, focused, scrolled or selected left as it is:
// elements are recognised by their data-key.
export function update(container, ...children) {
  const selection = document.getSelection();
  if (selection && !selection.isCollapsed && container.contains(selection.anchorNode)) return; // being copied
  const focused = container.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const open = new Set([...container.querySelectorAll("details[open][data-key]")].map((e) => e.dataset.key));
  const scrolled = new Map([...container.querySelectorAll("[data-key]")]
    .filter((e) => e.scrollTop || e.scrollLeft).map((e) => [e.dataset.key, [e.scrollTop, e.scrollLeft]]));
  container.replaceChildren(...children.flat(9).filter((child) => child != null && child !== false));
  for (const element of container.querySelectorAll("[data-key]")) {
    const key = element.dataset.key;
    if (open.has(key)) element.open = true;
    if (scrolled.has(key)) [element.scrollTop, element.scrollLeft] = scrolled.get(key);
    if (key === focused && focused !== undefined) element.focus({ preventScroll: true });
  }
}

export const badge = (state) => h("span", { class: `state ${state}` }, state);

export function table(columns, rows, empty) {
  if (rows.length === 0) return h("p", { class: "muted" }, empty);
  const head = columns.map((c) => h("th", { scope: "col", class: c.kind }, c.title));
  const body = rows.map((row) => h("tr", { class: row.class },
    columns.map((c) => h("td", { class: c.kind, "data-label": c.title || null }, h("div", {}, c.cell(row))))));
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export function toast(message, kind = "", ...actions) {
  const close = h("button", { type: "button", class: "tiny quiet", "aria-label": "Dismiss message" }, "✕");
  const element = h("div", { class: `toast ${kind}` }, h("p", {}, message), close, actions.length > 0 && h("div", { class: "actions" }, actions));
  close.addEventListener("click", () => element.remove());
  document.getElementById("toasts").append(element);
  if (kind !== "bad") setTimeout(() => element.remove(), 15_000);
  return element;
}
