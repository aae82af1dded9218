// Elements made from values. Text only ever becomes a text node, so nothing that a file or a person wrote can become
// markup.

const SVG = "http://www.w3.org/2000/svg";

// Paths on a 16 x 16 grid.
const ICONS = {
  search: "M7 2a5 5 0 1 1 0 10A5 5 0 0 1 7 2Zm3.7 8.7L14.5 14.5",
  upload: "M8 11V2.5M4.5 6 8 2.5 11.5 6M2.5 11.5v2h11v-2",
  folder: "M1.5 4v9h13V5.5H8L6.5 4Z",
  file: "M3.5 1.5h6l3 3v10h-9Zm6 0v3h3",
  down: "M4 6.5 8 10.5 12 6.5",
  left: "M10 3.5 5.5 8 10 12.5",
  right: "M6 3.5 10.5 8 6 12.5",
  image: "M1.5 2.5h13v11h-13Zm0 8.5 4-4 3.5 3.5 2-2 3.5 3.5M11 5.5h.01",
};

/**
 * An element with its children.
 * `props`: `class`, `on` (event listeners), `data` (dataset), anything else an attribute; false and null leave it out.
 * A child that is no node becomes text; false and null are left out.
 */
export function el(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "class") element.className = value;
    else if (name === "on") for (const [kind, listener] of Object.entries(value)) element.addEventListener(kind, listener);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...present(children));
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren(...present(children));
  return element;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "sp-icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

export function button(label, onClick, { kind = "", ...props } = {}) {
  return el("button", { type: "button", class: `sp-button ${kind}`.trim(), on: { click: onClick }, ...props }, label);
}

/** A term and what it says, or nothing where there is nothing to say. */
export function fact(term, value, { isWide = false } = {}) {
  if (value === null || value === undefined || value === "") return null;
  return el("div", { class: isWide ? "sp-fact sp-fact-wide" : "sp-fact" }, el("dt", {}, term), el("dd", {}, value));
}

function present(children) {
  return children.flat(2).filter((child) => child !== null && child !== undefined && child !== false);
}
