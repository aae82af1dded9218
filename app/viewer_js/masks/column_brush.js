// The size of the brush, shown while it or the eraser is in the hand.

import { el } from "../shell/dom.js";
import { sizeTitle } from "../shell/words.js";

const round = (value) => (value < 10 ? value.toFixed(1) : String(Math.round(value)));

export class BrushPanel {
  #work;
  #title = el("h4", {});
  #value = el("span", { class: "sm-value" });
  #onto = el("p", { class: "sp-dim" });
  #range = el("input", { type: "range", min: "0", max: "1000", class: "sm-range", "aria-label": "Radius of the brush" });

  /** @param {import("./workspace.js").MaskWorkspace} work */
  constructor(work) {
    this.#work = work;
    // Along a curve: the small sizes have most of the way.
    this.#range.addEventListener("input", () => {
      const { least, most } = work.painting.limits;
      work.painting.radius = least * (most / least) ** (Number(this.#range.value) / 1000);
    });
    this.element = el("div", { class: "sm-panel", hidden: true }, this.#title, el("div", { class: "sm-look" }, this.#range, this.#value), this.#onto);
  }

  show() {
    const { painting, store, viewer } = this.#work;
    this.element.hidden = !painting.isOn || !store.series;
    if (this.element.hidden) return;
    const { least, most } = painting.limits;
    this.#title.textContent = viewer.state().tool === "brush" ? "Brush" : "Eraser";
    this.#value.textContent = `r ${round(painting.radius)} ${painting.unit}`;
    this.#value.title = sizeTitle(store.series.spacing_source) ?? "";
    this.#range.value = String(Math.round((1000 * Math.log(painting.radius / least)) / Math.log(most / least)));
    const name = store.activeSegment?.label;
    this.#onto.textContent = name ? `in “${name}”` : viewer.state().tool === "brush" ? "begins a new segment" : "choose a segment first";
  }
}
