// One stroke of the brush or the eraser.

import { paintStretch } from "./brush.js";
import { difference } from "./plane.js";

/** Paints one plane from press to release. Where the plane is still on its way, the stroke waits for it whole. */
export class Stroke {
  #stretches = [];
  #last = null;
  #plane = null;
  #before = null;
  #hasEnded = false;
  #tip;
  #isSet;
  #on;

  /**
   * @param {object} stroke
   * @param {import("./plane.js").Plane|null} stroke.plane
   * @param {Promise<import("./plane.js").Plane>|null} stroke.coming  Where it is not here yet.
   * @param {import("./brush.js").Tip} stroke.tip
   * @param {boolean} stroke.isSet  Paint, or erase.
   * @param {[number, number]} stroke.at  Where it begins, picture coordinates.
   * @param {{changed: () => void, done: (plane: object, patch: import("./plane.js").Patch) => void,
   *     lost: (error: Error) => void}} on
   */
  constructor({ plane, coming, tip, isSet, at }, on) {
    this.#tip = tip;
    this.#isSet = isSet;
    this.#on = on;
    this.#last = at;
    this.#stretches.push([at, at]);
    if (plane) this.#begin(plane);
    else coming.then((come) => this.#begin(come), (error) => this.#on.lost(error));
  }

  move(at) {
    this.#stretches.push([this.#last, at]);
    this.#last = at;
    this.#apply();
  }

  /** @param {[number, number]|null} at */
  end(at) {
    if (at) this.move(at);
    this.#hasEnded = true;
    this.#finish();
  }

  /** The browser took the pointer away; what was painted stays, as after a release. */
  cancel() {
    this.end(null);
  }

  #begin(plane) {
    this.#plane = plane;
    this.#before = plane.packed.slice();
    this.#apply();
    this.#finish();
  }

  #apply() {
    if (!this.#plane) return;
    let hasChanged = false;
    for (const [from, to] of this.#stretches) hasChanged = paintStretch(this.#plane, from, to, this.#tip, this.#isSet) || hasChanged;
    this.#stretches = [];
    if (hasChanged) this.#on.changed();
  }

  #finish() {
    if (!this.#plane || !this.#hasEnded) return;
    const patch = difference(this.#before, this.#plane.packed);
    if (patch) this.#on.done(this.#plane, patch);
  }
}
