// Where the trace panel and the masks on the image meet. Each side registers what it can do and asks for the other by
// a function, so that neither imports the other and neither must be there first.
//
// Boxes are (x0, y0, x1, y1), edges in pixels of the displayed frame: x0 = 0 is the left edge of the first pixel.

/**
 * A box on the picture.
 * @typedef {[number, number, number, number]} Box
 */

/**
 * What a step of a run leads to in the viewer; null where the step has none.
 * @typedef {object} StepPlace
 * @property {string} runId
 * @property {number} sequence          The event that reports the step's result (`ToolReturned`), or that it is.
 * @property {number} frameIndex        The frame as shown.
 * @property {Box|null} box             The box of the call on the frame, for a step that has one.
 * @property {Box|null} crop            The part of the frame that the picture showed, where it is not all of it.
 * @property {string[]} maskVersionIds  The masks that the step made.
 * @property {string} label             What the box outlines, in words.
 */

/**
 * What came of a box that a person dragged.
 * @typedef {object} EditedBox
 * @property {Box} box
 * @property {string|null} maskVersionId  The new version that was previewed and accepted; null where none was made.
 */

/**
 * What the viewer's side does (part 10B, app/viewer_js/masks). Frames are indices as shown.
 * @typedef {object} ViewerBridge
 * @property {(frameIndex: number) => void} goTo
 * @property {(window: {center: number, width: number, function?: string}) => void} setWindow
 * @property {(box: Box|null, style?: {kind: "crop"|"prompt"|"region", frameIndex: number, label?: string}) => void} showBox
 *   Shows a dashed box on its frame until another call; null takes it away.
 * @property {(maskVersionId: string) => void} showMask   Makes a mask visible, without moving anything.
 * @property {(maskVersionId: string) => void} focusMask  Makes it visible, marks it and its row in the list of segments.
 * @property {(maskVersionId: string) => {color: string, label: string}|null} maskLook  For the chip beside a step.
 * @property {(step: StepPlace, done: (edited: EditedBox|null) => void) => () => void} editBox
 *   Makes the step's box draggable, previews its mask and lets it be accepted as the next version of the step's mask.
 *   Calls `done` once: with what was accepted, or with null where it was given up. Returns a function that gives up.
 * @property {() => void} refreshMasks  Masks may have been added by a run: read the list anew.
 */

/**
 * What the trace's side does.
 * @typedef {object} TraceBridge
 * @property {(runId: string, sequence: number) => boolean} selectStepOfMask
 *   Selects the step that made a mask, opening its run where it is another; false where this series has no such run.
 */

const NO_VIEWER = {
  goTo() {},
  setWindow() {},
  showBox() {},
  showMask() {},
  focusMask() {},
  maskLook: () => null,
  editBox: null,
  refreshMasks() {},
};

let viewer = NO_VIEWER;
let trace = { selectStepOfMask: () => false };
const listeners = new Set();

/**
 * Say what the viewer's side can do, whole or in part: what is registered later is added to what is there, so the case
 * page brings the viewer's own (`goTo`, `setWindow`) and 10B the masks'.
 */
export function registerViewerBridge(bridge) {
  viewer = { ...viewer, ...bridge };
  for (const listener of listeners) listener();
}

/** @returns {ViewerBridge} */
export function viewerBridge() {
  return viewer;
}

/** Call when the viewer's side registers, or when its masks' colours or names change (`masksChanged`). */
export function onViewerBridge(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** 10B: colours or labels of masks changed, so the chips are drawn anew. */
export function masksChanged() {
  for (const listener of listeners) listener();
}

export function registerTraceBridge(bridge) {
  trace = bridge;
}

/** @returns {TraceBridge} */
export function traceBridge() {
  return trace;
}
