/** Brings frames: the asked one at once and before all others, its neighbours ahead of need. */

import { FrameCache } from "./cache.js";
import { loadFrame } from "./loader.js";
import { outward } from "./prefetch.js";

// A browser opens six connections to one origin; two stay free for the slice that is asked for.
const PREFETCH_CONNECTIONS = 4;

/** The frames of one open series. */
export class FrameSource {
  #series;
  #cache;
  #closed = new AbortController();
  #asked = null;
  #askedIndex = -1;
  #prefetching = new Map();
  #failed = new Map();
  #around = 0;
  #direction = 1;
  #onLoaded;
  #started = false;

  /**
   * @param {import("./contract.js").SeriesDescriptor} series
   * @param {{maxBytes: number, onLoaded: (index: number) => void}} options  `onLoaded` runs after each arrival or
   *     failure of a frame.
   */
  constructor(series, { maxBytes, onLoaded }) {
    this.#series = series;
    this.#cache = new FrameCache(maxBytes);
    this.#onLoaded = onLoaded;
  }

  get count() {
    return this.#series.frames.length;
  }

  get loaded() {
    return this.#cache.size;
  }

  /**
   * How many frames are fetched ahead: all, or what fits in the memory that is allowed.
   *
   * Two less than fit: a frame at the edge that is fetched for the way forward must not push out its equally far
   * mirror, which would then be fetched again and push out the first, for ever.
   */
  get capacity() {
    const { rows, columns, samples, dtype } = this.#series.pixel;
    const bytes = rows * columns * samples * (Number(dtype.match(/\d+/)?.[0] ?? 8) / 8);
    const fitting = Math.floor(this.#cache.maxBytes / bytes);
    return fitting >= this.count ? this.count : Math.max(1, fitting - 2);
  }

  /** Whether frames are on their way. */
  get isBusy() {
    return this.#askedIndex !== -1 || this.#prefetching.size > 0;
  }

  has(index) {
    return this.#cache.has(index);
  }

  get(index) {
    return this.#cache.get(index);
  }

  /**
   * Bring one frame before all others. Asking for the next one gives this request up: only the last counts (C54).
   *
   * @param {number} index
   * @returns {Promise<import("./contract.js").FrameValues | null>} null where it was given up.
   * @throws {import("./contract.js").ViewerError}
   */
  async ask(index) {
    this.#asked?.abort();
    const kept = this.#cache.get(index);
    if (kept) return kept;
    this.#failed.delete(index);
    const asked = new AbortController();
    this.#asked = asked;
    this.#askedIndex = index;
    const running = this.#prefetching.get(index);
    try {
      const frame = await (running?.promise ?? loadFrame(this.#series, index, this.#either(asked.signal)));
      if (frame === null) return asked.signal.aborted ? null : await this.ask(index);
      this.#keep(index, frame);
      return asked.signal.aborted ? null : frame;
    } catch (error) {
      if (asked.signal.aborted || this.#closed.signal.aborted) return null;
      this.#failed.set(index, error);
      this.#onLoaded(index);
      throw error;
    } finally {
      if (this.#asked === asked) this.#askedIndex = -1;
    }
  }

  /**
   * Bring the neighbours of a slice, nearest first; called again as the slice moves.
   * @param {number} around
   */
  prefetchAround(around) {
    if (around !== this.#around) this.#direction = Math.sign(around - this.#around);
    this.#around = around;
    this.#started = true;
    this.#fill();
  }

  /** Stop everything and forget the frames. */
  close() {
    this.#closed.abort();
    this.#asked?.abort();
    this.#cache.clear();
  }

  #fill() {
    if (!this.#started || this.#closed.signal.aborted) return;
    for (const index of outward(this.#around, this.count, this.#direction, this.capacity)) {
      if (this.#prefetching.size >= PREFETCH_CONNECTIONS) return;
      const isUnderWay = index === this.#askedIndex || this.#prefetching.has(index) || this.#failed.has(index);
      if (!this.#cache.has(index) && !isUnderWay) this.#prefetch(index);
    }
  }

  #prefetch(index) {
    const promise = loadFrame(this.#series, index, this.#closed.signal).catch((error) => {
      if (!this.#closed.signal.aborted) this.#failed.set(index, error);
      return null;
    });
    this.#prefetching.set(index, { promise });
    promise.then((frame) => {
      this.#prefetching.delete(index);
      if (this.#closed.signal.aborted) return;
      if (frame) this.#keep(index, frame);
      else this.#onLoaded(index);
      this.#fill();
    });
  }

  #keep(index, frame) {
    if (this.#closed.signal.aborted || this.#cache.has(index)) return;
    this.#cache.put(index, frame, this.#around);
    this.#onLoaded(index);
  }

  #either(signal) {
    return AbortSignal.any([signal, this.#closed.signal]);
  }
}
