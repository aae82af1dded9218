// Draws masks, previews, boxes and points over the picture, on a canvas of its own that serves both ways of rendering.

import { outlineOf } from "./outline.js";

const FILL_LEAST = 0.03;

/** A plane's pixels as a canvas no larger than what is set, and its border; both made anew only when it changed. */
class Drawn {
  #canvas = document.createElement("canvas");
  #plane = null;
  #revision = -1;
  #color = "";
  #bounds = null;
  #outline = null;

  update(plane, color) {
    if (plane === this.#plane && plane.revision === this.#revision && color === this.#color) return;
    if (plane !== this.#plane || plane.revision !== this.#revision) this.#outline = outlineOf(plane);
    [this.#plane, this.#revision, this.#color] = [plane, plane.revision, color];
    this.#bounds = plane.bounds;
    if (this.#bounds) this.#fill(plane, color);
  }

  #fill(plane, color) {
    const [x0, y0, x1, y1] = this.#bounds;
    const [width, height] = [x1 - x0, y1 - y0];
    if (this.#canvas.width !== width) this.#canvas.width = width;
    if (this.#canvas.height !== height) this.#canvas.height = height;
    const context = this.#canvas.getContext("2d", { willReadFrequently: true });
    const image = context.createImageData(width, height);
    const words = new Uint32Array(image.data.buffer);
    const word = wordOf(color);
    const { bytes, columns } = plane;
    for (let y = 0; y < height; y += 1) {
      const from = (y + y0) * columns + x0;
      const to = y * width;
      for (let x = 0; x < width; x += 1) if (bytes[from + x]) words[to + x] = word;
    }
    context.putImageData(image, 0, 0);
  }

  /** In picture coordinates on a context that is placed. */
  fillOn(context, opacity) {
    if (!this.#bounds || opacity < FILL_LEAST) return;
    context.globalAlpha = opacity;
    context.drawImage(this.#canvas, this.#bounds[0], this.#bounds[1]);
    context.globalAlpha = 1;
  }

  strokeOn(context, placed, { width, dash = [] }) {
    if (!this.#outline) return;
    const path = new Path2D();
    path.addPath(this.#outline, placed);
    context.lineWidth = width;
    context.setLineDash(dash);
    context.strokeStyle = this.#color;
    context.stroke(path);
    context.setLineDash([]);
  }
}

const parts = (color) => [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16));

/** An opaque pixel in the byte order of this computer. */
function wordOf(color) {
  const bytes = new Uint8Array([...parts(color), 255]);
  return new Uint32Array(bytes.buffer)[0];
}

/**
 * What is drawn over one frame.
 * @typedef {object} Scene
 * @property {{key: string, plane: import("./plane.js").Plane, color: string, isActive: boolean}[]} masks
 * @property {{plane: import("./plane.js").Plane, color: string}|null} preview
 * @property {{box: number[], color: string, label?: string, isDashed: boolean, handles?: number[][]}[]} boxes
 * @property {{at: [number, number], isPositive: boolean}[]} points
 * @property {number} opacity
 */

/** A layer of the viewer: `scene(series, index)` says what belongs on a frame, this draws it. */
export class MaskOverlay {
  element = document.createElement("canvas");
  #context = this.element.getContext("2d");
  #scene;
  #drawn = new Map();
  #preview = new Drawn();
  #shown = null;
  #request = 0;

  /** @param {(series: object, index: number) => Scene|null} scene */
  constructor(scene) {
    this.element.className = "sm-overlay";
    this.#scene = scene;
  }

  /** The viewer has drawn a picture: draw what goes with it. */
  draw(shown) {
    this.#shown = shown;
    this.#paint();
  }

  clear() {
    this.#shown = null;
    this.#drawn.clear();
    this.#context.setTransform(1, 0, 0, 1, 0, 0);
    this.#context.clearRect(0, 0, this.element.width, this.element.height);
  }

  /** Draw again what is over the picture, which itself stays. */
  schedule() {
    if (this.#request || !this.#shown) return;
    this.#request = requestAnimationFrame(() => {
      this.#request = 0;
      if (this.#shown) this.#paint();
    });
  }

  #paint() {
    const { series, index, camera } = this.#shown;
    const { width, height, ratio } = camera.view;
    this.#fitScreen(Math.round(width * ratio), Math.round(height * ratio));
    const context = this.#context;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.element.width, this.element.height);
    const scene = this.#scene(series, index);
    if (!scene) return;
    const placed = placeOf(camera);
    this.#drawMasks(scene, placed, ratio);
    for (const box of scene.boxes) drawBox(context, box, placed, ratio);
    for (const point of scene.points) drawPoint(context, point, placed, ratio);
  }

  #drawMasks({ masks, preview, opacity }, placed, ratio) {
    const context = this.#context;
    const keys = new Set(masks.map(({ key }) => key));
    for (const key of this.#drawn.keys()) if (!keys.has(key)) this.#drawn.delete(key);
    const all = masks.map(({ key, plane, color, isActive }) => {
      if (!this.#drawn.has(key)) this.#drawn.set(key, new Drawn());
      const drawn = this.#drawn.get(key);
      drawn.update(plane, color);
      return { drawn, line: { width: (isActive ? 2 : 1.4) * ratio } };
    });
    if (preview) {
      this.#preview.update(preview.plane, preview.color);
      all.push({ drawn: this.#preview, line: { width: 1.8 * ratio, dash: [5 * ratio, 4 * ratio] }, opacity: 0.22 });
    }
    context.imageSmoothingEnabled = false;
    context.setTransform(placed);
    for (const one of all) one.drawn.fillOn(context, one.opacity ?? opacity);
    context.setTransform(1, 0, 0, 1, 0, 0);
    for (const { drawn, line } of all) drawn.strokeOn(context, placed, line);
  }

  #fitScreen(width, height) {
    if (this.element.width !== width) this.element.width = width;
    if (this.element.height !== height) this.element.height = height;
  }
}

/** Picture coordinates to device pixels: the corner on a whole one, exactly where the painters put the picture's. */
function placeOf(camera) {
  const { ratio } = camera.view;
  const [left, top] = camera.toView([0, 0]);
  return new DOMMatrix([camera.stretch.x * camera.zoom * ratio, 0, 0, camera.stretch.y * camera.zoom * ratio, Math.round(left * ratio), Math.round(top * ratio)]);
}

const toScreen = (placed, [x, y]) => [placed.a * x + placed.e, placed.d * y + placed.f];

function drawBox(context, { box, color, label, isDashed, handles = [] }, placed, ratio) {
  const [left, top] = toScreen(placed, [box[0], box[1]]);
  const [right, bottom] = toScreen(placed, [box[2], box[3]]);
  const [x, y, width, height] = [Math.min(left, right), Math.min(top, bottom), Math.abs(right - left), Math.abs(bottom - top)];
  context.lineWidth = 3.4 * ratio;
  context.strokeStyle = "#0008";
  context.strokeRect(x, y, width, height);
  context.lineWidth = 1.4 * ratio;
  context.strokeStyle = color;
  if (isDashed) context.setLineDash([5 * ratio, 4 * ratio]);
  context.strokeRect(x, y, width, height);
  context.setLineDash([]);
  for (const handle of handles) {
    const [at, over] = toScreen(placed, handle);
    context.fillStyle = "#0b0d10";
    context.fillRect(at - 4.5 * ratio, over - 4.5 * ratio, 9 * ratio, 9 * ratio);
    context.fillStyle = color;
    context.fillRect(at - 3 * ratio, over - 3 * ratio, 6 * ratio, 6 * ratio);
  }
  if (!label) return;
  context.font = `${11.5 * ratio}px Inter, "Segoe UI", system-ui, sans-serif`;
  context.textBaseline = "bottom";
  const wide = context.measureText(label).width + 8 * ratio;
  const over = y - 2 * ratio > 16 * ratio ? y - 3 * ratio : y + height + 19 * ratio;
  context.fillStyle = "#0b0d10cc";
  context.fillRect(x, over - 16 * ratio, wide, 16 * ratio);
  context.fillStyle = color;
  context.fillText(label, x + 4 * ratio, over - 1 * ratio);
}

function drawPoint(context, { at, isPositive }, placed, ratio) {
  const [x, y] = toScreen(placed, at);
  context.beginPath();
  context.arc(x, y, 6 * ratio, 0, 2 * Math.PI);
  context.fillStyle = isPositive ? "#3ddc97" : "#ff6b6b";
  context.fill();
  context.lineWidth = 1.5 * ratio;
  context.strokeStyle = "#0b0d10";
  context.stroke();
  context.beginPath();
  context.moveTo(x - 3 * ratio, y);
  context.lineTo(x + 3 * ratio, y);
  if (isPositive) {
    context.moveTo(x, y - 3 * ratio);
    context.lineTo(x, y + 3 * ratio);
  }
  context.stroke();
}
