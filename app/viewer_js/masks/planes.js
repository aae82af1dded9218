// The planes of the masks of one open series: fetched when their slice is shown, and ahead of it.

import { Plane } from "./plane.js";

const CONNECTIONS = 2;
// Packed bits: 64 MiB are two thousand planes of 512 x 512.
const MOST_BYTES = 64 * 1024 * 1024;

const keyOf = (mask, number, frame) => `${mask.key} ${mask.epoch} ${number} ${frame}`;

/** Hands out planes of one series. What comes for a version or a series that is gone reaches nobody (C30, C31, C54). */
export class Planes {
  #size;
  #read;
  #onChange;
  #kept = new Map();
  #asked = new Map();
  #failed = new Map();
  #closed = new AbortController();
  #ahead = [];
  #running = 0;
  #isPinned;

  /**
   * @param {{rows: number, columns: number}} size  As shown.
   * @param {object} options
   * @param {(versionId: string, number: number, frame: number, signal: AbortSignal) => Promise<Uint8Array>} options.read
   * @param {() => void} options.onChange  A plane has come, or could not.
   * @param {(mask: object, number: number, frame: number) => boolean} options.isPinned  Holds an edit that is not
   *     stored yet, so it stays.
   */
  constructor(size, { read, onChange, isPinned }) {
    this.#size = size;
    this.#read = read;
    this.#onChange = onChange;
    this.#isPinned = isPinned;
  }

  /** @returns {Plane|null} null where it is not here. What has nothing on a frame is here at once. */
  get(mask, number, frame) {
    const key = keyOf(mask, number, frame);
    const kept = this.#kept.get(key)?.plane;
    if (kept) return kept;
    return mask.segment(number)?.pixels.has(frame) ? null : this.#keep(mask, number, frame, this.#empty());
  }

  /** Why a plane is not here; null where nothing went wrong. */
  problem(mask, number, frame) {
    return this.#failed.get(keyOf(mask, number, frame)) ?? null;
  }

  /**
   * The plane, fetched where it is not here.
   * @returns {Promise<Plane>}
   * @throws {import("../shell/api.js").ApiError}
   */
  async bring(mask, number, frame) {
    const here = this.get(mask, number, frame);
    if (here) return here;
    const key = keyOf(mask, number, frame);
    if (!this.#asked.has(key)) {
      this.#failed.delete(key);
      const asked = this.#fetch(mask, number, frame).finally(() => this.#asked.delete(key));
      this.#asked.set(key, asked);
    }
    return this.#asked.get(key);
  }

  /** A plane whose bits are known without the server. */
  put(mask, number, frame, packed) {
    return this.#keep(mask, number, frame, new Plane(this.#size.columns, this.#size.rows, packed));
  }

  /** A plane that holds an edit which is not stored yet. */
  adopt(mask, number, frame, plane) {
    return this.#keep(mask, number, frame, plane);
  }

  /** Forget what is kept of a mask: it has another version now. */
  drop(mask) {
    mask.epoch += 1;
    const prefix = `${mask.key} `;
    for (const map of [this.#kept, this.#failed]) for (const key of map.keys()) if (key.startsWith(prefix)) map.delete(key);
  }

  /**
   * Have these planes brought, the shown frame's first; called again as the slice moves.
   * @param {{mask: object, segment: object}[]} visible
   * @param {number} index
   */
  around(visible, index) {
    const wanted = visible.flatMap(({ mask, segment }) => [...segment.pixels.keys()].map((frame) => ({ mask, number: segment.number, frame })));
    const missing = ({ mask, number, frame }) => !this.#kept.has(keyOf(mask, number, frame)) && !this.#failed.has(keyOf(mask, number, frame));
    const todo = wanted.filter((one) => one.mask.versionId && missing(one));
    for (const one of todo) if (one.frame === index) this.#quietly(one);
    this.#ahead = todo.filter((one) => one.frame !== index).sort((a, b) => Math.abs(b.frame - index) - Math.abs(a.frame - index));
    for (const [, { plane, frame }] of this.#kept) if (Math.abs(frame - index) > 1) plane.release();
    this.#evict(index);
    this.#fill();
  }

  close() {
    this.#closed.abort();
    this.#ahead = [];
    this.#kept.clear();
  }

  #empty() {
    return new Plane(this.#size.columns, this.#size.rows);
  }

  #keep(mask, number, frame, plane) {
    this.#kept.set(keyOf(mask, number, frame), { mask, number, frame, plane });
    return plane;
  }

  async #fetch(mask, number, frame) {
    const { epoch, versionId } = mask;
    const packed = await this.#read(versionId, number, frame, this.#closed.signal);
    // Of another version by now: ask for that one.
    if (epoch !== mask.epoch) return this.bring(mask, number, frame);
    const plane = this.#kept.get(keyOf(mask, number, frame))?.plane ?? this.put(mask, number, frame, packed);
    this.#onChange();
    return plane;
  }

  /** Bring a plane that is shown as soon as it is here; what goes wrong is kept to be told. */
  #quietly({ mask, number, frame }) {
    const key = keyOf(mask, number, frame);
    return this.bring(mask, number, frame).catch((error) => {
      if (this.#closed.signal.aborted) return;
      this.#failed.set(key, error);
      this.#onChange();
    });
  }

  #fill() {
    while (this.#running < CONNECTIONS && this.#ahead.length > 0 && !this.#closed.signal.aborted) {
      this.#running += 1;
      this.#quietly(this.#ahead.pop()).finally(() => {
        this.#running -= 1;
        this.#fill();
      });
    }
  }

  #evict(index) {
    const bytes = Math.ceil((this.#size.columns * this.#size.rows) / 8);
    const most = Math.max(16, Math.floor(MOST_BYTES / bytes));
    if (this.#kept.size <= most) return;
    const farthest = [...this.#kept].sort(([, a], [, b]) => Math.abs(b.frame - index) - Math.abs(a.frame - index));
    for (const [key, { mask, number, frame }] of farthest.slice(0, this.#kept.size - most)) {
      if (!this.#isPinned(mask, number, frame)) this.#kept.delete(key);
    }
  }
}
