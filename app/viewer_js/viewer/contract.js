/**
 * What the server says about a series (GET /api/series/{id}), as types for the rest of the viewer.
 *
 * @typedef {"LINEAR" | "LINEAR_EXACT" | "SIGMOID"} VoiLutFunction
 * @typedef {{center: number, width: number, function?: VoiLutFunction, label?: string | null}} Window
 *     In the unit of rescaled values (HU for CT). Source: DICOM PS3.3 C.11.2.1.2 and C.11.2.1.3.
 * @typedef {{left: string, right: string, top: string, bottom: string}} Letters
 * @typedef {{key?: string, label: string, center: number, width: number, function?: VoiLutFunction}} Preset
 *
 * @typedef {object} FrameFacts
 * @property {number} index  Place in the series, from 0.
 * @property {[number, number] | null} spacing  mm between rows, then between columns.
 * @property {Letters | null} letters  The patient direction of each edge, null where the file does not say.
 * @property {number} slope  Rescale slope.
 * @property {number} intercept  Rescale intercept.
 * @property {[number, number] | null} padding  Least and greatest stored value that is no image.
 * @property {Window | null} window  The frame's own window.
 * @property {number | null} position_mm  Along the normal of the stack.
 * @property {number | null} time_ms  Start of the frame from the first one, for a loop in time.
 *
 * @typedef {object} SeriesDescriptor
 * @property {string} id
 * @property {string} modality
 * @property {string} description
 * @property {string} kind
 * @property {string} kind_label
 * @property {string | null} kind_reason
 * @property {boolean} three_d
 * @property {{rows: number, columns: number, samples: number, dtype: string, photometric: string}} pixel  As shown.
 * @property {string | null} unit
 * @property {"patient" | "imager" | "unknown"} spacing_source
 * @property {Window[]} windows
 * @property {Preset[]} presets
 * @property {FrameFacts[]} frames
 *
 * @typedef {object} FrameValues  A frame with its pixels.
 * @property {ArrayLike<number>} stored  Stored values, rows x columns x samples.
 * @property {FrameFacts} facts
 * @property {number} bytes
 */

/** What the viewer reports on purpose: `code` is stable, the message is for people. */
export class ViewerError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   */
  constructor(code, message) {
    super(message);
    this.name = "ViewerError";
    this.code = code;
  }
}

export const RESEARCH_NOTICE = "Research use, not for diagnosis";

/**
 * Where a series is served.
 * @param {string} seriesId
 */
export function seriesUrl(seriesId) {
  return `/api/series/${encodeURIComponent(seriesId)}`;
}
