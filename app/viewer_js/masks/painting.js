// The brush and the eraser: what a press on the picture does, how large the tip is, and the circle that shows it.

import { leastRadius } from "./brush.js";
import { hasMillimetres, unitWords } from "../shell/words.js";
import { Stroke } from "./stroke.js";

const STEP = 1.25;
const SHARE_OF_PICTURE = 0.025;
const GREATEST_SHARE = 0.25;
const SMALL_TIP_PX = 7;

/** The tip of one open series. */
export class Painting {
  element = document.createElement("div");
  #viewer;
  #store;
  #onChange;
  #radius = null;
  #hover = null;

  /**
   * @param {import("../viewer/viewer.js").Viewer} viewer
   * @param {import("./store.js").MaskStore} store
   * @param {() => void} onChange
   */
  constructor(viewer, store, onChange) {
    this.#viewer = viewer;
    this.#store = store;
    this.#onChange = onChange;
    this.element.className = "sm-tip";
    this.element.hidden = true;
  }

  /** A new series: a tip of a fortieth of its picture. */
  open() {
    this.#radius = null;
  }

  get #spacing() {
    const { series } = this.#store;
    if (!hasMillimetres(series?.spacing_source)) return null;
    return series.frames[Math.max(0, this.#viewer.state().index)]?.spacing ?? null;
  }

  get isOn() {
    return ["brush", "erase"].includes(this.#viewer.state().tool);
  }

  /** mm between rows, then columns, of the frame on the screen; [1, 1], so in pixels, where there are no millimetres. */
  get spacing() {
    return this.#spacing ?? [1, 1];
  }

  get unit() {
    return this.#spacing ? unitWords("mm", this.#store.series.spacing_source) : "px";
  }

  get limits() {
    const { rows, columns } = this.#store.series.pixel;
    const [row, column] = this.spacing;
    const least = leastRadius(this.spacing);
    return { least, most: Math.max(2 * least, Math.min(rows * row, columns * column) * GREATEST_SHARE) };
  }

  /** In `unit`. */
  get radius() {
    const { least, most } = this.limits;
    return Math.min(most, Math.max(least, this.#radius ?? (most / GREATEST_SHARE) * SHARE_OF_PICTURE));
  }

  set radius(radius) {
    this.#radius = radius;
    this.showTip();
    this.#onChange();
  }

  /** @param {1|-1} way */
  resize(way) {
    const { least, most } = this.limits;
    this.radius = Math.min(most, Math.max(least, this.radius * STEP ** way));
  }

  /** @returns {import("./hand.js").Grip|null} Null where nothing is painted by this press. */
  begin(at) {
    const store = this.#store;
    const { tool, index } = this.#viewer.state();
    const isSet = tool === "brush";
    if (!isSet && !store.activeSegment) {
      store.tell("Choose the segment to erase in.");
      return null;
    }
    const { mask, number } = store.activeSegment ? store.active : { mask: store.add(), number: 1 };
    if (!store.canEdit(mask)) return null;
    mask.segment(number).isVisible = true;
    const { planes } = store;
    const plane = planes.get(mask, number, index);
    const coming = plane ? null : planes.bring(mask, number, index);
    const tip = { radius: this.radius, spacing: this.spacing };
    return new Stroke({ plane, coming, tip, isSet, at }, {
      changed: () => this.#onChange(),
      done: (painted, patch) => planes === store.planes && store.stroked(mask, number, index, painted, patch),
      lost: (error) => store.tell(`The stroke was not painted, as this slice of the mask did not load: ${error.message}`),
    });
  }

  /** @param {[number, number]|null} view  Where the pointer is. */
  hover(view) {
    this.#hover = view;
    this.showTip();
  }

  /** The circle at its true size. */
  showTip() {
    const isShown = this.isOn && this.#hover !== null && this.#store.series !== null;
    this.element.hidden = !isShown;
    const { surface } = this.#viewer.parts;
    if (!isShown) {
      surface.classList.remove("sm-tip-only");
      return;
    }
    const { camera } = this.#viewer;
    const radius = (this.radius / Math.min(...this.spacing)) * camera.zoom;
    const [x, y] = this.#hover;
    this.element.style.width = this.element.style.height = `${2 * radius}px`;
    this.element.style.transform = `translate(${x - radius}px, ${y - radius}px)`;
    this.element.dataset.tool = this.#viewer.state().tool;
    surface.classList.toggle("sm-tip-only", radius >= SMALL_TIP_PX);
  }
}
