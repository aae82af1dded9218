// The ask box: a question, options behind a toggle, and questions to begin with.

import { button, el, fill } from "../shell/dom.js";
import { grow } from "./editor.js";
import { newKey } from "./outbox.js";

const QUESTION_ROWS = 5;

export class AskBox {
  /**
   * @param {(question: {question: string, options: string[], request_key: string}) => Promise<void>} ask  Raises `ApiError`.
   * @param {() => void} reopen  Opens the series anew, where more images came to it; what is typed stays.
   */
  constructor(ask, reopen) {
    Object.assign(this, { ask, reopen });
    this.question = el("textarea", { class: "sp-ask-text", rows: "1", maxlength: "2000", "aria-label": "Question", placeholder: "Ask about this series…" });
    this.options = el("textarea", { class: "sp-ask-text sp-ask-options", rows: "2", hidden: true, "aria-label": "Options, one a line", placeholder: "Options, one a line (up to 8)" });
    this.toggle = button("Options", () => this.toggleOptions(), { kind: "sp-small sp-quiet", "aria-expanded": "false" });
    this.send = button("Ask", () => this.submit(), { kind: "sp-small sp-primary", title: "Enter; Shift+Enter for a new line" });
    this.problem = el("p", { class: "sp-unsaved", role: "alert", hidden: true });
    this.offered = el("div", { class: "sp-offered sp-offered-over", hidden: true });
    this.words = [];
    this.pending = null;
    this.element = el(
      "form",
      { class: "sp-ask", on: { submit: (event) => event.preventDefault() } },
      this.offered,
      el("div", { class: "sp-ask-box" }, this.question, this.options, el("div", { class: "sp-ask-row" }, this.toggle, el("small", { class: "sp-grow" }, "⏎ asks"), this.send)),
      this.problem,
    );
    for (const area of [this.question, this.options]) area.addEventListener("input", () => this.changed(area));
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("focusin", () => this.showOffered());
    this.element.addEventListener("focusout", ({ relatedTarget }) => {
      if (!this.element.contains(relatedTarget)) this.offered.hidden = true;
    });
  }

  focus() {
    this.question.focus();
  }

  /** Questions to begin with, offered while the box is empty. */
  offer(words) {
    this.words = words;
    fill(this.offered, this.suggestions());
  }

  suggestions() {
    return this.words.map((words) => button(words, () => this.take(words), { kind: "sp-suggestion" }));
  }

  take(words) {
    this.question.value = words;
    this.changed(this.question);
    this.focus();
  }

  /** Another series: what was typed for the one before is not asked about this one. */
  reset() {
    this.question.value = this.options.value = "";
    this.pending = null;
    this.problem.hidden = true;
    this.changed(this.question);
  }

  changed(area) {
    grow(area, QUESTION_ROWS);
    this.showOffered();
  }

  showOffered() {
    this.offered.hidden = this.words.length === 0 || this.question.value !== "" || !this.element.contains(document.activeElement);
  }

  toggleOptions() {
    this.options.hidden = !this.options.hidden;
    this.toggle.setAttribute("aria-expanded", String(!this.options.hidden));
    if (!this.options.hidden) this.options.focus();
  }

  key(event) {
    if (event.key === "Escape") {
      document.activeElement.blur();
    } else if (event.target !== this.question || event.key !== "Enter" || event.shiftKey || event.isComposing) {
      return;
    } else {
      this.submit();
    }
    event.preventDefault();
    event.stopPropagation();
  }

  async submit() {
    const question = this.question.value.trim();
    if (question === "" || this.send.disabled) return;
    const options = this.options.hidden ? [] : this.options.value.split("\n").map((line) => line.trim()).filter(Boolean);
    const words = JSON.stringify([question, options]);
    // The same words after a lost answer are the same question.
    if (this.pending?.words !== words) this.pending = { words, request_key: newKey() };
    this.send.disabled = true;
    this.problem.hidden = true;
    try {
      await this.ask({ question, options, request_key: this.pending.request_key });
      this.reset();
      document.activeElement?.blur();
    } catch (error) {
      if (error.status === undefined) throw error;
      this.problem.hidden = false;
      const again = error.code === "series_changed" && button("Open it again", () => ((this.problem.hidden = true), this.reopen(), this.focus()), { kind: "sp-small" });
      fill(this.problem, `not asked: ${error.message} `, again);
    } finally {
      this.send.disabled = false;
    }
  }
}
