// The border of a plane, along the edges of its pixels.

// Noise all over a large picture has more edges than a stroke can draw in a frame; its fill alone is shown then.
const MOST_RUNS = 40_000;

/**
 * @param {import("./plane.js").Plane} plane
 * @returns {Path2D|null} In picture coordinates; null where nothing is set, or where the border is beyond drawing.
 */
export function outlineOf(plane) {
  const { bounds, bytes, columns } = plane;
  if (!bounds) return null;
  const [x0, y0, x1, y1] = bounds;
  const isSet = (i, j) => i >= x0 && j >= y0 && i < x1 && j < y1 && bytes[j * columns + i] === 1;
  const path = new Path2D();
  let runs = 0;
  for (let y = y0; y <= y1; y += 1) {
    let start = -1;
    for (let x = x0; x <= x1; x += 1) {
      const isEdge = isSet(x, y) !== isSet(x, y - 1);
      if (isEdge && start < 0) start = x;
      if (isEdge || start < 0) continue;
      path.moveTo(start, y);
      path.lineTo(x, y);
      start = -1;
      runs += 1;
    }
  }
  for (let x = x0; x <= x1; x += 1) {
    let start = -1;
    for (let y = y0; y <= y1; y += 1) {
      const isEdge = isSet(x, y) !== isSet(x - 1, y);
      if (isEdge && start < 0) start = y;
      if (isEdge || start < 0) continue;
      path.moveTo(x, start);
      path.lineTo(x, y);
      start = -1;
      runs += 1;
    }
    if (runs > MOST_RUNS) return null;
  }
  return path;
}
