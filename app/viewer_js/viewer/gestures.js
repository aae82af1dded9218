/** Mouse, wheel and fingers on the picture. */

const WHEEL_STEP = 100;

/**
 * What the hand does, in CSS pixels from the top left of the stage.
 *
 * @typedef {object} HandlerSet
 * @property {() => string} tool  The tool of the left button.
 * @property {(tool: string, at: [number, number]) => void} begin
 * @property {(tool: string, move: {dx: number, dy: number, totalX: number, totalY: number, from: [number, number]}) => void} drag
 * @property {(slices: number) => void} scroll
 * @property {(factor: number, about: [number, number]) => void} zoom
 * @property {(dx: number, dy: number) => void} pan
 * @property {(at: [number, number] | null) => void} hover
 */

/** Listens on the stage and tells what is meant. */
export class Gestures {
  #element;
  #on;
  #fingers = new Map();
  #drag = null;
  #wheel = 0;

  /**
   * @param {HTMLElement} element
   * @param {HandlerSet} on
   */
  constructor(element, on) {
    this.#element = element;
    this.#on = on;
    element.addEventListener("contextmenu", (event) => event.preventDefault());
    element.addEventListener("wheel", (event) => this.#turned(event), { passive: false });
    element.addEventListener("pointerdown", (event) => this.#down(event));
    element.addEventListener("pointermove", (event) => this.#moved(event));
    for (const end of ["pointerup", "pointercancel"]) element.addEventListener(end, (event) => this.#up(event));
    element.addEventListener("pointerleave", () => on.hover(null));
  }

  #place(event) {
    const box = this.#element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #turned(event) {
    event.preventDefault();
    const lines = { 0: 1, 1: 33, 2: 400 }[event.deltaMode];
    const turned = event.deltaY * lines;
    if (event.ctrlKey || event.metaKey) {
      this.#on.zoom(1.15 ** (-turned / WHEEL_STEP), this.#place(event));
      return;
    }
    // A notch of a wheel is one slice; a touchpad's small steps add up to one.
    if (Math.abs(turned) >= WHEEL_STEP / 2) {
      this.#wheel = 0;
      this.#on.scroll(Math.sign(turned) * Math.max(1, Math.round(Math.abs(turned) / WHEEL_STEP)));
      return;
    }
    this.#wheel += turned;
    const slices = Math.trunc(this.#wheel / (WHEEL_STEP / 4));
    if (slices === 0) return;
    this.#wheel -= slices * (WHEEL_STEP / 4);
    this.#on.scroll(slices);
  }

  #down(event) {
    event.preventDefault();
    this.#element.focus({ preventScroll: true });
    this.#element.setPointerCapture(event.pointerId);
    const at = this.#place(event);
    this.#fingers.set(event.pointerId, at);
    if (this.#fingers.size > 1) {
      this.#drag = null;
      return;
    }
    const tool = { 0: this.#on.tool(), 1: "pan", 2: "zoom" }[event.button];
    if (!tool) return;
    this.#drag = { tool, from: at, last: at };
    this.#on.begin(tool, at);
  }

  #moved(event) {
    const at = this.#place(event);
    this.#on.hover(at);
    if (!this.#fingers.has(event.pointerId)) return;
    if (this.#fingers.size === 2) {
      this.#pinch(event.pointerId, at);
      return;
    }
    this.#fingers.set(event.pointerId, at);
    if (!this.#drag) return;
    const { tool, from, last } = this.#drag;
    this.#drag.last = at;
    this.#on.drag(tool, {
      dx: at[0] - last[0],
      dy: at[1] - last[1],
      totalX: at[0] - from[0],
      totalY: at[1] - from[1],
      from,
    });
  }

  /** Two fingers: their middle moves the picture, their distance zooms it. */
  #pinch(id, at) {
    const before = this.#fingers.get(id);
    const [other] = [...this.#fingers].filter(([finger]) => finger !== id).map(([, place]) => place);
    this.#fingers.set(id, at);
    const distance = (place) => Math.hypot(place[0] - other[0], place[1] - other[1]);
    const middle = [(at[0] + other[0]) / 2, (at[1] + other[1]) / 2];
    this.#on.pan((at[0] - before[0]) / 2, (at[1] - before[1]) / 2);
    if (distance(before) > 8) this.#on.zoom(distance(at) / distance(before), middle);
  }

  #up(event) {
    this.#fingers.delete(event.pointerId);
    this.#drag = null;
  }
}
