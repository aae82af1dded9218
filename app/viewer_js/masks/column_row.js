// One segment in the list.

import { button, el, fill } from "../shell/dom.js";
import { areaWords, sizeTitle, volumeWords } from "../shell/words.js";
import { traceBridge } from "../trace/bridge.js";
import { areaMm2, segmentTotal, voxelMm3 } from "./model.js";
import { cleanLabel, PALETTE } from "./store.js";

/** Colour, name, author, size, eye; and for whoever may edit: rename, recolour, delete, and what to do in a conflict. */
export class SegmentRow {
  #work;
  #mask;
  #number;
  #swatch = el("button", { type: "button", class: "sm-swatch" });
  #name = el("span", { class: "sm-name" });
  #about = el("small", { class: "sm-about" });
  #size = el("small", { class: "sm-size" });
  #eye = el("button", { type: "button", class: "sm-eye" });
  #colors = el("div", { class: "sm-colors", hidden: true });
  #conflict = el("div", { class: "sm-conflict", role: "alert", hidden: true });
  #input = null;
  #step;
  #wasConflicted = false;

  constructor(work, mask, number, { mayEdit }) {
    this.#work = work;
    this.#mask = mask;
    this.#number = number;
    this.#eye.addEventListener("click", () => work.toggle(mask, number));
    this.#step = el("button", { type: "button", class: "sm-step", on: { click: () => this.#showStep() } });
    const remove = el("button", { type: "button", class: "sm-remove", title: "Delete this segment; undo brings it back", on: { click: () => work.store.remove(mask, number) } }, "✕");
    this.#swatch.disabled = !mayEdit;
    this.#swatch.addEventListener("click", () => {
      this.#colors.hidden = !this.#colors.hidden;
      this.show();
    });
    if (mayEdit) {
      this.#name.addEventListener("dblclick", () => this.#rename());
      this.#name.title = "Double-click to rename (F2)";
    }
    this.element = el(
      "div",
      { class: "sm-row", role: "listitem", tabindex: "0", data: { segment: String(number) } },
      this.#swatch,
      el("div", { class: "sm-main" }, this.#name, this.#about, this.#size),
      el("div", { class: "sm-side" }, this.#eye, mayEdit && remove),
      this.#colors,
      this.#conflict,
    );
    this.element.addEventListener("click", (event) => {
      if (!event.target.closest("button, input")) work.select(mask, number);
    });
    this.element.addEventListener("keydown", (event) => {
      if (event.target !== this.element) return;
      if (event.key === "Enter" || event.key === " ") work.select(mask, number);
      else if (event.key === "F2" && mayEdit) this.#rename();
      else if (event.key === "Delete" && mayEdit) work.store.remove(mask, number);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  show() {
    const segment = this.#mask.segment(this.#number);
    const { store, isHidden, index } = this.#work;
    const { active, series } = store;
    const isActive = active?.mask === this.#mask && active.number === this.#number;
    const isVisible = segment.isVisible && !isHidden;
    this.element.toggleAttribute("aria-current", isActive);
    this.element.classList.toggle("sm-off", !isVisible);
    this.element.dataset.label = segment.label;
    this.#swatch.style.background = segment.color;
    this.#swatch.setAttribute("aria-label", `Colour of ${segment.label}`);
    if (!this.#input) this.#name.textContent = segment.label;
    this.#eye.textContent = isVisible ? "◉" : "○";
    this.#eye.setAttribute("aria-label", `${isVisible ? "Hide" : "Show"} ${segment.label}`);
    this.#eye.setAttribute("aria-pressed", String(isVisible));
    this.#showAuthor();
    this.#size.textContent = sizeText(segment, series, index);
    this.#size.title = sizeTitle(series.spacing_source) ?? "";
    if (!this.#colors.hidden) this.#showColors(segment);
    this.#showConflict(segment);
  }

  #showAuthor() {
    const { author, version, isResampled } = this.#mask;
    const who = author ? `v${version} · ${author.name}` : "not saved yet";
    const isOfStep = author?.kind === "tool" && author.run_id;
    this.#step.textContent = isOfStep ? `step s${author.sequence}` : "";
    this.#step.title = "Show the step that made it";
    const parts = [isResampled ? `${who} · resampled` : who, isOfStep ? ", " : "", isOfStep ? this.#step : ""];
    if (this.#about.textContent !== parts.map((part) => part.textContent ?? part).join("")) fill(this.#about, parts.filter((part) => part !== ""));
  }

  #showStep() {
    const { author } = this.#mask;
    if (!traceBridge().selectStepOfMask(author.run_id, author.sequence)) this.#work.store.tell("The run of that step is not in the trace of this series.");
  }

  #showColors({ color }) {
    if (this.#colors.childElementCount > 0) return;
    const choose = (wanted) => {
      this.#colors.hidden = true;
      fill(this.#colors);
      if (wanted !== color) this.#work.store.recolor(this.#mask, this.#number, wanted);
    };
    const own = el("input", { type: "color", value: color, "aria-label": "Another colour", on: { change: (event) => choose(event.target.value.toLowerCase()) } });
    fill(this.#colors, PALETTE.map((one) => el("button", { type: "button", class: "sm-swatch", style: `background:${one}`, "aria-label": `Colour ${one}`, on: { click: () => choose(one) } })), own);
  }

  #rename() {
    const { label } = this.#mask.segment(this.#number);
    const input = el("input", { class: "sm-rename", maxlength: "64", "aria-label": "Name of the segment" });
    input.value = label;
    const end = (isKept) => {
      if (this.#input !== input) return;
      this.#input = null;
      const wanted = cleanLabel(input.value);
      this.#name.textContent = isKept && wanted ? wanted : label;
      if (isKept && wanted && wanted !== label) this.#work.store.rename(this.#mask, this.#number, wanted);
    };
    input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") (end(true), this.element.focus());
      if (event.key === "Escape") (end(false), this.element.focus());
    });
    input.addEventListener("blur", () => end(true));
    this.#input = input;
    fill(this.#name, input);
    input.focus();
    input.select();
  }

  #showConflict({ label }) {
    const { isConflicted } = this.#mask;
    if (isConflicted === this.#wasConflicted) return;
    this.#wasConflicted = isConflicted;
    this.#conflict.hidden = !isConflicted;
    const { store } = this.#work;
    const settle = (way) => async () => {
      try {
        await store[way](this.#mask);
      } catch (error) {
        store.tell(error.message);
      }
    };
    fill(
      this.#conflict,
      `“${label}” was saved in another tab or by somebody else after v${this.#mask.version}. Your edit is kept here and is not saved.`,
      el("div", { class: "sp-actions" }, button("Save mine as a new segment", settle("saveMine"), { kind: "sm-small sp-primary" }), button("Take theirs", settle("takeTheirs"), { kind: "sm-small" })),
    );
  }
}

/** "412 mm² here · 31.2 ml": on this slice, and in all where the slices are a volume. */
function sizeText(segment, series, index) {
  const here = segment.pixels.get(index) ?? 0;
  const { spacing_source: source } = series;
  const area = areaWords(here, areaMm2(here, series.frames[index]?.spacing), source);
  const mm3 = voxelMm3(series);
  const parts = [];
  if (series.frames.length === 1) parts.push(area);
  else parts.push(here > 0 ? `${area} here` : "not on this slice");
  const total = segmentTotal(segment);
  if (mm3 !== null && total > 0) parts.push(volumeWords(total * mm3, source));
  else if (series.frames.length > 1 && total > 0) parts.push(`${segment.pixels.size} slices`);
  // A number stays with its unit.
  return parts.map((part) => part.replaceAll(" ", "\u00a0")).join(" · ");
}
