/** What a drag with each tool does to the viewer. */

import { draggedWindow } from "./windowing.js";

/** Turns gestures into calls of the viewer. */
export class HandTools {
  #viewer;
  #start = { window: null, zoom: 1, index: 0 };

  /** @param {import("./viewer.js").Viewer} viewer */
  constructor(viewer) {
    this.#viewer = viewer;
  }

  tool() {
    return this.#viewer.state().tool;
  }

  begin() {
    const { window, zoom, target } = this.#viewer.state();
    this.#start = { window, zoom, index: target };
  }

  drag(tool, { dx, dy, totalX, totalY, from }) {
    if (tool === "pan") this.#viewer.pan(dx, dy);
    else if (tool === "zoom") this.#viewer.setZoom(this.#start.zoom * 1.01 ** -totalY, from);
    else if (tool === "scroll") this.#viewer.goTo(this.#start.index + totalY / this.#pixelsPerSlice());
    else if (tool === "window" && this.#start.window) this.#viewer.setWindow(draggedWindow(this.#start.window, totalX, totalY));
  }

  scroll(slices) {
    this.#viewer.step(slices);
  }

  zoom(factor, about) {
    this.#viewer.setZoom(this.#viewer.state().zoom * factor, about);
  }

  pan(dx, dy) {
    this.#viewer.pan(dx, dy);
  }

  hover(at) {
    this.#viewer.hover(at);
  }

  /** A drag over half the view goes through the whole series, but no slice takes less than 2 or more than 20 pixels. */
  #pixelsPerSlice() {
    const { count } = this.#viewer.state();
    return Math.min(20, Math.max(2, this.#viewer.camera.view.height / 2 / count));
  }
}
