// Box and point on the picture, a step's box in the hand, and what becomes of a preview.

import { BoxEditor } from "./box_editor.js";
import { Prompts } from "./prompts.js";

const REST_MS = 400;
const LEAST_DRAG = 1;

/** Who prompts what on the open series. */
export class Prompting {
  #viewer;
  #store;
  #onChange;
  #rest = 0;
  /** A box that is being dragged. */
  rubber = null;
  /** A step's box that is being corrected. @type {{step: object, editor: BoxEditor, done: Function}|null} */
  editing = null;
  /** Whether an accept is on its way. */
  isAccepting = false;
  /** The reader's choice for where an accept goes; null for the rule's. @type {"new"|"active"|null} */
  wish = null;

  constructor(viewer, store, wire, onChange) {
    this.#viewer = viewer;
    this.#store = store;
    this.#onChange = onChange;
    this.prompts = new Prompts(wire, onChange);
  }

  open(series) {
    this.giveUp();
    this.prompts.open(series);
  }

  close() {
    clearTimeout(this.#rest);
    this.giveUp();
    this.rubber = null;
    this.prompts.close();
  }

  get isOn() {
    return ["box", "point"].includes(this.#viewer.state().tool);
  }

  /** A prompt tool was picked: the shown frame is encoded now, and the names are learnt. */
  picked() {
    this.#prepare();
    this.prompts.learnNames();
  }

  /** The slice moved: where it rests with a prompt tool in the hand, it is encoded. */
  moved() {
    clearTimeout(this.#rest);
    if (this.isOn) this.#rest = setTimeout(() => this.#prepare(), REST_MS);
  }

  /** @returns {import("./hand.js").Grip|null} */
  begin(at, { isOther }) {
    const { tool, index } = this.#viewer.state();
    if (this.editing) return this.#gripEditor(at, index);
    if (tool === "point") {
      this.#addPoint(at, index, !isOther);
      return { move() {}, end() {}, cancel() {} };
    }
    return tool === "box" ? this.#dragBox(at, index) : null;
  }

  /** Ask for what has a name. */
  find(concept) {
    this.#ask({ frame_index: this.#viewer.state().index, concept });
  }

  /** Where an accept goes: the active segment while it has nothing on the slice, else a segment of its own. */
  get target() {
    const { active, activeSegment } = this.#store;
    if (!activeSegment || this.wish === "new") return null;
    const frame = this.prompts.state.prompt?.frame_index;
    return this.wish === "active" || !activeSegment.pixels.has(frame) ? active : null;
  }

  /** Store what is shown dashed. On another slice it is shown first: nothing is stored unseen. */
  async accept() {
    const { phase, prompt, preview, plane } = this.prompts.state;
    if (phase !== "ready" || this.isAccepting) return;
    if (prompt.frame_index !== this.#viewer.state().index) {
      this.#viewer.goTo(prompt.frame_index);
      return;
    }
    const { editing } = this;
    const label = prompt.concept ?? editing?.step.label ?? this.#store.nextLabel();
    this.isAccepting = true;
    this.#onChange();
    try {
      const onto = editing ? await this.#maskOfStep(editing.step) : this.target;
      if (onto && !this.#store.canEdit(onto.mask)) return;
      const accepted = await this.#store.accept({ prompt, bits_sha256: preview.bits_sha256, label }, plane, onto);
      if (this.prompts.state.prompt === prompt) this.prompts.reject();
      this.wish = null;
      if (editing && editing === this.editing) this.#finish({ box: editing.editor.box, maskVersionId: accepted.versionId });
    } catch (problem) {
      if (this.prompts.state.prompt === prompt) this.prompts.fail(problem);
    } finally {
      this.isAccepting = false;
      this.#onChange();
    }
  }

  reject() {
    this.wish = null;
    this.prompts.reject();
    if (this.editing) this.giveUp();
  }

  /**
   * Take a step's box into the hand. See `ViewerBridge.editBox`.
   * @returns {() => void} Gives up.
   */
  edit(step, done) {
    this.giveUp();
    const editing = { step, done, editor: null };
    editing.editor = new BoxEditor(step.box, this.#store.series.pixel, {
      changed: () => this.#onChange(),
      dropped: (box) => this.#ask({ frame_index: step.frameIndex, box }),
    });
    this.editing = editing;
    this.prompts.reject();
    this.#viewer.goTo(step.frameIndex);
    this.prompts.prepare(step.frameIndex);
    this.#onChange();
    return () => editing === this.editing && this.reject();
  }

  /** Keep the corrected box without a mask, where no segmenter answers. */
  keepBox() {
    this.prompts.reject();
    this.#finish({ box: this.editing.editor.box, maskVersionId: null });
  }

  giveUp() {
    if (this.editing) this.#finish(null);
  }

  #finish(result) {
    const { done } = this.editing;
    this.editing = null;
    done(result);
    this.#onChange();
  }

  #prepare() {
    const { index } = this.#viewer.state();
    if (index >= 0 && this.#store.series) this.prompts.prepare(index);
  }

  #ask(prompt) {
    this.wish = null;
    this.prompts.ask(prompt);
  }

  #gripEditor(at, index) {
    const { step, editor } = this.editing;
    if (step.frameIndex !== index) return null;
    const { camera } = this.#viewer;
    return editor.grip(at, ([x, y]) => Math.hypot(x * camera.stretch.x, y * camera.stretch.y) * camera.zoom);
  }

  #dragBox(from, index) {
    const { columns, rows } = this.#store.series.pixel;
    const boxTo = ([x, y]) => {
      const across = [Math.min(columns, Math.max(0, from[0])), Math.min(columns, Math.max(0, x))];
      const down = [Math.min(rows, Math.max(0, from[1])), Math.min(rows, Math.max(0, y))];
      return [Math.min(...across), Math.min(...down), Math.max(...across), Math.max(...down)];
    };
    const show = (box) => {
      this.rubber = box && { box, frame: index };
      this.#onChange();
    };
    const isBox = ([x0, y0, x1, y1]) => x1 - x0 >= LEAST_DRAG && y1 - y0 >= LEAST_DRAG;
    let last = boxTo(from);
    return {
      move: (at) => show((last = boxTo(at))),
      end: (at) => {
        if (at) last = boxTo(at);
        show(null);
        if (at && isBox(last)) this.#ask({ frame_index: index, box: last });
      },
      cancel: () => show(null),
    };
  }

  /** Points gather into one prompt while they are on one frame. */
  #addPoint(at, index, isPositive) {
    const { columns, rows } = this.#store.series.pixel;
    if (at[0] < 0 || at[1] < 0 || at[0] >= columns || at[1] >= rows) return;
    const { prompt } = this.prompts.state;
    const before = prompt?.points && prompt.frame_index === index ? prompt : { points: [], labels: [] };
    this.#ask({ frame_index: index, points: [...before.points, at], labels: [...before.labels, isPositive ? 1 : 0] });
  }

  async #maskOfStep({ maskVersionIds }) {
    const [versionId] = maskVersionIds;
    if (!versionId) return null;
    const mask = await this.#store.maskOfVersion(versionId);
    return mask && { mask, number: mask.segments[0].number };
  }
}
