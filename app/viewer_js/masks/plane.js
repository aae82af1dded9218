// One segment on one frame, as shown: a bit a pixel.
//
// Pixel (i, j) covers [i, i + 1) x [j, j + 1) of the picture's edge coordinates, as in viewer/camera.js; its centre,
// which is where DICOM places the voxel, is (i + 0.5, j + 0.5). Nothing here or behind it shifts by half a pixel.

/** A plane. Packed it is as the server sends it: row by row without gaps, the first pixel in the highest bit. */
export class Plane {
  #packed;
  #bytes = null;
  #isStale = false;
  #count = -1;
  #bounds = undefined;
  /** Grows with every change. */
  revision = 0;

  /**
   * @param {number} columns
   * @param {number} rows
   * @param {Uint8Array|null} [packed]  Nothing is set where absent.
   */
  constructor(columns, rows, packed = null) {
    const size = Math.ceil((columns * rows) / 8);
    if (packed && packed.length !== size) throw new RangeError(`a plane of ${columns} x ${rows} has ${size} bytes, got ${packed.length}`);
    this.columns = columns;
    this.rows = rows;
    this.#packed = packed ?? new Uint8Array(size);
  }

  /** One byte a pixel, 0 or 1. Whoever writes into it calls `changed`. */
  get bytes() {
    if (this.#bytes) return this.#bytes;
    const bytes = new Uint8Array(this.columns * this.rows);
    const packed = this.#packed;
    for (let at = 0; at < packed.length; at += 1) {
      const eight = packed[at];
      if (eight === 0) continue;
      const first = at * 8;
      const last = Math.min(bytes.length, first + 8);
      for (let pixel = first; pixel < last; pixel += 1) bytes[pixel] = (eight >> (7 - (pixel - first))) & 1;
    }
    this.#bytes = bytes;
    return bytes;
  }

  changed() {
    this.#isStale = true;
    this.#count = -1;
    this.#bounds = undefined;
    this.revision += 1;
  }

  /** The bits; not to be written into. */
  get packed() {
    if (!this.#isStale) return this.#packed;
    const bytes = this.#bytes;
    const packed = new Uint8Array(this.#packed.length);
    for (let pixel = 0; pixel < bytes.length; pixel += 1) if (bytes[pixel]) packed[pixel >> 3] |= 128 >> (pixel & 7);
    this.#packed = packed;
    this.#isStale = false;
    return packed;
  }

  set packed(packed) {
    this.#packed = packed;
    this.#bytes = null;
    this.changed();
    this.#isStale = false;
  }

  /** Keep the bits alone, an eighth of the memory, while the plane is not looked at. */
  release() {
    if (this.#bytes && this.packed) this.#bytes = null;
  }

  has(i, j) {
    return i >= 0 && j >= 0 && i < this.columns && j < this.rows && this.bytes[j * this.columns + i] === 1;
  }

  /** How many pixels are set. */
  get count() {
    if (this.#count < 0) {
      this.#count = 0;
      for (const byte of this.bytes) this.#count += byte;
    }
    return this.#count;
  }

  /** The edges [x0, y0, x1, y1] around what is set; null where nothing is. */
  get bounds() {
    if (this.#bounds === undefined) this.#bounds = boundsOf(this.bytes, this.columns, this.rows);
    return this.#bounds;
  }
}

function boundsOf(bytes, columns, rows) {
  const first = bytes.indexOf(1);
  if (first < 0) return null;
  const [top, bottom] = [Math.floor(first / columns), Math.floor(bytes.lastIndexOf(1) / columns) + 1];
  let [left, right] = [columns, 0];
  for (let j = top; j < bottom; j += 1) {
    const row = bytes.subarray(j * columns, (j + 1) * columns);
    const start = row.indexOf(1);
    if (start < 0) continue;
    left = Math.min(left, start);
    right = Math.max(right, row.lastIndexOf(1) + 1);
  }
  return [left, top, right, bottom];
}

/**
 * What changed between two states of the bits, for undo.
 * @typedef {{from: number, before: Uint8Array, after: Uint8Array}} Patch
 *
 * @param {Uint8Array} before
 * @param {Uint8Array} after
 * @returns {Patch|null} null where they are equal.
 */
export function difference(before, after) {
  let from = 0;
  while (from < before.length && before[from] === after[from]) from += 1;
  if (from === before.length) return null;
  let to = before.length;
  while (before[to - 1] === after[to - 1]) to -= 1;
  return { from, before: before.slice(from, to), after: after.slice(from, to) };
}

/**
 * @param {Plane} plane
 * @param {Patch} patch
 * @param {"before"|"after"} side  Which state the plane has from now on.
 */
export function applyPatch(plane, patch, side) {
  const packed = plane.packed.slice();
  packed.set(patch[side], patch.from);
  plane.packed = packed;
}

const through = async (bytes, stream) => new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());

/** zlib, both ways; `inflate` rejects with the browser's TypeError for bytes that are none. */
export const inflate = (bytes) => through(bytes, new DecompressionStream("deflate"));
export const deflate = (bytes) => through(bytes, new CompressionStream("deflate"));

export const fromBase64 = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
