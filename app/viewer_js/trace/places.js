// Where on the frame a step lies: its box, its crop, its masks, its window. Pure.

/** An exact fraction as an event writes it ("512", "1023/2"). */
export function fraction(text) {
  const [above, below = "1"] = String(text).split("/");
  return Number(above) / Number(below);
}

/** The part of the frame that a picture showed; null where it is all of it. */
export function cropOf(view) {
  const [x0, y0, x1, y1] = view.crop.map(fraction);
  const isWhole = x0 === 0 && y0 === 0 && x1 === view.frame_width && y1 === view.frame_height;
  return isWhole ? null : [x0, y0, x1, y1];
}

/** A box in pixels of a picture (edges) on the displayed frame (edges). */
export function toFrame(box, view) {
  const [x0, y0, x1, y1] = view.crop.map(fraction);
  const across = (x1 - x0) / view.width;
  const down = (y1 - y0) / view.height;
  return [x0 + box[0] * across, y0 + box[1] * down, x0 + box[2] * across, y0 + box[3] * down];
}

/**
 * Where a step lies.
 * @param {import("./steps.js").Step} step
 * @param {{picture: (index: number) => object|undefined, mask: (number: number) => object|undefined}} known
 *   The pictures (payloads of `ImageShown`) and masks of the run and of those that it goes on from, by their numbers.
 * @returns {(import("./bridge.js").StepPlace & {window: object|null})|null}
 */
export function placeOf(step, known) {
  const { called, result, shown } = step;
  if (!called) return null;
  const given = called.payload.arguments;
  const named = known.picture(called.payload.view_index)?.view ?? null;
  const view = shown?.payload.view ?? named;
  const measured = called.payload.tool === "measure" ? known.mask(given.mask) : undefined;
  const masks = measured ? [measured] : (result?.payload.masks ?? []);
  const frameIndex = view?.frame_index ?? masks[0]?.frame_index;
  if (frameIndex === undefined) return null;
  const hasBox = called.payload.tool === "sam2" && Array.isArray(given.bbox_2d) && named;
  return {
    runId: step.runId,
    sequence: (result ?? called).sequence,
    frameIndex,
    box: hasBox ? toFrame(given.bbox_2d, named) : null,
    crop: view ? cropOf(view) : null,
    maskVersionIds: masks.map((mask) => mask.mask_version_id),
    label: String(given.label ?? given.captions ?? ""),
    window: view?.window ?? null,
  };
}
