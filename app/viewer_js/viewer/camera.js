/**
 * Where the picture lies in the view. One camera for both ways of drawing.
 *
 * Picture coordinates are continuous: pixel (0, 0) covers [0, 1) x [0, 1), its centre is (0.5, 0.5). View coordinates
 * are CSS pixels from the top left of the stage. Zoom is CSS pixels per picture pixel along the axis of the smaller
 * spacing; the other axis is stretched, so that what is round in the patient is round on the screen (C07).
 */

const LEAST_ZOOM = 0.02;
const GREATEST_ZOOM = 64;

/** Pan and zoom of one picture in one view. */
export class Camera {
  zoom = 1;
  x = 0;
  y = 0;
  #view = { width: 1, height: 1, ratio: 1, insets: { top: 0, right: 0, bottom: 0, left: 0 } };
  #picture = { columns: 1, rows: 1 };
  #isFitted = true;
  stretch = { x: 1, y: 1 };

  /** Whether the picture follows the size of the view. */
  get isFitted() {
    return this.#isFitted;
  }

  get view() {
    return this.#view;
  }

  /**
   * @param {{columns: number, rows: number, spacing: [number, number] | null}} picture  `spacing` is mm between rows,
   *     then between columns; without it pixels are square.
   */
  setPicture({ columns, rows, spacing }) {
    this.#picture = { columns, rows };
    const [row, column] = spacing ?? [1, 1];
    const least = Math.min(row, column);
    this.stretch = { x: column / least, y: row / least };
    this.fit();
  }

  /**
   * @param {{width: number, height: number, ratio: number,
   *     insets: {top: number, right: number, bottom: number, left: number}}} view  CSS pixels, device pixels per CSS
   *     pixel, and the margins that a fitted picture leaves free.
   */
  setView(view) {
    this.#view = view;
    if (this.#isFitted) this.fit();
    else this.#snap();
  }

  /** Show the whole picture, as large as it goes. */
  fit() {
    const { width, height, insets } = this.#view;
    const free = {
      width: Math.max(16, width - insets.left - insets.right),
      height: Math.max(16, height - insets.top - insets.bottom),
    };
    const { columns, rows } = this.#picture;
    this.zoom = Math.min(free.width / (columns * this.stretch.x), free.height / (rows * this.stretch.y));
    this.x = columns / 2 + (insets.right - insets.left) / 2 / (this.stretch.x * this.zoom);
    this.y = rows / 2 + (insets.bottom - insets.top) / 2 / (this.stretch.y * this.zoom);
    this.#isFitted = true;
    this.#snap();
  }

  /**
   * Zoom about a point, which stays where it is.
   *
   * @param {number} zoom
   * @param {[number, number]} [about]  View coordinates; the middle of the view where absent.
   */
  zoomTo(zoom, about = [this.#view.width / 2, this.#view.height / 2]) {
    const [x, y] = this.toPicture(about);
    this.zoom = Math.min(GREATEST_ZOOM, Math.max(LEAST_ZOOM, zoom));
    const [nowX, nowY] = this.toPicture(about);
    this.x += x - nowX;
    this.y += y - nowY;
    this.#isFitted = false;
    this.#snap();
  }

  /**
   * Move the picture with the hand.
   *
   * @param {number} dx  CSS pixels.
   * @param {number} dy  CSS pixels.
   */
  pan(dx, dy) {
    const { columns, rows } = this.#picture;
    // The middle of the view stays on the picture, so that it cannot be lost.
    this.x = Math.min(columns, Math.max(0, this.x - dx / (this.stretch.x * this.zoom)));
    this.y = Math.min(rows, Math.max(0, this.y - dy / (this.stretch.y * this.zoom)));
    this.#isFitted = false;
    this.#snap();
  }

  /**
   * @param {[number, number]} point  Picture coordinates.
   * @returns {[number, number]} View coordinates.
   */
  toView([x, y]) {
    return [
      this.#view.width / 2 + (x - this.x) * this.stretch.x * this.zoom,
      this.#view.height / 2 + (y - this.y) * this.stretch.y * this.zoom,
    ];
  }

  /**
   * @param {[number, number]} point  View coordinates.
   * @returns {[number, number]} Picture coordinates.
   */
  toPicture([x, y]) {
    return [
      this.x + (x - this.#view.width / 2) / (this.stretch.x * this.zoom),
      this.y + (y - this.#view.height / 2) / (this.stretch.y * this.zoom),
    ];
  }

  /** Put the picture's corner on a whole device pixel: at zoom 1 a picture pixel is then one device pixel, unblurred. */
  #snap() {
    const { width, height, ratio } = this.#view;
    const [left, top] = this.toView([0, 0]);
    this.x = (width / 2 - Math.round(left * ratio) / ratio) / (this.stretch.x * this.zoom);
    this.y = (height / 2 - Math.round(top * ratio) / ratio) / (this.stretch.y * this.zoom);
  }
}
