// The segments column: what is outlined, by whom and how large, and what the tool in the hand needs.

import { button, el, fill } from "../shell/dom.js";
import { BrushPanel } from "./column_brush.js";
import { PromptPanel } from "./column_prompt.js";
import { SegmentRow } from "./column_row.js";

/** The upper part of the case page's side column. */
export class Column {
  element = el("section", { class: "sm-column", "aria-label": "Segments" });
  #work;
  #mayEdit;
  #rows = new Map();
  #list = el("div", { class: "sm-list", role: "list" });
  #empty = el("p", { class: "sp-dim sm-empty" });
  #notice = el("p", { class: "sm-notice", role: "alert", hidden: true });
  #hide;
  #opacity;
  #undo;
  #redo;
  #prompt;
  #brush;

  /**
   * @param {import("./workspace.js").MaskWorkspace} work
   * @param {{mayEdit: boolean}} options
   */
  constructor(work, { mayEdit }) {
    this.#work = work;
    this.#mayEdit = mayEdit;
    const small = (label, title, action) => button(label, action, { kind: "sm-small", title });
    this.#hide = small("Hide all", "Hide or show all segments (V)", () => work.toggleAll());
    this.#undo = small("↶", "Undo (Ctrl+Z)", () => work.undo());
    this.#redo = small("↷", "Redo (Ctrl+Y)", () => work.redo());
    for (const [made, name] of [[this.#undo, "Undo"], [this.#redo, "Redo"]]) made.setAttribute("aria-label", name);
    this.#opacity = el("input", {
      type: "range", min: "0", max: "100", value: String(Math.round(work.opacity * 100)), class: "sm-range", "aria-label": "Opacity of the segments", title: "Opacity",
      on: { input: (event) => work.setOpacity(Number(event.target.value) / 100) },
    });
    this.#prompt = new PromptPanel(work);
    this.#brush = new BrushPanel(work);
    const tools = mayEdit ? [small("+ Add", "An empty segment to paint on", () => work.store.add()), this.#undo, this.#redo] : [];
    fill(
      this.element,
      el(
        "div",
        { class: "sm-part" },
        el("div", { class: "sm-head" }, el("h4", {}, "Segments"), el("span", { class: "sp-grow" }), tools),
        this.#list,
        this.#empty,
        el("div", { class: "sm-look" }, this.#opacity, this.#hide),
        this.#notice,
      ),
      mayEdit && el("div", { class: "sm-part sm-tools" }, this.#brush.element, this.#prompt.element),
    );
    this.show();
  }

  /** Write what changed. Rows stay the same elements, so that nothing jumps and no field loses its caret. */
  show() {
    const { store } = this.#work;
    this.element.hidden = store.series === null;
    if (!store.series) {
      this.#rows.clear();
      fill(this.#list);
      return;
    }
    this.#showRows(store);
    const isEmpty = this.#rows.size === 0;
    this.#empty.hidden = !isEmpty && !store.problem;
    this.#empty.textContent = store.problem
      ? `The segments did not load: ${store.problem.message}`
      : this.#mayEdit ? "None yet. Paint with the brush, prompt with a box or a point, or ask the model." : "None yet.";
    this.#opacity.parentElement.hidden = isEmpty;
    this.#hide.textContent = this.#work.isHidden ? "Show all" : "Hide all";
    this.#undo.disabled = !store.history.canUndo;
    this.#redo.disabled = !store.history.canRedo;
    this.#notice.hidden = store.notice === "";
    this.#notice.textContent = store.notice;
    if (!this.#mayEdit) return;
    this.#brush.show();
    this.#prompt.show();
  }

  /** Lead the eye to a mask's row. */
  flash(mask) {
    this.show();
    const row = this.#rows.get(`${mask.key} ${mask.segments[0].number}`);
    row?.element.scrollIntoView({ block: "nearest" });
    row?.element.animate([{ background: "#2b5f7d" }, {}], { duration: 700 });
  }

  #showRows({ rows }) {
    const keys = new Set();
    const elements = rows.map(({ mask, segment }) => {
      const key = `${mask.key} ${segment.number}`;
      keys.add(key);
      if (!this.#rows.has(key)) this.#rows.set(key, new SegmentRow(this.#work, mask, segment.number, { mayEdit: this.#mayEdit }));
      const row = this.#rows.get(key);
      row.show();
      return row.element;
    });
    for (const key of this.#rows.keys()) if (!keys.has(key)) this.#rows.delete(key);
    const isSame = elements.length === this.#list.children.length && elements.every((element, at) => this.#list.children[at] === element);
    if (!isSame) fill(this.#list, elements);
  }
}
