// Parts that Python fills: a table of rows and a line that says what happened.

import { el, fill } from "./dom.js";

/** The JSON that Python sent, or nothing yet. */
function read({ value }) {
  return value ? JSON.parse(value) : {};
}

/** `value`: {columns: [..], rows: [[..]], empty}. */
export function mountTable(root, { props, watch }) {
  const show = () => {
    const { columns = [], rows = [], empty = "" } = read(props);
    if (rows.length === 0) {
      fill(root, el("p", { class: "sp-dim" }, empty));
      return;
    }
    fill(
      root,
      el(
        "table",
        { class: "sp-table" },
        el("thead", {}, el("tr", {}, columns.map((title) => el("th", {}, title)))),
        el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value) => el("td", {}, String(value ?? "")))))),
      ),
    );
  };
  watch("value", show);
  show();
}

/** `value`: {text, tone: "ok" | "problem"} or empty. */
export function mountNotice(root, { props, watch }) {
  root.setAttribute("role", "status");
  const show = () => {
    const { text = "", tone = "" } = read(props);
    root.textContent = text;
    root.dataset.tone = tone;
  };
  watch("value", show);
  show();
}
