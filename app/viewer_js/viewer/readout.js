/** What the file says at one place of the picture. */

/**
 * @param {import("./contract.js").SeriesDescriptor} series
 * @param {import("./contract.js").FrameValues | null} frame
 * @param {[number, number]} place  Picture coordinates.
 * @returns {{i: number, j: number, value: number | number[] | null, text: string} | null} Column, row and the rescaled
 *     value (three for colour, null for padding); null beside the picture.
 */
export function readingAt(series, frame, [x, y]) {
  const { rows, columns, samples } = series.pixel;
  const [i, j] = [Math.floor(x), Math.floor(y)];
  if (!frame || i < 0 || j < 0 || i >= columns || j >= rows) return null;
  const { slope, intercept, padding } = frame.facts;
  const at = (j * columns + i) * samples;
  const stored = Array.from(frame.stored.subarray(at, at + samples));
  const reading = (value, text) => ({ i, j, value, text: `x ${i} y ${j} · ${text}` });
  if (samples > 1) return reading(stored, stored.join(" "));
  if (padding && stored[0] >= padding[0] && stored[0] <= padding[1]) return reading(null, "padding");
  const value = stored[0] * slope + intercept;
  return reading(value, valueText(value, series.unit));
}

/** A value with its unit: whole numbers as they are, others to six digits. */
function valueText(value, unit) {
  const number = Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(6)));
  return unit ? `${number} ${unit}` : number;
}
