/** Draws on a 2D canvas: the way for computers without a GPU, and as fast as the screen there. */

import { toRgba } from "./windowing.js";

/** CPU rendering. A frame is windowed once into a canvas of its own size, which is then placed by the camera. */
export class CanvasPainter {
  mode = "cpu";
  #screen = document.createElement("canvas");
  #picture = document.createElement("canvas");
  #screenContext;
  #pictureContext;
  #pixels = null;
  #words = null;
  #samples = 1;

  /** @param {HTMLElement} host */
  constructor(host) {
    this.#screen.className = "sv-canvas";
    host.append(this.#screen);
    this.#screenContext = this.#screen.getContext("2d", { alpha: false });
    // Read back by no one, but this keeps the small canvas in main memory, where putImageData is a plain copy.
    this.#pictureContext = this.#picture.getContext("2d", { willReadFrequently: true });
  }

  /** The canvas whose pixels are on the screen. */
  get canvas() {
    return this.#screen;
  }

  /**
   * Make room for the frames of a series.
   * @param {import("./contract.js").SeriesDescriptor["pixel"]} pixel
   */
  async open({ rows, columns, samples }) {
    this.#picture.width = columns;
    this.#picture.height = rows;
    this.#pixels = this.#pictureContext.createImageData(columns, rows);
    this.#words = new Uint32Array(this.#pixels.data.buffer);
    this.#samples = samples;
  }

  /**
   * Window a frame; `draw` places it.
   *
   * @param {import("./contract.js").FrameValues} frame
   * @param {import("./windowing.js").Look} look
   */
  show(frame, look) {
    toRgba(frame, look, this.#samples, this.#words);
    this.#pictureContext.putImageData(this.#pixels, 0, 0);
  }

  /**
   * @param {import("./camera.js").Camera} camera
   * @param {boolean} isSmooth  Interpolate between pixels, or show them as squares.
   */
  draw(camera, isSmooth) {
    const { width, height, ratio } = camera.view;
    this.#fitScreen(Math.round(width * ratio), Math.round(height * ratio));
    const context = this.#screenContext;
    const [left, top] = camera.toView([0, 0]);
    const scaleX = camera.stretch.x * camera.zoom * ratio;
    const scaleY = camera.stretch.y * camera.zoom * ratio;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = "#000";
    context.fillRect(0, 0, this.#screen.width, this.#screen.height);
    context.imageSmoothingEnabled = isSmooth;
    // "medium" averages when a large X-ray is shown small; plain bilinear would drop lines and fine fractures.
    context.imageSmoothingQuality = scaleX < 0.75 ? "medium" : "low";
    context.setTransform(scaleX, 0, 0, scaleY, Math.round(left * ratio), Math.round(top * ratio));
    context.drawImage(this.#picture, 0, 0);
  }

  /** Show nothing: no frame, or one that could not be read. */
  clear(camera) {
    const { width, height, ratio } = camera.view;
    this.#fitScreen(Math.round(width * ratio), Math.round(height * ratio));
    this.#screenContext.setTransform(1, 0, 0, 1, 0, 0);
    this.#screenContext.fillStyle = "#000";
    this.#screenContext.fillRect(0, 0, this.#screen.width, this.#screen.height);
  }

  destroy() {
    this.#screen.remove();
  }

  #fitScreen(width, height) {
    if (this.#screen.width !== width) this.#screen.width = width;
    if (this.#screen.height !== height) this.#screen.height = height;
  }
}
