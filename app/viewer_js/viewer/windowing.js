/**
 * Stored values to grey levels, as backend.imaging.render does it: the two agree to one grey level. DESIGN 3.
 *
 * Done here and not by the renderer: Cornerstone's own lookup knows no padding (an inverted picture would show it
 * white), no LINEAR_EXACT, and no SIGMOID in CPU mode.
 */

/**
 * @typedef {object} Look  How a frame is to be seen.
 * @property {import("./contract.js").Window} window
 * @property {boolean} inverted  White for the least value (MONOCHROME1, or the reader's wish; both undo each other).
 */

/**
 * The grey level of one rescaled value.
 *
 * @param {import("./contract.js").Window} window
 * @returns {(value: number) => number} 0..255, not rounded.
 *
 * Source: DICOM PS3.3 C.11.2.1.2.1 (LINEAR), C.11.2.1.3.1 (SIGMOID), C.11.2.1.3.2 (LINEAR_EXACT).
 */
export function voiFunction({ center, width, function: name = "LINEAR" }) {
  const clamp = (grey) => Math.min(255, Math.max(0, grey));
  if (name === "SIGMOID") return (value) => 255 / (1 + Math.exp((-4 * (value - center)) / width));
  if (name === "LINEAR_EXACT") return (value) => clamp(((value - center) / width + 0.5) * 255);
  // Width 1 is a step at center - 0.5, where the formula would divide by 0.
  if (width <= 1) return (value) => (value > center - 0.5 ? 255 : 0);
  return (value) => clamp(((value - (center - 0.5)) / (width - 1) + 0.5) * 255);
}

/** The grey level of one stored value of a frame, rounded; padding is black whatever the photometric says. */
function greyOfStored(facts, { window, inverted }) {
  const voi = voiFunction(window);
  const [padFrom, padTo] = facts.padding ?? [Infinity, -Infinity];
  return (stored) => {
    // What is no finite number (a float frame may hold it) has no place on the grey scale: black, as padding is.
    if ((stored >= padFrom && stored <= padTo) || !Number.isFinite(stored)) return 0;
    const grey = voi(stored * facts.slope + facts.intercept);
    return Math.round(inverted ? 255 - grey : grey);
  };
}

const packed = (grey) => (0xff000000 | (grey << 16) | (grey << 8) | grey) >>> 0;
const plain = (grey) => grey;

/** The last table of each kind: frames of a series mostly share it, and its 65,536 entries cost more than a frame. */
const lastTable = { [Uint8Array.name]: null, [Uint32Array.name]: null };

/**
 * A table over all bit patterns of an 8 or 16 bit frame, to be indexed by `stored & mask`; null for wider frames.
 */
function tableOf({ stored, facts }, look, Entries) {
  if (stored.BYTES_PER_ELEMENT > 2) return null;
  const { window, inverted } = look;
  const { slope, intercept, padding } = facts;
  const key = JSON.stringify([stored.constructor.name, window, inverted, slope, intercept, padding]);
  if (lastTable[Entries.name]?.key === key) return lastTable[Entries.name].table;
  const size = 1 << (8 * stored.BYTES_PER_ELEMENT);
  const isSigned = stored instanceof Int8Array || stored instanceof Int16Array;
  const grey = greyOfStored(facts, look);
  const entry = Entries === Uint32Array ? packed : plain;
  const table = new Entries(size);
  for (let pattern = 0; pattern < size; pattern += 1) {
    table[pattern] = entry(grey(isSigned && pattern >= size / 2 ? pattern - size : pattern));
  }
  lastTable[Entries.name] = { key, table };
  return table;
}

function fill(frame, look, out) {
  const { stored, facts } = frame;
  const count = stored.length;
  const Entries = out instanceof Uint32Array ? Uint32Array : Uint8Array;
  const table = tableOf(frame, look, Entries);
  if (table) {
    const mask = table.length - 1;
    for (let at = 0; at < count; at += 1) out[at] = table[stored[at] & mask];
    return;
  }
  const grey = greyOfStored(facts, look);
  const entry = Entries === Uint32Array ? packed : plain;
  for (let at = 0; at < count; at += 1) out[at] = entry(grey(stored[at]));
}

/**
 * Write a frame as opaque RGBA pixels.
 *
 * @param {import("./contract.js").FrameValues} frame
 * @param {Look} look  Not used for a colour frame but for `inverted`.
 * @param {number} samples  1, or 3 for RGB.
 * @param {Uint32Array} out  rows x columns; one little-endian RGBA pixel each.
 */
export function toRgba(frame, look, samples, out) {
  if (samples === 1) {
    fill(frame, look, out);
    return;
  }
  const { stored } = frame;
  const flip = look.inverted ? 255 : 0;
  const shift = stored.BYTES_PER_ELEMENT === 2 ? 8 : 0;
  for (let at = 0, from = 0; at < out.length; at += 1, from += 3) {
    const red = (stored[from] >> shift) ^ flip;
    const green = (stored[from + 1] >> shift) ^ flip;
    const blue = (stored[from + 2] >> shift) ^ flip;
    out[at] = (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
  }
}

/**
 * Write a frame as bytes: one a pixel for grey, three for colour.
 *
 * @param {import("./contract.js").FrameValues} frame
 * @param {Look} look
 * @param {number} samples
 * @param {Uint8Array} out  rows x columns x samples.
 */
export function toBytes(frame, look, samples, out) {
  if (samples === 1) {
    fill(frame, look, out);
    return;
  }
  const { stored } = frame;
  const flip = look.inverted ? 255 : 0;
  const shift = stored.BYTES_PER_ELEMENT === 2 ? 8 : 0;
  for (let at = 0; at < out.length; at += 1) out[at] = (stored[at] >> shift) ^ flip;
}

/**
 * The window that shows every value of a frame, padding apart.
 *
 * @param {import("./contract.js").FrameValues} frame
 * @returns {import("./contract.js").Window}
 */
export function fullRange({ stored, facts }) {
  const [padFrom, padTo] = facts.padding ?? [Infinity, -Infinity];
  let least = Infinity;
  let greatest = -Infinity;
  for (let at = 0; at < stored.length; at += 1) {
    const value = stored[at];
    if ((value >= padFrom && value <= padTo) || !Number.isFinite(value)) continue;
    if (value < least) least = value;
    if (value > greatest) greatest = value;
  }
  if (!(greatest >= least)) return { center: 0.5, width: 1, function: "LINEAR_EXACT" };
  const ends = [least * facts.slope + facts.intercept, greatest * facts.slope + facts.intercept];
  const width = Math.abs(ends[1] - ends[0]);
  return { center: (ends[0] + ends[1]) / 2, width: width || 1, function: "LINEAR_EXACT" };
}

/**
 * The window after a drag: to the right wider, down brighter less, in steps that fit the window it began with.
 *
 * @param {import("./contract.js").Window} from  The window when the drag began.
 * @param {number} dx  CSS pixels to the right.
 * @param {number} dy  CSS pixels down.
 * @returns {import("./contract.js").Window}
 */
export function draggedWindow(from, dx, dy) {
  const perPixel = Math.max(from.width, 1e-6) / 256;
  const round = from.width >= 32 ? Math.round : (value) => Number(value.toPrecision(4));
  const least = from.function === "LINEAR" || from.function === undefined ? 1 : from.width / 1000;
  return {
    center: round(from.center + dy * perPixel),
    width: Math.max(least, round(from.width + dx * perPixel)),
    function: from.function,
  };
}
