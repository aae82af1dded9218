// The border of a plane, along the edges of its pixels.

// Noise all over a large picture has more edges than a stroke can draw in a frame; its fill alone is shown then.
const MOST_RUNS = 40_000;

/**
 * @param {import("./plane.js").Plane} plane
 * @returns {Path2D|null} In picture coordinates; null where nothing is set, or where the border is beyond drawing.
 */
export function outlineOf(plane) {
  const { bounds } = plane;
  if (!bounds) return null;
  const path = new Path2D();
  const runs = levelEdges(path, plane, bounds) + uprightEdges(path, plane, bounds);
  return runs > MOST_RUNS ? null : path;
}

/** Edges between a row and the one above it. */
function levelEdges(path, { bytes, columns, rows }, [x0, y0, x1, y1]) {
  let runs = 0;
  for (let y = y0; y <= y1 && runs <= MOST_RUNS; y += 1) {
    const here = y < rows ? y * columns : -1;
    const above = y > 0 ? (y - 1) * columns : -1;
    let start = -1;
    for (let x = x0; x < x1; x += 1) {
      const isEdge = (here < 0 ? 0 : bytes[here + x]) !== (above < 0 ? 0 : bytes[above + x]);
      if (isEdge === start >= 0) continue;
      if (isEdge) start = x;
      else {
        path.moveTo(start, y);
        path.lineTo(x, y);
        start = -1;
        runs += 1;
      }
    }
    if (start < 0) continue;
    path.moveTo(start, y);
    path.lineTo(x1, y);
    runs += 1;
  }
  return runs;
}

/** Edges between a column and the one before it; row by row, as the memory lies, with one run open for each column. */
function uprightEdges(path, { bytes, columns }, [x0, y0, x1, y1]) {
  const starts = new Int32Array(x1 - x0 + 1).fill(-1);
  let runs = 0;
  const end = (x, y) => {
    path.moveTo(x, starts[x - x0]);
    path.lineTo(x, y);
    starts[x - x0] = -1;
    runs += 1;
  };
  for (let y = y0; y < y1 && runs <= MOST_RUNS; y += 1) {
    const row = y * columns;
    let before = 0;
    for (let x = x0; x <= x1; x += 1) {
      const here = x < x1 ? bytes[row + x] : 0;
      const isEdge = here !== before;
      before = here;
      if (isEdge === starts[x - x0] >= 0) continue;
      if (isEdge) starts[x - x0] = y;
      else end(x, y);
    }
  }
  for (let x = x0; x <= x1; x += 1) if (starts[x - x0] >= 0) end(x, y1);
  return runs;
}
