/** A bar of a round length, in millimetres only where the file gives a spacing. */

const LENGTHS_MM = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200];

/**
 * The longest round length that fits.
 *
 * @param {number} viewPixelsPerMm
 * @param {number} room  CSS pixels.
 * @returns {{mm: number, pixels: number} | null} null where not even the least length fits.
 */
export function roundLength(viewPixelsPerMm, room) {
  const mm = LENGTHS_MM.findLast((length) => length * viewPixelsPerMm <= room);
  if (mm === undefined) return null;
  return { mm, pixels: mm * viewPixelsPerMm };
}

/**
 * What the scale bar shows.
 *
 * @param {import("./camera.js").Camera} camera
 * @param {[number, number] | null} spacing  mm between rows, then between columns.
 * @param {"patient" | "imager" | "unknown"} source
 * @returns {{pixels: number, label: string}} A bar of 0 pixels where there are no millimetres.
 */
export function scaleBar(camera, spacing, source) {
  if (!spacing || source === "unknown") return { pixels: 0, label: "no pixel spacing: px only" };
  const viewPixelsPerMm = (camera.stretch.x * camera.zoom) / spacing[1];
  const bar = roundLength(viewPixelsPerMm, 140);
  if (!bar) return { pixels: 0, label: "" };
  // Measured where the rays meet the detector; the patient, nearer to the source, is smaller than that.
  if (source === "imager") return { pixels: bar.pixels, label: `${bar.mm} detector mm` };
  return { pixels: bar.pixels, label: bar.mm >= 10 ? `${bar.mm / 10} cm` : `${bar.mm} mm` };
}
