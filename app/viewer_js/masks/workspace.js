// Masks on the case page: puts the layer over the picture, the tools into the toolbar and the column beside it.

import { masksChanged, registerViewerBridge } from "../trace/bridge.js";
import { Column } from "./column.js";
import { Hand } from "./hand.js";
import { nearestFrame } from "./model.js";
import { MaskOverlay } from "./overlay.js";
import { Painting } from "./painting.js";
import { Prompting } from "./prompting.js";
import { SaveStatus } from "./save_status.js";
import { MaskStore } from "./store.js";
import * as wire from "./wire.js";

const PREVIEW_COLOR = "#ffffff";
const BOX_COLORS = { crop: "#93a0ae", prompt: "#ffc857", region: "#ffc857" };

const TOOLS = [
  { name: "box", label: "Box", title: "Drag a box around what is to be outlined (D)" },
  { name: "point", label: "Point", title: "Click on what is to be outlined; Shift or Alt: what is not (O)" },
  { name: "brush", label: "Brush", title: "Paint; [ and ] change its size (B)" },
  { name: "erase", label: "Erase", title: "Erase; [ and ] change its size (E)" },
];

const TOOL_KEYS = { d: "box", o: "point", b: "brush", e: "erase" };

const KEY_ROWS = [
  ["D  O", "prompt: box, point (Shift or Alt: not this)"],
  ["Enter, Esc", "keep, drop the preview"],
  ["B  E", "brush, eraser"],
  ["[  ]", "smaller, larger"],
  ["V", "hide, show all segments"],
  ["Ctrl + Z, Ctrl + Y", "undo, redo"],
];

const isTyping = ({ target }) => target instanceof Element && target.closest("input:not([type=range]), textarea, select, [contenteditable]") !== null;

/** Everything about masks for one viewer. */
export class MaskWorkspace {
  opacity = 0.35;
  #viewer;
  #mayEdit;
  #isHidden = false;
  #shownBox = null;
  #look = "";
  #columnRequest = 0;

  /**
   * @param {import("../viewer/viewer.js").Viewer} viewer
   * @param {{mayEdit: boolean, reopen: () => void}} options  Without `mayEdit` masks are looked at only; `reopen`
   *   opens the series anew.
   */
  constructor(viewer, { mayEdit, reopen }) {
    this.#viewer = viewer;
    this.#mayEdit = mayEdit;
    const changed = () => this.#changed();
    this.store = new MaskStore(wire, { changed, goTo: (index) => viewer.goTo(index) });
    this.overlay = new MaskOverlay((series, index) => this.#scene(series, index));
    this.painting = new Painting(viewer, this.store, changed);
    this.prompting = new Prompting(viewer, this.store, wire, changed);
    this.column = new Column(this, { mayEdit });
    this.status = new SaveStatus(this.store, reopen);
    const { root, surface } = viewer.parts;
    surface.after(this.overlay.element);
    viewer.addLayer(this.overlay);
    root.append(this.painting.element);
    if (mayEdit) this.#addTools();
    registerViewerBridge(this.#bridge());
    document.addEventListener("visibilitychange", () => this.#seen());
    addEventListener("beforeunload", (event) => {
      if (!this.status.isUnsaved) return;
      for (const line of this.store.lines) line.flush();
      event.preventDefault();
    });
  }

  /** The viewer's events. */
  onViewer(kind) {
    if (kind === "opened") this.#open(this.#viewer.series);
    if (kind === "frame" || kind === "first-image") this.#moved();
    if (kind === "tool") this.#toolChanged();
  }

  close() {
    this.#hand?.release();
    this.prompting.close();
    this.store.close();
    this.#shownBox = null;
    this.overlay.clear();
    this.#changed();
  }

  get viewer() {
    return this.#viewer;
  }

  get isHidden() {
    return this.#isHidden;
  }

  get index() {
    return this.#viewer.state().index;
  }

  /** @param {number} opacity  Of the fill, from 0 to 1; the outline stays. */
  setOpacity(opacity) {
    this.opacity = opacity;
    this.overlay.schedule();
  }

  toggleAll() {
    this.#isHidden = !this.#isHidden;
    this.#changed();
  }

  toggle(mask, number) {
    const segment = mask.segment(number);
    segment.isVisible = this.#isHidden || !segment.isVisible;
    this.#isHidden = false;
    this.#changed();
  }

  /** Work on a segment, and show the nearest slice that has it. */
  select(mask, number) {
    const { index } = this;
    this.store.active = { mask, number };
    const frame = nearestFrame(mask.segment(number), index);
    if (frame !== null && frame !== index) this.#viewer.goTo(frame);
    this.#changed();
  }

  undo() {
    return this.#hand?.isBusy ? Promise.resolve() : this.store.history.undo();
  }

  redo() {
    return this.#hand?.isBusy ? Promise.resolve() : this.store.history.redo();
  }

  #hand = null;

  #addTools() {
    const viewer = this.#viewer;
    viewer.parts.toolbar.addTools(TOOLS);
    viewer.addHelp("Segments", KEY_ROWS);
    this.#hand = new Hand(viewer.parts.surface, {
      toPicture: (view) => viewer.camera.toPicture(view),
      begin: (at, view, keys) => this.#press(at, keys),
      hover: (view) => {
        if (this.#hand.isBusy) viewer.hover(view);
        this.painting.hover(view);
      },
    });
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  async #open(series) {
    this.#hand?.release();
    this.#shownBox = null;
    this.prompting.open(series);
    const reading = this.store.open(series);
    this.painting.open();
    if (!["window", "zoom", "pan", "scroll"].includes(this.#viewer.state().tool)) this.#toolChanged();
    this.#changed();
    await reading;
    this.#bringPlanes();
  }

  #press(at, keys) {
    const { tool, index } = this.#viewer.state();
    if (!this.store.series || index < 0) return null;
    const idle = { move() {}, end() {}, cancel() {} };
    if (this.prompting.editing) {
      const grip = this.prompting.begin(at, keys);
      if (grip) return grip;
    }
    if (this.painting.isOn) return this.painting.begin(at) ?? idle;
    if (!this.prompting.isOn) return null;
    return this.prompting.editing ? null : (this.prompting.begin(at, keys) ?? (tool === "box" ? idle : null));
  }

  #moved() {
    // A stroke belongs to the slice that it began on.
    this.#hand?.release();
    for (const line of this.store.lines) line.flush();
    this.prompting.moved();
    this.#changed();
  }

  #toolChanged() {
    this.#hand?.release();
    this.painting.showTip();
    if (this.prompting.isOn) this.prompting.picked();
    this.#changed();
  }

  #seen() {
    if (document.hidden) for (const line of this.store.lines) line.flush();
    else this.store.refresh();
  }

  #bringPlanes() {
    const { store } = this;
    if (!store.planes || this.index < 0) return;
    store.planes.around(this.#visible(), this.index);
  }

  #visible() {
    return this.#isHidden ? [] : this.store.rows.filter(({ segment }) => segment.isVisible);
  }

  /** What belongs on a frame: of this series and this frame alone (C30, C31). */
  #scene(series, index) {
    const { store, prompting } = this;
    if (store.series?.id !== series.id) return null;
    const { active } = store;
    const masks = [];
    for (const { mask, segment } of this.#visible()) {
      const plane = segment.pixels.has(index) || store.line(mask).holds(segment.number, index) || this.#hand?.isBusy ? store.planes.get(mask, segment.number, index) : null;
      if (plane) masks.push({ key: `${mask.key} ${segment.number}`, plane, color: segment.color, isActive: active?.mask === mask && active.number === segment.number });
    }
    const { state } = prompting.prompts;
    const isHere = state.prompt?.frame_index === index;
    const target = prompting.target;
    const color = target?.mask.segment(target.number)?.color ?? PREVIEW_COLOR;
    return {
      masks,
      preview: isHere && state.plane ? { plane: state.plane, color } : null,
      boxes: this.#boxes(index, isHere ? state.prompt : null, color),
      points: isHere && state.prompt.points ? state.prompt.points.map((at, which) => ({ at, isPositive: state.prompt.labels[which] === 1 })) : [],
      opacity: this.opacity,
    };
  }

  #boxes(index, prompt, color) {
    const { editing, rubber } = this.prompting;
    const boxes = [];
    const shown = this.#shownBox;
    if (shown && shown.frameIndex === index && !editing) boxes.push({ box: shown.box, color: BOX_COLORS[shown.kind], label: shown.label, isDashed: true });
    if (editing && editing.step.frameIndex === index) {
      boxes.push({ box: editing.editor.box, color: "#ffc857", isDashed: false, handles: editing.editor.handles });
    } else if (prompt?.box) boxes.push({ box: prompt.box, color, isDashed: true });
    if (rubber?.frame === index) boxes.push({ box: rubber.box, color: PREVIEW_COLOR, isDashed: true });
    return boxes;
  }

  /** Something that is drawn or listed changed; both are done once a frame. */
  #changed() {
    this.overlay.schedule();
    if (this.#columnRequest) return;
    this.#columnRequest = requestAnimationFrame(() => {
      this.#columnRequest = 0;
      this.#bringPlanes();
      this.column.show();
      this.status.show();
      this.#tellTrace();
    });
  }

  #tellTrace() {
    const look = this.store.rows.map(({ mask, segment }) => `${mask.versionId} ${segment.label} ${segment.color}`).join("\n");
    if (look === this.#look) return;
    this.#look = look;
    masksChanged();
  }

  #key(event) {
    if (document.body.dataset.view !== "case" || isTyping(event) || event.defaultPrevented || !this.store.series) return;
    if (event.target instanceof Element && event.target.closest("dialog")) return;
    if (this.#command(event)) event.preventDefault();
  }

  #command(event) {
    const letter = event.key.toLowerCase();
    if (event.ctrlKey || event.metaKey) {
      if (event.altKey || !["z", "y"].includes(letter)) return false;
      if (letter === "y" || event.shiftKey) this.redo();
      else this.undo();
      return true;
    }
    if (event.altKey) return false;
    const { prompting } = this;
    const isPress = event.target instanceof HTMLButtonElement || (event.target instanceof Element && event.target.closest(".sp-trace"));
    if (event.key === "Enter" && !isPress && prompting.prompts.state.phase === "ready") prompting.accept();
    else if (event.key === "Escape" && (prompting.prompts.isOpen || prompting.editing)) prompting.reject();
    else if (event.key === "[" || event.key === "]") this.painting.resize(event.key === "]" ? 1 : -1);
    else if (event.shiftKey) return false;
    else if (letter in TOOL_KEYS) this.#viewer.setTool(TOOL_KEYS[letter]);
    else if (letter === "v") this.toggleAll();
    else return false;
    return true;
  }

  /** @returns {import("../trace/bridge.js").ViewerBridge} */
  #bridge() {
    const viewer = this.#viewer;
    return {
      goTo: (index) => viewer.goTo(index),
      setWindow: (window) => viewer.setWindow(window),
      showBox: (box, { kind = "prompt", frameIndex = this.index, label = "" } = {}) => {
        this.#shownBox = box && { box, kind, frameIndex, label };
        this.overlay.schedule();
      },
      showMask: (versionId) => this.#showVersion(versionId, { isMarked: false }),
      focusMask: (versionId) => this.#showVersion(versionId, { isMarked: true }),
      maskLook: (versionId) => {
        const row = this.store.rows.find(({ mask }) => mask.versionId === versionId);
        return row ? { color: row.segment.color, label: row.segment.label } : null;
      },
      ...(this.#mayEdit && { editBox: (step, done) => this.prompting.edit(step, done) }),
      refreshMasks: () => this.store.refresh(),
    };
  }

  async #showVersion(versionId, { isMarked }) {
    const { store } = this;
    const { series } = store;
    if (!series) return;
    try {
      const mask = await store.maskOfVersion(versionId);
      if (!mask || series !== store.series) return;
      this.#isHidden = false;
      for (const segment of mask.segments) segment.isVisible = true;
      if (isMarked) {
        store.active = { mask, number: mask.segments[0].number };
        this.column.flash(mask);
      }
      this.#changed();
    } catch (error) {
      if (error.status === undefined) throw error;
      store.tell(`The mask cannot be shown: ${error.message}`);
    }
  }
}
