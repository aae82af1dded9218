/** Frames kept in memory, bounded in bytes; the one farthest from the slice on the screen leaves first. */

/** A cache of frames by index for one series. */
export class FrameCache {
  #frames = new Map();
  #bytes = 0;

  /** @param {number} maxBytes */
  constructor(maxBytes) {
    this.maxBytes = maxBytes;
  }

  get size() {
    return this.#frames.size;
  }

  get bytes() {
    return this.#bytes;
  }

  has(index) {
    return this.#frames.has(index);
  }

  get(index) {
    return this.#frames.get(index);
  }

  /**
   * Keep a frame; frames far from `around` make room. The new frame itself always stays.
   *
   * @param {number} index
   * @param {import("./contract.js").FrameValues} frame
   * @param {number} around  The slice on the screen.
   */
  put(index, frame, around) {
    this.#drop(index);
    this.#frames.set(index, frame);
    this.#bytes += frame.bytes;
    if (this.#bytes <= this.maxBytes) return;
    const farthestFirst = [...this.#frames.keys()].sort((a, b) => Math.abs(b - around) - Math.abs(a - around));
    for (const other of farthestFirst) {
      if (this.#bytes <= this.maxBytes) return;
      if (other !== index && other !== around) this.#drop(other);
    }
  }

  clear() {
    this.#frames.clear();
    this.#bytes = 0;
  }

  #drop(index) {
    const frame = this.#frames.get(index);
    if (!frame) return;
    this.#frames.delete(index);
    this.#bytes -= frame.bytes;
  }
}

/**
 * How much of the computer's memory a series may take.
 *
 * 512 MiB hold 1,000 CT slices; a computer that says it is small gives a sixteenth of what it has.
 */
export function defaultCacheBytes() {
  const gib = 1024 ** 3;
  return Math.min(gib / 2, ((navigator.deviceMemory ?? 8) * gib) / 16);
}
