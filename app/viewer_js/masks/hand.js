// The hand on the picture while a mask tool is chosen: it takes the primary button before the viewer's own gestures do.

/**
 * @typedef {object} Grip  What one press does; picture coordinates (edges).
 * @property {(at: [number, number]) => void} move
 * @property {(at: [number, number]) => void} end
 * @property {() => void} cancel
 */

/** Turns presses into grips. `begin` says what a press there does, or null where it is the viewer's. */
export class Hand {
  #surface;
  #toPicture;
  #begin;
  #onHover;
  #grip = null;
  #pointer = null;

  /**
   * @param {HTMLElement} surface
   * @param {object} on
   * @param {(view: [number, number]) => [number, number]} on.toPicture
   * @param {(at: [number, number], view: [number, number], keys: {isOther: boolean}) => Grip|null} on.begin  `isOther`
   *     with Shift or Alt.
   * @param {(view: [number, number]|null) => void} on.hover
   */
  constructor(surface, { toPicture, begin, hover }) {
    this.#surface = surface;
    this.#toPicture = toPicture;
    this.#begin = begin;
    this.#onHover = hover;
    surface.addEventListener("pointerdown", (event) => this.#down(event), { capture: true });
    surface.addEventListener("pointermove", (event) => this.#moved(event), { capture: true });
    surface.addEventListener("pointerup", (event) => this.#up(event), { capture: true });
    surface.addEventListener("pointercancel", (event) => this.#lost(event), { capture: true });
    surface.addEventListener("pointerleave", () => hover(null));
  }

  get isBusy() {
    return this.#grip !== null;
  }

  /** Let go, as if the button had been released: what was done until now stays. */
  release() {
    const grip = this.#grip;
    this.#grip = null;
    grip?.end(null);
  }

  #place(event) {
    const box = this.#surface.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #down(event) {
    if (this.#grip) {
      // A second finger while the first one draws is no gesture.
      event.stopImmediatePropagation();
      return;
    }
    if (event.button !== 0 || !event.isPrimary) return;
    const view = this.#place(event);
    const grip = this.#begin(this.#toPicture(view), view, { isOther: event.shiftKey || event.altKey });
    if (!grip) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    this.#surface.focus({ preventScroll: true });
    this.#surface.setPointerCapture(event.pointerId);
    this.#grip = grip;
    this.#pointer = event.pointerId;
  }

  #moved(event) {
    const view = this.#place(event);
    this.#onHover(view);
    if (!this.#grip || event.pointerId !== this.#pointer) return;
    event.stopImmediatePropagation();
    // The browser reports once a frame; the places in between are the stroke's, too.
    const between = event.getCoalescedEvents?.() ?? [];
    for (const one of between.length > 0 ? between : [event]) this.#grip?.move(this.#toPicture(this.#place(one)));
  }

  #up(event) {
    if (!this.#grip || event.pointerId !== this.#pointer) return;
    event.stopImmediatePropagation();
    const grip = this.#grip;
    this.#grip = null;
    grip.end(this.#toPicture(this.#place(event)));
  }

  #lost(event) {
    if (!this.#grip || event.pointerId !== this.#pointer) return;
    const grip = this.#grip;
    this.#grip = null;
    grip.cancel();
  }
}
