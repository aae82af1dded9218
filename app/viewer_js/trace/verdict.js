// The whole trace, in the footer: a verdict, a few marks where somebody wants to give them, a comment, and on to the
// next study.

import { button, el, fill } from "../shell/dom.js";
import { Judge } from "./judge.js";
import { VisibleTime } from "./visible_time.js";

const MARKS = [
  ["answer", "Answer right"],
  ["outlines", "Outlines right"],
  ["steps", "Steps needed"],
];
const LEVELS = [
  ["0", "no"],
  ["0.5", "partly"],
  ["1", "yes"],
];

export class TraceVerdict {
  /** @param {{runId: string, isStopped: () => boolean}} about */
  constructor({ runId, isStopped }) {
    this.element = el("div", { class: "sp-verdict" });
    this.clock = new VisibleTime(this.element);
    this.judge = new Judge({
      runId,
      target: () => (isStopped() ? { target: "trace" } : null),
      seconds: () => this.clock.take(),
      correct: null,
      what: "the whole trace",
    });
    const give = this.judge.give.bind(this.judge);
    this.judge.give = (given) => give({ ...(Object.keys(this.marks()).length > 0 && { marks: this.marks() }), ...given });
    this.selects = MARKS.map(([name, words]) => this.markField(name, words));
    this.marksSlot = el("div", { class: "sp-marks", hidden: true }, this.selects.map((select) => el("label", {}, el("span", {}, select.getAttribute("aria-label")), select)));
    this.marksButton = button("Marks", () => this.toggleMarks(), { kind: "sp-j sp-j-quiet", "aria-expanded": "false" });
    this.judge.row.append(this.marksButton);
    fill(this.element, el("div", { class: "sp-verdict-row" }, el("span", { class: "sp-verdict-title" }, "Whole trace"), this.judge.row), this.marksSlot, this.judge.below);
    this.update();
  }

  markField(name, words) {
    const select = el("select", { class: "sp-input", "aria-label": words, data: { mark: name } }, el("option", { value: "" }, "–"), LEVELS.map(([value, word]) => el("option", { value }, word)));
    select.addEventListener("change", () => {
      this.hasChosen = true;
      const { current } = this.judge;
      // With a verdict a mark is saved at once; without one it goes with the verdict.
      if (current) this.judge.give({ verdict: current.body.verdict });
    });
    return select;
  }

  marks() {
    const chosen = this.selects.filter((select) => select.value !== "");
    return Object.fromEntries(chosen.map((select) => [select.dataset.mark, Number(select.value)]));
  }

  /** Marks that wait for a verdict. */
  get hasUnsavedMarks() {
    return !this.judge.current && Object.keys(this.marks()).length > 0;
  }

  toggleMarks() {
    this.marksSlot.hidden = !this.marksSlot.hidden;
    this.marksButton.setAttribute("aria-expanded", String(!this.marksSlot.hidden));
  }

  update() {
    this.judge.update();
    const marks = this.judge.current?.body.marks ?? {};
    if (this.hasChosen && !this.judge.current) return;
    for (const select of this.selects) select.value = select.dataset.mark in marks ? String(marks[select.dataset.mark]) : "";
    if (Object.keys(marks).length > 0 && this.marksSlot.hidden) this.toggleMarks();
  }

  end() {
    this.clock.end();
  }
}
