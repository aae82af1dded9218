// The prompt: finding by name, and the preview with what is known of it.

import { button, el, fill } from "../shell/dom.js";
import { areaWords } from "../shell/words.js";
import { areaMm2 } from "./model.js";
import { promptProblem } from "./prompts.js";

let made = 0;

const seconds = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

const bodyText = ({ name, version, is_demonstration: isDemonstration }) => `${name} ${version}${isDemonstration ? " (demonstration)" : ""}`;

export class PromptPanel {
  #work;
  #said = el("div", { class: "sm-said", role: "status" });
  #names = el("datalist", {});
  #field;
  #shown = "";

  /** @param {import("./workspace.js").MaskWorkspace} work */
  constructor(work) {
    this.#work = work;
    made += 1;
    this.#names.id = `sm-names-${made}`;
    this.#field = el("input", { class: "sp-input sm-field", placeholder: "Find by name…", maxlength: "80", list: this.#names.id, "aria-label": "Find by name", autocomplete: "off" });
    this.#field.addEventListener("focus", () => work.prompting.prompts.learnNames());
    this.#field.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter" && this.#field.value.trim()) this.#find();
      if (event.key === "Escape") this.#field.blur();
    });
    this.element = el("div", { class: "sm-panel" }, el("h4", {}, "Prompt"), this.#field, this.#names, this.#said);
  }

  show() {
    const { prompting, index } = this.#work;
    const { state, known, problem } = prompting.prompts;
    if (known) this.#showNames(known);
    // Drawn anew when something changed, so that a button is not taken away under the hand.
    const look = JSON.stringify([state.phase, state.prompt, state.elapsedMs, state.problem?.message, problem?.message, known?.concepts, prompting.isOn, prompting.isAccepting, prompting.wish, prompting.editing?.step, this.#targetLabel(), state.prompt && state.prompt.frame_index === index]);
    if (look === this.#shown) return;
    this.#shown = look;
    fill(this.#said, this.#content(state, problem));
  }

  #find() {
    this.#work.prompting.find(this.#field.value.trim());
    this.#field.blur();
    this.#work.viewer.parts.surface.focus({ preventScroll: true });
  }

  #showNames({ concepts }) {
    if (this.#names.childElementCount === concepts.length) return;
    fill(this.#names, concepts.map((concept) => el("option", { value: concept })));
    this.#field.placeholder = concepts.length > 0 ? `Find by name: ${concepts.slice(0, 3).join(", ")}…` : "nothing is found by name here";
  }

  #targetLabel() {
    const { prompting, store } = this.#work;
    return prompting.target ? store.activeSegment.label : null;
  }

  #content(state, problem) {
    const { prompting } = this.#work;
    const what = this.#what(state.prompt);
    const hint = prompting.editing ? this.#editing(prompting.editing.step) : null;
    const end = el("div", { class: "sp-actions" }, button("Cancel", () => prompting.reject(), { kind: "sm-small" }));
    switch (state.phase) {
      case "asking":
        return [hint, el("p", {}, `${what} Asking…`), end];
      case "absent":
        return [hint, el("p", {}, `${what} ${state.prompt.concept ? "Not present here" : "Nothing found"}, says ${bodyText(state.preview.body)}.`), end];
      case "failed":
        return [hint, el("p", { class: "sm-problem", role: "alert" }, promptProblem(state.problem)), this.#afterFailure(prompting)];
      case "ready":
        return [hint, ...this.#ready(state, what)];
      default:
        if (problem) return [hint, el("p", { class: "sm-problem" }, promptProblem(problem)), el("div", { class: "sp-actions" }, button("Try again", () => (prompting.isOn ? prompting.picked() : prompting.prompts.learnNames()), { kind: "sm-small" }))];
        if (hint) return [hint, end];
        return prompting.isOn ? el("p", { class: "sp-dim" }, this.#howTo()) : null;
    }
  }

  #howTo() {
    return this.#work.viewer.state().tool === "box" ? "Drag a box around what is to be outlined." : "Click on what is to be outlined; Shift or Alt click on what is not.";
  }

  #editing({ sequence, box }) {
    return el("p", {}, box ? `Correcting the box of step ${sequence}: drag its edges, corners or inside.` : "");
  }

  #afterFailure(prompting) {
    return el(
      "div",
      { class: "sp-actions" },
      button("Try again", () => prompting.prompts.again(), { kind: "sm-small" }),
      prompting.editing && button("Keep the box alone", () => prompting.keepBox(), { kind: "sm-small" }),
      button("Cancel", () => prompting.reject(), { kind: "sm-small" }),
    );
  }

  #ready({ prompt, preview, elapsedMs }, what) {
    const { prompting, store, index } = this.#work;
    const { frames, spacing_source: source } = store.series;
    const facts = [
      preview.score !== null && `score ${preview.score.toFixed(2)}`,
      areaWords(preview.area_px, areaMm2(preview.area_px, frames[prompt.frame_index].spacing), source, { isShort: false }),
      seconds(elapsedMs),
    ].filter(Boolean);
    const isHere = prompt.frame_index === index;
    return [
      el("p", {}, what),
      el("p", { class: "sp-dim" }, facts.join(" · ")),
      el("p", { class: "sp-dim" }, bodyText(preview.body)),
      this.#where(prompting),
      el(
        "div",
        { class: "sp-actions" },
        button([isHere ? "Keep" : "Show it", el("kbd", {}, "⏎")], () => prompting.accept(), { kind: "sm-small sm-accept", disabled: prompting.isAccepting }),
        button(["Drop", el("kbd", {}, "Esc")], () => prompting.reject(), { kind: "sm-small sm-reject", disabled: prompting.isAccepting }),
      ),
    ];
  }

  /** Where an accept goes, and the other way. */
  #where(prompting) {
    const { activeSegment } = this.#work.store;
    if (prompting.editing) return el("p", { class: "sp-dim" }, "kept, it is the next version of the step's mask");
    const onto = this.#targetLabel();
    const turn = (wish) => () => {
      prompting.wish = wish;
      this.show();
      this.#work.overlay.schedule();
    };
    if (onto !== null) return el("p", { class: "sp-dim" }, `into “${onto}” on this slice · `, el("button", { type: "button", class: "sm-step", on: { click: turn("new") } }, "as a new segment"));
    if (!activeSegment) return el("p", { class: "sp-dim" }, "as a new segment");
    return el("p", { class: "sp-dim" }, "as a new segment · ", el("button", { type: "button", class: "sm-step", on: { click: turn("active") } }, `instead of this slice of “${activeSegment.label}”`));
  }

  #what(prompt) {
    if (!prompt) return "";
    const { frames, kind } = this.#work.store.series;
    const where = frames.length > 1 ? ` on ${kind === "multiframe" ? "frame" : "slice"} ${prompt.frame_index + 1}` : "";
    if (prompt.concept) return `“${prompt.concept}”${where}.`;
    return prompt.box ? `Box${where}.` : `${prompt.points.length === 1 ? "1 point" : `${prompt.points.length} points`}${where}.`;
  }
}
