// Masks as the page knows them: the newest version of each, with its segments and their sizes.

import { hasMillimetres } from "../shell/words.js";

/**
 * @typedef {object} Segment
 * @property {number} number
 * @property {string} label
 * @property {string} color
 * @property {Map<number, number>} pixels  Pixels set, by frame as shown; frames without any are absent.
 * @property {boolean} isVisible
 */

let made = 0;

/** One mask. `id`, `versionId` and `version` are those of the server, null and 0 until it has stored the first one. */
export class Mask {
  constructor(seriesId) {
    made += 1;
    this.key = `m${made}`;
    this.seriesId = seriesId;
    this.id = null;
    this.versionId = null;
    this.version = 0;
    this.author = null;
    /** @type {Segment[]} */
    this.segments = [];
    this.isResampled = false;
    /** Grows when planes that are kept do not belong to this version any more. */
    this.epoch = 0;
    /** Another tab or person saved a newer version while there were edits here. */
    this.isConflicted = false;
  }

  segment(number) {
    return this.segments.find((one) => one.number === number) ?? null;
  }

  /** Take a version from the server; visibility stays as it is here. Planes that are kept stay valid. */
  take(version) {
    this.id = version.mask_id;
    this.versionId = version.id;
    this.version = version.version;
    this.author = version.author;
    this.isResampled = version.is_resampled;
    this.segments = version.segments.map(({ number, label, color, frames }) => {
      const known = this.segment(number);
      const pixels = frames ? new Map(frames.map(({ frame_index, area_px }) => [frame_index, area_px])) : (known?.pixels ?? new Map());
      return { number, label, color, pixels, isVisible: known?.isVisible ?? true };
    });
  }
}

export const segmentTotal = (segment) => [...segment.pixels.values()].reduce((sum, pixels) => sum + pixels, 0);

/**
 * The frame nearest to `index` on which a segment has pixels; null where it has none.
 * @param {Segment} segment
 * @param {number} index
 */
export function nearestFrame(segment, index) {
  if (segment.pixels.has(index)) return index;
  return [...segment.pixels.keys()].reduce((best, frame) => (best === null || Math.abs(frame - index) < Math.abs(best - index) ? frame : best), null);
}

/**
 * mm3 of one voxel, where the slices are a volume at one distance; null where there are no millimetres.
 * @param {import("../viewer/contract.js").SeriesDescriptor} series
 */
export function voxelMm3(series) {
  const [first, second] = series.frames;
  if (!series.three_d || !hasMillimetres(series.spacing_source) || !first?.spacing || !first.ipp || !first.iop || !second?.ipp) return null;
  const [a, b, c, d, e, f] = first.iop;
  const normal = [b * f - c * e, c * d - a * f, a * e - b * d];
  const apart = Math.abs(normal.reduce((sum, part, axis) => sum + part * (second.ipp[axis] - first.ipp[axis]), 0));
  return apart > 0 ? first.spacing[0] * first.spacing[1] * apart : null;
}

/** mm2 of that many pixels of a frame; null where there are no millimetres. */
export function areaMm2(pixels, spacing) {
  return spacing ? pixels * spacing[0] * spacing[1] : null;
}
