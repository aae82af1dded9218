/** Only the last wish counts: which slice is wanted, which one is on its way, which one has come. Casebook C54. */

/**
 * Takes answers in any order and lets through the one that is still wanted.
 *
 * @template T
 */
export class Latest {
  /** The slice that is wanted, -1 for none. */
  target = -1;
  #asking = -1;
  #arrived = null;
  #onArrival;

  /** @param {() => void} onArrival  Called when what is wanted has come; `take` hands it out. */
  constructor(onArrival) {
    this.#onArrival = onArrival;
  }

  /**
   * Have the target brought, unless it is shown, here or on its way.
   *
   * @param {number} shown  The slice on the screen, -1 for none.
   * @param {import("./source.js").FrameSource} source
   */
  bring(shown, source) {
    const { target } = this;
    if (target === shown || this.#arrived?.index === target || this.#asking === target) return;
    this.#asking = target;
    const kept = source.get(target);
    if (kept) {
      this.#arrive(target, { frame: kept });
      return;
    }
    source.ask(target).then(
      (frame) => frame && this.#arrive(target, { frame }),
      (error) => this.#arrive(target, { error }),
    );
  }

  /**
   * What has come for the target, once.
   * @returns {{index: number, frame: import("./contract.js").FrameValues | null, error: Error | null} | null}
   */
  take() {
    const arrived = this.#arrived;
    this.#arrived = null;
    return arrived?.index === this.target ? arrived : null;
  }

  #arrive(index, { frame = null, error = null }) {
    if (this.#asking !== index) return;
    this.#asking = -1;
    if (index !== this.target) return;
    this.#arrived = { index, frame, error };
    this.#onArrival();
  }
}
