// A small form inside a card: a text, where options were given a choice too, and what to do with them.

import { button, el } from "../shell/dom.js";

const ROWS_AT_MOST = 8;

/**
 * @param {object} wanted
 * @param {string} wanted.label
 * @param {string} [wanted.text]
 * @param {string} [wanted.placeholder]
 * @param {{options: string[], chosen: string|null}} [wanted.choice]
 * @param {{label: string, kind?: string, run: (value: {text: string, choice: string|null}) => void}[]} wanted.actions
 *   The first is done by Ctrl+Enter.
 * @param {() => void} wanted.cancel  Esc.
 * @param {boolean} [wanted.mayBeEmpty]
 */
export function editor({ label, text = "", placeholder = "", choice = null, actions, cancel, mayBeEmpty = false }) {
  const area = el("textarea", { class: "sp-editor-text", rows: "2", "aria-label": label, placeholder, maxlength: "4000" });
  area.value = text;
  const select = choice && choiceField(choice);
  const value = () => ({ text: area.value.trim(), choice: select?.value || null });
  const run = (action) => {
    if (!mayBeEmpty && value().text === "" && !value().choice) return area.focus();
    return action.run(value());
  };
  const root = el(
    "div",
    {
      class: "sp-editor",
      on: {
        keydown(event) {
          if (event.key === "Escape") cancel();
          else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(actions[0]);
          else return;
          event.preventDefault();
          event.stopPropagation();
        },
      },
    },
    el("span", { class: "sp-editor-label" }, label),
    select,
    area,
    el(
      "div",
      { class: "sp-judge" },
      actions.map((action) => button(action.label, () => run(action), { kind: `sp-small ${action.kind ?? ""}` })),
      button("Cancel", cancel, { kind: "sp-small sp-quiet" }),
      el("small", { class: "sp-grow sp-editor-hint" }, "Ctrl ⏎"),
    ),
  );
  area.addEventListener("input", () => grow(area));
  requestAnimationFrame(() => {
    grow(area);
    area.focus({ preventScroll: true });
    area.setSelectionRange(area.value.length, area.value.length);
    root.scrollIntoView({ block: "nearest" });
  });
  return root;
}

/** A text field as high as its text, up to a few lines. */
export function grow(area, most = ROWS_AT_MOST) {
  area.style.height = "auto";
  const line = Number.parseFloat(getComputedStyle(area).lineHeight) || 18;
  area.style.height = `${Math.min(area.scrollHeight + 2, line * most + 18)}px`;
}

function choiceField({ options, chosen }) {
  const letters = options.map((option, at) => [String.fromCharCode(65 + at), option]);
  const select = el(
    "select",
    { class: "sp-input", "aria-label": "Option" },
    el("option", { value: "" }, "no option"),
    letters.map(([letter, option]) => el("option", { value: letter }, `${letter}. ${option}`)),
  );
  select.value = chosen ?? "";
  return select;
}
