// Saving: one line of changes for each mask, sent in order, each a new version on the server.
//
// An edit that could not be sent stays on the screen and in the line, and is sent again with the same key and the same
// bits until the server has answered, so that an answer that was lost on the way makes no second version and loses
// none. What was drawn meanwhile goes after it under a key of its own.

import { requestKey } from "./wire.js";

const DEBOUNCE_MS = 700;
const RETRY_MS = [1000, 2000, 4000, 8000, 15_000, 30_000];

const CONFLICTED = "this mask was changed elsewhere: first say which of the two stays";

const isPassing = ({ status }) => status === 0 || status === 429 || status >= 500;
const keyOf = (number, frame) => `${number} ${frame}`;

/** What a mask's line is doing. @typedef {"saved"|"waiting"|"saving"|"failed"|"conflict"|"outdated"} LineState */

/** The changes of one mask on their way to the server. */
export class SaveLine {
  #wire;
  #on;
  #jobs = [];
  #dirty = new Map();
  #sending = null;
  #timer = 0;
  #wake = null;
  #running = null;

  /**
   * @param {import("./model.js").Mask} mask
   * @param {{savePlane: Function}} wire
   * @param {{saved: (mask: object, version: object, isWhole: boolean) => void, changed: () => void}} on  `isWhole`: the
   *     planes may differ from those that are kept.
   */
  constructor(mask, wire, on) {
    this.mask = mask;
    this.#wire = wire;
    this.#on = on;
    /** Why the last try failed; null while all is well. */
    this.problem = null;
    this.retryAt = 0;
    /** More images came to the series: what was drawn lies on slices that may be others now, and cannot be stored. */
    this.isOutdated = false;
  }

  get #isHalted() {
    return this.mask.isConflicted || this.isOutdated;
  }

  /** @returns {LineState} */
  get state() {
    if (this.isOutdated) return "outdated";
    if (this.mask.isConflicted && this.hasUnsaved) return "conflict";
    if (this.problem) return "failed";
    if (this.#running) return "saving";
    return this.#dirty.size > 0 ? "waiting" : "saved";
  }

  get hasUnsaved() {
    return this.isOutdated || this.#dirty.size > 0 || this.#jobs.length > 0 || this.#sending !== null;
  }

  holds(number, frame) {
    const key = keyOf(number, frame);
    return this.#dirty.has(key) || this.#sending?.plane === key || this.#jobs.some((job) => job.plane === key);
  }

  /** The frames with an edit that is not stored, for each segment. */
  unsaved() {
    const waiting = [this.#sending, ...this.#jobs].filter((job) => job?.edit).map((job) => job.edit);
    return [...new Map([...waiting, ...this.#dirty.values()].map((edit) => [keyOf(edit.number, edit.frame), edit])).values()];
  }

  /** A plane was edited; it is saved once the hand rests. */
  touch(number, frame, plane) {
    this.#dirty.set(keyOf(number, frame), { number, frame, plane });
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.flush(), DEBOUNCE_MS);
    this.#on.changed();
  }

  /** Save what is edited, now. Resolves when nothing waits any more, or when only the person can say how to go on. */
  flush() {
    clearTimeout(this.#timer);
    if (this.#isHalted) return Promise.resolve();
    for (const [plane, edit] of this.#dirty) {
      this.#dirty.delete(plane);
      this.#add({ plane, edit, isKept: true, send: (base) => this.#send(edit, base) });
    }
    return this.#settled();
  }

  /**
   * Make a change of another kind, after what is edited.
   *
   * @param {(base: {base_version: number, request_key: string}) => Promise<object>} send  Gives the new version.
   * @param {{isKept?: boolean, isWhole?: boolean}} [options]  Kept in the line and tried again where the server cannot
   *     be reached; `isWhole` where the version's planes are not those that are kept here.
   * @returns {Promise<object>} The new version.
   */
  change(send, { isKept = false, isWhole = false } = {}) {
    this.flush();
    if (this.#isHalted) return Promise.reject(this.problem ?? new Error(CONFLICTED));
    return new Promise((resolve, reject) => this.#add({ send, resolve, reject, isKept, isWhole }));
  }

  /** Try again now. */
  retry() {
    this.#wake?.();
    this.flush();
  }

  /** Forget what is not stored: theirs is taken, or it was saved as another mask. */
  abandon() {
    clearTimeout(this.#timer);
    this.#dirty.clear();
    this.#jobs = [];
    this.#sending = null;
    this.problem = null;
    this.isOutdated = false;
    this.#on.changed();
  }

  #add(job) {
    this.#jobs.push({ key: requestKey(), bits: null, ...job });
    if (!this.#running) this.#start();
    this.#on.changed();
  }

  #start() {
    this.#running = this.#work().finally(() => {
      this.#running = null;
      // A job that came in the moment in which the last one ended.
      if (this.#jobs.length > 0 && !this.#isHalted) this.#start();
      this.#on.changed();
    });
  }

  async #settled() {
    while (this.#running) await this.#running;
  }

  #send(edit, base) {
    // The bits of the first try: a key stands for one content.
    this.#sending.bits ??= edit.plane.packed.slice();
    return this.#wire.savePlane(this.mask.id, edit.number, edit.frame, this.#sending.bits, base);
  }

  async #work() {
    while (this.#jobs.length > 0 && !this.#isHalted) {
      const job = this.#jobs.shift();
      this.#sending = job;
      for (let tries = 0; this.#sending === job; tries += 1) {
        try {
          const version = await job.send({ base_version: this.mask.version, request_key: job.key });
          if (this.#sending !== job) break;
          this.problem = null;
          this.#sending = null;
          this.#on.saved(this.mask, version, job.isWhole ?? false);
          job.resolve?.(version);
        } catch (error) {
          if (this.#sending !== job) break;
          if (!(await this.#failed(job, error, tries))) break;
        }
      }
    }
  }

  /** @returns {Promise<boolean>} Whether to try again. */
  async #failed(job, error, tries) {
    if (error.code === "mask_conflict") {
      this.mask.isConflicted = true;
      this.problem = null;
      this.#giveBack(job, error);
      this.#on.changed();
      return false;
    }
    if (error.code === "series_changed") {
      this.isOutdated = true;
      this.problem = error;
      this.#giveBack(job, error);
      this.#on.changed();
      return false;
    }
    if (!job.isKept) {
      this.#sending = null;
      job.reject?.(error);
      return false;
    }
    this.problem = error;
    const wait = isPassing(error) ? RETRY_MS[Math.min(tries, RETRY_MS.length - 1)] : RETRY_MS.at(-1);
    this.retryAt = Date.now() + wait;
    this.#on.changed();
    await new Promise((done) => {
      const timer = setTimeout(done, wait);
      this.#wake = () => (clearTimeout(timer), done());
    });
    this.#wake = null;
    return true;
  }

  /** Edits wait where they were, for the person to say what becomes of them. */
  #giveBack(job, error) {
    for (const { plane, edit, reject } of [job, ...this.#jobs]) {
      if (edit && !this.#dirty.has(plane)) this.#dirty.set(plane, edit);
      else reject?.(error.code === "mask_conflict" ? new Error(CONFLICTED) : error);
    }
    this.#jobs = [];
    this.#sending = null;
  }
}
