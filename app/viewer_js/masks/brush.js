// The brush's rule, and nothing else.

/**
 * How a brush measures: `radius` in the unit of `spacing`.
 * @typedef {object} Tip
 * @property {number} radius
 * @property {[number, number]} spacing  Between rows, then between columns: mm, or [1, 1] where it is unknown (then
 *   the radius is in pixels).
 */

/** The least radius: the half diagonal of a pixel, so that a click always reaches the centre of one. */
export const leastRadius = ([row, column]) => Math.hypot(row, column) / 2;

/**
 * Paint one stretch of a stroke.
 *
 * The rule: a pixel is painted if and only if its centre (i + 0.5, j + 0.5) lies in the circle swept from `from` to
 * `to`: its distance to that line, measured in mm on the picture's plane, is at most the radius. What the circle
 * covers beside that is not touched, and a pixel is painted whole or not at all. A click is a line of length 0. A stroke
 * is the union of its stretches, so its pixels do not depend on how often the browser reports the pointer's places
 * along a straight line.
 *
 * @param {import("./plane.js").Plane} plane
 * @param {[number, number]} from  Picture coordinates (edges).
 * @param {[number, number]} to
 * @param {Tip} tip
 * @param {boolean} isSet  Paint, or erase.
 * @returns {boolean} Whether any pixel changed.
 */
export function paintStretch(plane, from, to, { radius, spacing: [row, column] }, isSet) {
  const { columns, rows, bytes } = plane;
  const value = isSet ? 1 : 0;
  const [reachX, reachY] = [radius / column, radius / row];
  const left = Math.max(0, Math.floor(Math.min(from[0], to[0]) - reachX - 0.5));
  const right = Math.min(columns - 1, Math.ceil(Math.max(from[0], to[0]) + reachX - 0.5));
  const top = Math.max(0, Math.floor(Math.min(from[1], to[1]) - reachY - 0.5));
  const bottom = Math.min(rows - 1, Math.ceil(Math.max(from[1], to[1]) + reachY - 0.5));
  const [ax, ay] = [from[0] * column, from[1] * row];
  const [dx, dy] = [to[0] * column - ax, to[1] * row - ay];
  const length2 = dx * dx + dy * dy;
  const reach2 = radius * radius;
  let hasChanged = false;
  for (let j = top; j <= bottom; j += 1) {
    const y = (j + 0.5) * row - ay;
    for (let i = left; i <= right; i += 1) {
      const at = j * columns + i;
      if (bytes[at] === value) continue;
      const x = (i + 0.5) * column - ax;
      const along = length2 === 0 ? 0 : Math.min(1, Math.max(0, (x * dx + y * dy) / length2));
      const [awayX, awayY] = [x - along * dx, y - along * dy];
      if (awayX * awayX + awayY * awayY > reach2) continue;
      bytes[at] = value;
      hasChanged = true;
    }
  }
  if (hasChanged) plane.changed();
  return hasChanged;
}
