/** The slices at the side: where the shown one is, and which are here already. */

import { make } from "./dom.js";

/** A vertical slider; the first slice is on top. */
export class Slider {
  #track = make("canvas", "sv-track");
  #thumb = make("div", "sv-thumb");
  #count = 1;

  /**
   * @param {HTMLElement} stage
   * @param {(index: number) => void} onMove
   */
  constructor(stage, onMove) {
    this.element = make("div", "sv-slider", { label: "Slice", children: [this.#track, this.#thumb] });
    this.element.setAttribute("role", "slider");
    this.element.setAttribute("aria-orientation", "vertical");
    this.element.hidden = true;
    stage.append(this.element);
    const move = (event) => {
      const box = this.#track.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (event.clientY - box.top) / box.height));
      onMove(Math.round(share * (this.#count - 1)));
    };
    this.element.addEventListener("pointerdown", (event) => {
      event.stopPropagation();
      this.element.setPointerCapture(event.pointerId);
      move(event);
    });
    this.element.addEventListener("pointermove", (event) => {
      event.stopPropagation();
      if (this.element.hasPointerCapture(event.pointerId)) move(event);
    });
  }

  setCount(count) {
    this.#count = count;
    this.element.hidden = count < 2;
    this.element.setAttribute("aria-valuemin", "1");
    this.element.setAttribute("aria-valuemax", String(count));
  }

  /** @param {number} index  The slice that is wanted; the picture follows when it is here. */
  setIndex(index) {
    const share = this.#count > 1 ? index / (this.#count - 1) : 0;
    this.#thumb.style.top = `${share * 100}%`;
    this.element.setAttribute("aria-valuenow", String(index + 1));
  }

  /** @param {(index: number) => boolean} isLoaded */
  drawLoaded(isLoaded) {
    if (this.element.hidden) return;
    const height = Math.max(1, this.#track.clientHeight);
    this.#track.width = 1;
    this.#track.height = height;
    const context = this.#track.getContext("2d");
    context.fillStyle = "#2b5f7d";
    for (let y = 0; y < height; y += 1) {
      if (isLoaded(Math.min(this.#count - 1, Math.floor((y / height) * this.#count)))) context.fillRect(0, y, 1, 1);
    }
  }
}
