// One stack of what was done on a series, undone in reverse order and done again. Casebook C33.

const MOST = 200;

/**
 * @typedef {object} Deed
 * @property {string} label  "stroke", "rename": what a person calls it.
 * @property {object} mask
 * @property {() => Promise<void>} undo
 * @property {() => Promise<void>} redo
 */

/** Undo and redo. Pressed faster than the server answers, they wait for each other; none is left out. */
export class History {
  #done = [];
  #undone = [];
  #last = Promise.resolve();
  #onProblem;

  /** @param {(error: Error, label: string) => void} onProblem */
  constructor(onProblem) {
    this.#onProblem = onProblem;
  }

  get canUndo() {
    return this.#done.length > 0;
  }

  get canRedo() {
    return this.#undone.length > 0;
  }

  /** @param {Deed} deed  Something new was done: what was undone before cannot be done again. */
  add(deed) {
    this.#done.push(deed);
    if (this.#done.length > MOST) this.#done.shift();
    this.#undone = [];
  }

  undo() {
    return this.#move(() => [this.#done, this.#undone], "undo");
  }

  redo() {
    return this.#move(() => [this.#undone, this.#done], "redo");
  }

  /** What was done to a mask is no more what it is: somebody else changed it. */
  forget(mask) {
    this.#done = this.#done.filter((deed) => deed.mask !== mask);
    this.#undone = this.#undone.filter((deed) => deed.mask !== mask);
  }

  /** A deed that did not come about. */
  remove(deed) {
    this.#done = this.#done.filter((one) => one !== deed);
    this.#undone = this.#undone.filter((one) => one !== deed);
  }

  clear() {
    this.#done = [];
    this.#undone = [];
  }

  #move(sides, way) {
    this.#last = this.#last.then(async () => {
      const [from, to] = sides();
      const deed = from.pop();
      if (!deed) return;
      try {
        await deed[way]();
        to.push(deed);
      } catch (error) {
        from.push(deed);
        this.#onProblem(error, `${way} ${deed.label}`);
      }
    });
    return this.#last;
  }
}
