/** The windows a reader can choose from, with their keys. */

import { fullRange } from "./windowing.js";

/**
 * The choices of a series: the file's own windows, the presets of its modality, and the full range of the shown frame.
 *
 * @param {import("./contract.js").SeriesDescriptor} series
 * @returns {{key: string, label: string, window: import("./contract.js").Window | null}[]} `window` is null where it is
 *     made from the shown frame. Keys are "1" to "9" in order, "" from the tenth on.
 */
export function choicesOf(series) {
  if (series.pixel.samples !== 1) return [];
  const own = series.windows.map((window, at) => ({ label: window.label || `window ${at + 1} of the file`, window }));
  const named = series.presets.map(({ label, ...window }) => ({ label, window }));
  const choices = new Map();
  for (const choice of [...named, ...own, { label: "full range", window: null }]) {
    const known = choice.label.toLowerCase();
    if (!choices.has(known)) choices.set(known, choice);
  }
  return [...choices.values()].map((choice, at) => ({ key: at < 9 ? String(at + 1) : "", ...choice }));
}

/**
 * @param {{window: import("./contract.js").Window | null}} choice
 * @param {import("./contract.js").FrameValues} frame  The shown frame.
 */
export function windowOf(choice, frame) {
  const { center, width, function: name } = choice.window ?? fullRange(frame);
  return { center, width, function: name ?? "LINEAR" };
}
