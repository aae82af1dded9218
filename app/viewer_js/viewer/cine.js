/** Plays a loop of frames. */

const DEFAULT_FRAME_MS = 1000 / 15;

/**
 * How long a frame is shown.
 *
 * @param {import("./contract.js").FrameFacts[]} frames
 * @returns {number} ms: the file's own frame time, else 15 frames a second.
 */
export function frameTime(frames) {
  const last = frames.at(-1);
  if (frames.length < 2 || !(last.time_ms > 0)) return DEFAULT_FRAME_MS;
  return Math.max(5, last.time_ms / (frames.length - 1));
}

/** Calls `advance` at the pace of the file; frames that the screen is too slow for are left out. */
export class Cine {
  #advance;
  #frameMs = DEFAULT_FRAME_MS;
  #request = 0;

  /** @param {(frames: number) => void} advance */
  constructor(advance) {
    this.#advance = advance;
  }

  get isPlaying() {
    return this.#request !== 0;
  }

  play(frameMs) {
    this.#frameMs = frameMs;
    let last = performance.now();
    const tick = (now) => {
      const due = Math.floor((now - last) / this.#frameMs);
      this.#request = requestAnimationFrame(tick);
      if (due < 1) return;
      last += due * this.#frameMs;
      this.#advance(due);
    };
    this.stop();
    this.#request = requestAnimationFrame(tick);
  }

  stop() {
    cancelAnimationFrame(this.#request);
    this.#request = 0;
  }
}
