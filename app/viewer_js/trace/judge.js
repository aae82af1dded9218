// Accept, reject, correct and comment: the row under a step, an answer, a thought or the whole trace.

import { button, el, fill } from "../shell/dom.js";
import { editor } from "./editor.js";
import { drop, judgementsOf, retry, save } from "./outbox.js";

const WORDS = {
  accept: { now: "Accept", done: "Accepted", key: "A", tone: "sp-ok" },
  reject: { now: "Reject", done: "Rejected", key: "R", tone: "sp-bad" },
  correct: { now: "Correct", done: "Corrected", key: "C", tone: "sp-mended" },
};

/** Whether a judgement is of this target. */
function isOf({ body }, { target, sequence = null }) {
  return body.target === target && (body.sequence ?? null) === sequence;
}

/** The newest judgement of a target, or undefined. A change of mind is a newer one. */
export function newest(runId, target) {
  return judgementsOf(runId).findLast((one) => isOf(one, target));
}

/** A judgement's parts that a newer one of the same verdict repeats. */
export function correctionOf(body) {
  const names = ["corrected_text", "corrected_choice", "corrected_box", "corrected_mask_version_id"];
  return Object.fromEntries(names.filter((name) => body?.[name] != null).map((name) => [name, body[name]]));
}

export class Judge {
  /**
   * @param {object} about
   * @param {string} about.runId
   * @param {() => ({target: string, sequence?: number}|null)} about.target  Null while nothing can be judged yet.
   * @param {() => number} about.seconds  Takes the time spent.
   * @param {((judge: Judge) => void)|null} about.correct  Begins a correction; null where there is none.
   * @param {boolean} [about.isSmall]  The thought's: marks in place of words.
   * @param {string} about.what  For whoever hears the page: "step 3".
   */
  constructor({ runId, target, seconds, correct, isSmall = false, what }) {
    Object.assign(this, { runId, target, seconds, isSmall, what });
    this.beginCorrection = correct;
    this.stopping = null;
    const kinds = correct ? ["accept", "reject", "correct"] : ["accept", "reject"];
    this.buttons = kinds.map((verdict) => this.button(verdict));
    this.commentButton = button("Comment", () => this.comment(), { kind: "sp-j sp-j-quiet", "aria-label": `Comment on ${what}` });
    this.status = el("div", { class: "sp-save", role: "status" });
    this.said = el("div", { class: "sp-said", hidden: true });
    this.form = el("div", { class: "sp-form-slot" });
    this.row = el("div", { class: isSmall ? "sp-judge sp-judge-small" : "sp-judge" }, this.buttons, !isSmall && this.commentButton);
    this.below = el("div", { class: "sp-judge-below" }, this.said, this.form, this.status);
    this.update();
  }

  get current() {
    const target = this.target();
    return target && newest(this.runId, target);
  }

  button(verdict) {
    const { now, key } = WORDS[verdict];
    const marks = { accept: "✓", reject: "✕", correct: "✎" };
    const made = button(this.isSmall ? marks[verdict] : now, () => this.press(verdict), {
      kind: "sp-j",
      "aria-label": `${now} ${this.what}`,
      title: this.isSmall ? `${now} ${this.what} (Shift+${key})` : `${now} (${key})`,
      data: { verdict },
    });
    return made;
  }

  press(verdict) {
    if (!this.target()) return;
    if (verdict === "correct") this.beginCorrection?.(this);
    else this.give({ verdict });
  }

  /** Save a judgement; a comment that was made before stays with it. */
  give({ verdict, comment = this.current?.body.comment ?? "", ...rest }) {
    this.closeForm();
    save(this.runId, { ...this.target(), verdict, comment, seconds_spent: this.seconds(), ...rest });
  }

  /** Correct by writing what it should have been. */
  correctText({ label, text, placeholder, choice = null }) {
    this.open(
      editor({
        label,
        text: this.current?.body.corrected_text ?? text,
        placeholder,
        choice,
        cancel: () => this.closeForm(),
        actions: [
          {
            label: "Save correction",
            kind: "sp-primary",
            run: (value) =>
              this.give({
                verdict: "correct",
                ...(value.text !== "" && { corrected_text: value.text }),
                ...(value.choice && { corrected_choice: value.choice }),
              }),
          },
        ],
      }),
    );
  }

  comment() {
    const { current } = this;
    const keep = { label: "Save comment", run: ({ text }) => this.give({ ...bare(current.body), comment: text }) };
    const judge = ["accept", "reject"].map((verdict) => ({
      label: `${WORDS[verdict].now} with this comment`,
      run: ({ text }) => this.give({ verdict, comment: text }),
    }));
    this.open(
      editor({
        label: `Comment on ${this.what}`,
        text: current?.body.comment ?? "",
        placeholder: "What should whoever learns from this know?",
        actions: current ? [keep] : judge,
        cancel: () => this.closeForm(),
        mayBeEmpty: Boolean(current),
      }),
    );
  }

  /** @param {() => void} [stop]  Ends what the form is about, where another form or a judgement takes its place. */
  open(form, stop = null) {
    this.stopForm();
    this.stopping = stop;
    fill(this.form, form);
  }

  stopForm() {
    const { stopping } = this;
    this.stopping = null;
    stopping?.();
  }

  closeForm() {
    this.stopForm();
    const hadFocus = this.form.contains(document.activeElement);
    fill(this.form);
    if (hadFocus) this.row.closest("[tabindex]")?.focus({ preventScroll: true });
  }

  get isEditing() {
    return this.form.childElementCount > 0;
  }

  /** Draw what is judged, and whether it is saved. */
  update() {
    const target = this.target();
    const current = target && newest(this.runId, target);
    for (const made of this.buttons) {
      const { verdict } = made.dataset;
      const isGiven = current?.body.verdict === verdict;
      const { now, done, tone, key } = WORDS[verdict];
      made.disabled = !target;
      made.setAttribute("aria-pressed", String(isGiven));
      made.classList.toggle(tone, isGiven);
      if (!this.isSmall) fill(made, isGiven ? done : now, el("kbd", { "aria-hidden": "true" }, key));
    }
    this.commentButton.disabled = !target;
    this.showSaid(current?.body);
    this.showStatus(target ? judgementsOf(this.runId).filter((one) => isOf(one, target)) : []);
  }

  showSaid(body) {
    const { comment, corrected_text: text, corrected_choice: choice, corrected_box: box } = body ?? {};
    const lines = [
      choice && el("p", {}, el("b", {}, "Should be option "), choice),
      text && el("p", {}, el("b", {}, "Should be: "), text),
      box && el("p", {}, el("b", {}, "Box moved to "), box.map((edge) => Math.round(edge)).join(", ")),
      body?.corrected_mask_version_id && el("p", {}, el("b", {}, "New outline kept")),
      comment && el("p", {}, el("b", {}, "Comment: "), comment),
    ].filter(Boolean);
    this.said.hidden = lines.length === 0;
    fill(this.said, lines);
  }

  showStatus(judgements) {
    const open = judgements.find((one) => one.state === "waiting" || one.state === "refused");
    if (!open) {
      this.status.classList.remove("sp-unsaved");
      fill(this.status, judgements.some((one) => one.state === "saving") && "saving…");
      return;
    }
    this.status.classList.add("sp-unsaved");
    fill(
      this.status,
      el("span", {}, `not saved: ${open.message}`),
      button("Retry", () => retry(open), { kind: "sp-small" }),
      open.state === "refused" && button("Discard", () => drop(open), { kind: "sp-small sp-quiet" }),
    );
  }
}

/** A judgement without what the server or the next saving adds. */
function bare(body) {
  return { verdict: body.verdict, ...(Object.keys(body.marks ?? {}).length > 0 && { marks: body.marks }), ...correctionOf(body) };
}
