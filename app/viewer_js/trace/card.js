// One step as a card: made once, and filled as its events come, so that nothing jumps while a run goes on.

import { button, el, fill } from "../shell/dom.js";
import { areaWords, sizeTitle } from "../shell/words.js";
import { viewerBridge } from "./bridge.js";
import { citedText } from "./cited.js";
import { editor } from "./editor.js";
import { Judge } from "./judge.js";
import { continuesFrom, eventsOf, secondsOf, targetOf, thoughtOf } from "./steps.js";
import { VisibleTime } from "./visible_time.js";
import { callTitle, seconds, spaced } from "./words.js";

const TITLES = {
  spoke: "Thought",
  answer: "Answer",
  unreadable: "Turn that could not be read",
  correction: "Correction by a person",
};
const SHORT_FACTS = 150;

export class Card {
  /**
   * @param {import("./steps.js").Step} step
   * @param {import("./run_view.js").RunView} view  The run that it lies in.
   * @param {{mayJudge: boolean, mayAsk: boolean, isParent: boolean}} rights  `isParent`: of the run that this goes on from.
   */
  constructor(step, view, rights) {
    Object.assign(this, { step, view, rights, drawn: {} });
    this.title = el("b", { class: "sp-step-title" });
    this.badge = el("span", { class: "sp-badge", hidden: true, title: "This body is made of rules; no trained model answered" }, "demonstration");
    this.cite = el("span", { class: "sp-step-cite", title: "How answers cite this step" });
    this.time = el("time");
    this.head = el("div", { class: "sp-step-head" }, el("span", { class: "sp-step-number" }, String(step.number)), this.title, this.badge, el("span", { class: "sp-grow" }), this.cite, this.time);
    this.thought = el("div", { class: "sp-thought", hidden: true });
    this.main = el("div", { class: "sp-step-main", hidden: true });
    this.picture = el("button", { type: "button", class: "sp-picture", hidden: true, on: { click: (event) => (event.stopPropagation(), view.enlarge(this.step)) } });
    this.call = el("code", { class: "sp-call" });
    this.facts = el("div", { class: "sp-step-facts" });
    this.chips = el("div", { class: "sp-masks" });
    this.text = el("div", { class: "sp-step-text", hidden: true });
    this.raw = el("div", { class: "sp-raw", hidden: true });
    this.foot = el("div", { class: "sp-step-foot" });
    fill(this.main, this.picture, el("div", { class: "sp-step-words" }, this.call, this.facts, this.chips));
    this.element = el(
      "article",
      {
        class: "sp-step",
        tabindex: "-1",
        "aria-label": `Step ${step.number}`,
        data: { key: step.key },
        on: { click: (event) => this.clicked(event) },
      },
      this.head,
      this.thought,
      this.main,
      this.text,
      this.foot,
      this.raw,
    );
    this.clock = new VisibleTime(this.element);
    this.makeFoot();
    this.update();
  }

  get id() {
    return `step ${this.step.number}`;
  }

  clicked({ target }) {
    if (target.closest("button, a, textarea, select, .sp-raw, .sp-editor")) return;
    // Marking words with the mouse is no click on the step.
    if (!getSelection().isCollapsed && this.element.contains(getSelection().anchorNode)) return;
    this.view.select(this.step.key, { jump: true });
  }

  makeFoot() {
    const { mayJudge, mayAsk, isParent } = this.rights;
    const spend = () => this.clock.take();
    this.judge = mayJudge && !isParent && new Judge({ runId: this.step.runId, target: () => targetOf(this.step), seconds: spend, correct: (judge) => this.correct(judge), what: this.id });
    this.thoughtJudge =
      mayJudge && !isParent && this.step.spoke && new Judge({ runId: this.step.runId, target: () => thoughtOf(this.step), seconds: spend, correct: (judge) => this.correctThought(judge), isSmall: true, what: `the thought of ${this.id}` });
    this.goOn = mayAsk && !isParent && button("Continue", () => this.openContinue(), { kind: "sp-j sp-j-quiet", hidden: true, title: mayJudge ? "Continue from here, with a correction" : "Let the model look again from here" });
    this.rawButton = button("Raw", () => this.toggleRaw(), { kind: "sp-j sp-j-quiet", "aria-expanded": "false" });
    this.slot = el("div", { class: "sp-form-slot" });
    const actions = el("div", { class: "sp-step-actions" }, this.goOn, this.rawButton);
    fill(this.foot, el("div", { class: "sp-step-row" }, this.judge && this.judge.row, actions), this.judge && this.judge.below, this.slot);
  }

  /** Draw what the step's events say now. */
  update() {
    const { step, element } = this;
    const { called, result, spoke, answer, correction } = step;
    element.dataset.kind = step.kind;
    element.classList.toggle("sp-failed", result?.payload.kind === "ToolFailed");
    element.classList.toggle("sp-parent", this.rights.isParent);
    this.title.textContent = called ? callTitle(called.payload) : TITLES[step.kind];
    this.badge.hidden = !result?.payload.body?.is_demonstration;
    const cited = (result ?? answer)?.sequence;
    this.cite.textContent = cited ? `${this.rights.isParent ? "p" : "s"}${cited}` : "";
    this.time.textContent = called && !result ? "working…" : seconds(secondsOf(step));
    this.showThought(spoke?.payload.thought ?? "");
    this.showMain();
    if (answer) this.showText(answer.payload.text, answer.payload.choice && `Option ${answer.payload.choice}`);
    else if (correction) this.showText(correction.payload.text || "Look again.");
    else if (step.kind === "unreadable") this.showText(spoke?.payload.text ?? "");
    else this.text.hidden = true;
    if (this.goOn) this.goOn.hidden = continuesFrom(step) === null;
    this.rawButton.hidden = !spoke && !called;
    this.updateJudges();
  }

  updateJudges() {
    if (this.judge) {
      // What cannot be judged alone (a thought without an act) is judged as the thought.
      this.judge.row.hidden = !targetOf(this.step);
      this.judge.update();
    }
    if (this.thoughtJudge) this.thoughtJudge.update();
  }

  showThought(words) {
    const isOwn = this.thoughtJudge && (this.step.kind === "call" || this.step.kind === "answer");
    this.thought.hidden = words === "";
    if (words === this.drawn.thought && isOwn === this.drawn.isOwn) return;
    Object.assign(this.drawn, { thought: words, isOwn });
    fill(this.thought, el("p", {}, words), isOwn && [this.thoughtJudge.row, this.thoughtJudge.below]);
  }

  showMain() {
    const { called, result } = this.step;
    this.main.hidden = !called && this.step.kind !== "unreadable";
    if (called && !this.drawn.call) {
      this.drawn.call = true;
      const { written, was_clamped: wasClamped } = called.payload;
      this.call.textContent = `${written.name} ${spaced(written.arguments)}`;
      this.call.title = this.call.textContent;
      if (wasClamped) this.call.after(el("small", { class: "sp-warned" }, "its box reached beyond the picture and was cut at the edge"));
    }
    this.call.hidden = !called;
    this.showPicture();
    if (result && this.drawn.result !== result.sequence) {
      this.drawn.result = result.sequence;
      this.showResult(result.payload);
    }
  }

  showPicture() {
    const picture = this.view.pictureOf(this.step);
    const { called, result } = this.step;
    // Room is kept for a picture that may come with the result.
    this.picture.hidden = !called || (!picture && (result !== null || called.payload.tool === "measure"));
    if (!picture || picture.index === this.drawn.picture) return;
    this.drawn.picture = picture.index;
    this.picture.setAttribute("aria-label", `Picture ${picture.index}, enlarge`);
    fill(this.picture, el("img", { src: picture.url, alt: "", draggable: "false" }));
  }

  showResult(payload) {
    if (payload.kind === "ToolFailed") {
      const isTurn = payload.tool === "";
      fill(this.facts, el("p", { class: "sp-failure" }, isTurn ? "The model was told: " : "Could not: ", payload.message), el("small", {}, payload.code));
      return;
    }
    const [first, ...rest] = payload.text.split("\n");
    const more = rest.join("\n");
    const isLong = more !== "" || first.length > SHORT_FACTS;
    const words = el("p", { class: isLong ? "sp-facts-text sp-facts-short" : "sp-facts-text" }, payload.text);
    const body = el("small", {}, `${payload.body.name} ${payload.body.version}`);
    const toggle = isLong && button("more", () => (toggle.textContent = words.classList.toggle("sp-facts-short") ? "more" : "less"), { kind: "sp-more" });
    fill(this.facts, words, el("div", { class: "sp-facts-foot" }, body, toggle));
    this.showMasks(payload);
  }

  showMasks(payload) {
    const source = this.view.panel.viewer.spacingSource();
    fill(
      this.chips,
      payload.masks.map((mask) => {
        const look = viewerBridge().maskLook(mask.mask_version_id) ?? this.view.maskLook(mask.mask_version_id);
        return el(
          "button",
          { type: "button", class: "sp-mask", title: ["Show this outline on the image", sizeTitle(source)].filter(Boolean).join("\n"), on: { click: () => this.view.select(this.step.key, { jump: true }) } },
          el("i", { style: look ? `background:${look.color}` : null }),
          el("span", { class: "sp-clip" }, look?.label || String(payload.values.label ?? "outline")),
          el("span", { class: "sp-mask-area" }, areaWords(mask.area_px, mask.area_mm2, source)),
          mask.is_resampled && el("span", {}, "resampled"),
        );
      }),
    );
    if (payload.values.is_present === false) fill(this.chips, el("span", { class: "sp-absent" }, "not present"));
  }

  /** Colours or names of masks are known now, or changed. */
  redrawMasks() {
    if (this.step.result?.payload.masks?.length) this.showMasks(this.step.result.payload);
  }

  showText(words, lead = "") {
    this.text.hidden = false;
    this.text.classList.toggle("sp-mono", this.step.kind === "unreadable");
    if (this.drawn.text === words) return;
    this.drawn.text = words;
    fill(this.text, lead && el("b", { class: "sp-choice" }, lead), this.step.answer ? citedText(words, (cited) => this.view.goToCited(this.step, cited)) : words);
  }

  toggleRaw() {
    const isOpen = this.raw.hidden;
    this.raw.hidden = !isOpen;
    this.rawButton.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) fill(this.raw, rawParts(this.step));
  }

  setSelected(isSelected) {
    this.element.classList.toggle("sp-now", isSelected);
    if (isSelected) this.element.setAttribute("aria-current", "step");
    else this.element.removeAttribute("aria-current");
  }

  /** A key's verdict: on the step, or with Shift on its thought. */
  press(verdict, { isThought }) {
    const judge = isThought ? this.thoughtJudge : this.judge;
    if (judge) judge.press(verdict);
  }

  correct(judge) {
    const { step, view } = this;
    const { called, answer } = step;
    const place = called && view.placeOf(step);
    if (place?.box && viewerBridge().editBox) {
      this.dragBox(judge, place);
      return;
    }
    if (answer) {
      const { options } = view.run;
      judge.correctText({
        label: "What should the answer be?",
        text: answer.payload.text,
        choice: options.length ? { options, chosen: judge.current?.body.corrected_choice ?? answer.payload.choice } : null,
      });
      return;
    }
    judge.correctText({ label: "What should this step have been?", text: "", placeholder: "In words, for whoever learns from it" });
  }

  dragBox(judge, place) {
    this.view.select(this.step.key, { jump: true });
    const giveUp = viewerBridge().editBox(place, (edited) => {
      judge.stopping = null;
      judge.closeForm();
      if (!edited) return;
      judge.give({
        verdict: "correct",
        corrected_box: edited.box,
        ...(edited.maskVersionId && { corrected_mask_version_id: edited.maskVersionId }),
      });
    });
    this.view.stopEditing = giveUp;
    judge.open(
      el(
        "div",
        { class: "sp-editor sp-dragging" },
        el("p", {}, "Drag the box on the image. ", el("kbd", {}, "⏎"), " keeps the new outline, ", el("kbd", {}, "Esc"), " gives up."),
        el("div", { class: "sp-judge" }, button("Give up", () => giveUp(), { kind: "sp-small sp-quiet" }), button("Write instead", () => judge.correctText({ label: "What should this step have been?", text: "" }), { kind: "sp-small sp-quiet" })),
      ),
      giveUp,
    );
  }

  correctThought(judge) {
    judge.correctText({ label: "What should it have thought?", text: this.step.spoke.payload.thought });
  }

  openContinue() {
    // A correction is a judgement: who may not judge lets the model look again.
    if (!this.rights.mayJudge) {
      this.view.panel.continueFrom(this.step, { correction: "" });
      return;
    }
    const given = this.judge?.current?.body;
    const place = given?.corrected_box ? " The box that you moved goes with it." : "";
    fill(
      this.slot,
      editor({
        label: `What is the model told here?${place}`,
        text: given?.corrected_text ?? given?.comment ?? "",
        placeholder: "A correction, or nothing: look again",
        mayBeEmpty: true,
        cancel: () => fill(this.slot),
        actions: [
          {
            label: "Continue",
            kind: "sp-primary",
            run: async ({ text }) => {
              const isBegun = await this.view.panel.continueFrom(this.step, { correction: text, ...this.correctedPlace(given) });
              if (isBegun) fill(this.slot);
            },
          },
        ],
      }),
    );
  }

  /** The box and the outline that a judgement moved, and the frame that they lie on. */
  correctedPlace({ corrected_box: box, corrected_mask_version_id: maskVersionId } = {}) {
    const place = box || maskVersionId ? this.view.placeOf(this.step) : null;
    return place ? { box: box ?? null, mask_version_id: maskVersionId ?? null, frame_index: place.frameIndex } : {};
  }

  end() {
    this.clock.end();
  }
}

function rawParts(step) {
  const { spoke, called, result } = step;
  const body = result?.payload.body;
  const part = (title, words) => words && [el("h5", {}, title), el("pre", {}, words)];
  return [
    part("As written", spoke?.payload.text),
    part("Written after it, cut and never acted on", spoke?.payload.cut),
    part("As understood, in pixels of the picture", called && Object.keys(called.payload.arguments).length > 0 && spaced(called.payload.arguments)),
    part("Result", result && (result.payload.text ?? result.payload.message)),
    part("Answered by", body && `${body.name} ${body.version}${body.sha256 ? `\nsha256 ${body.sha256}` : ""}`),
    part("Events", eventsOf(step).map((event) => event.sequence).join(", ")),
  ];
}
