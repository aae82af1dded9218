/** The keys of the viewer, and the page that lists them. */

import { make } from "./dom.js";

/** Key, and what it does; `repeat` names keys of one row that are handled together. */
const ROWS = [
  ["↑ ↓ ← →", "slice before, next"],
  ["Page up, Page down", "ten slices"],
  ["Home, End", "first, last slice"],
  ["1 – 9", "window presets"],
  ["W  Z  P  S", "drag: window, zoom, move, slices"],
  ["I", "invert"],
  ["0", "reset window, zoom and place"],
  ["F", "whole picture"],
  ["+  −", "zoom"],
  ["X", "smooth or square pixels"],
  ["Space", "play, stop"],
  ["Wheel", "slices; with Ctrl: zoom"],
  ["Right, middle button", "drag: zoom, move"],
  ["?", "this list"],
];

const STEPS = {
  ArrowUp: -1,
  ArrowLeft: -1,
  ArrowDown: 1,
  ArrowRight: 1,
  PageUp: -10,
  PageDown: 10,
  Home: -Infinity,
  End: Infinity,
};

const TOOLS = { w: "window", z: "zoom", p: "pan", s: "scroll" };

/**
 * Do what a key asks for.
 *
 * @param {KeyboardEvent} event
 * @param {import("./viewer.js").Viewer} viewer
 * @returns {boolean} Whether the key is one of ours.
 */
export function pressed(event, viewer) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const { key } = event;
  const letter = key.toLowerCase();
  if (key in STEPS) viewer.step(STEPS[key]);
  else if (/^[1-9]$/.test(key)) viewer.choose(Number(key) - 1);
  else if (letter in TOOLS) viewer.setTool(TOOLS[letter]);
  else if (letter === "i") viewer.invert();
  else if (key === "0") viewer.reset();
  else if (letter === "f") viewer.fit();
  else if (letter === "x") viewer.setSmooth(!viewer.state().smooth);
  else if (key === "+" || key === "=") viewer.setZoom(viewer.state().zoom * 1.25);
  else if (key === "-") viewer.setZoom(viewer.state().zoom / 1.25);
  else if (key === " ") viewer.toggleCine();
  else if (key === "?") viewer.toggleHelp();
  else if (key === "Escape" && viewer.isHelpOpen) viewer.toggleHelp();
  else return false;
  return true;
}

/** The list of keys, hidden at first. */
export function makeHelp() {
  const help = make("div", "sv-help", { label: "Keys of the page" });
  addKeys(help, "Keys", ROWS);
  help.setAttribute("role", "dialog");
  help.hidden = true;
  return help;
}

/** Add the keys of another part of the page to the list. */
export function addKeys(help, title, rows) {
  help.append(
    make("h4", "", { text: title }),
    ...rows.map(([key, what]) => make("div", "sv-help-row", { children: [make("kbd", "", { text: key }), make("span", "", { text: what })] })),
  );
}
