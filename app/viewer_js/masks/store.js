// The masks of the open series: what there is, what is edited, and every way in which it changes.

import { History } from "./history.js";
import { Mask } from "./model.js";
import { applyPatch } from "./plane.js";
import { Planes } from "./planes.js";
import { SaveLine } from "./saving.js";

export const PALETTE = ["#4cc2ff", "#ff9f6b", "#3ddc97", "#c792ea", "#ffc857", "#ff6b9d", "#7fdbca", "#b8e986"];
const LABEL_LENGTH = 64;

/** @param {string} label  As the server takes it; "" where nothing of it can stay. */
export const cleanLabel = (label) => label.replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, " ").split(/\s+/u).filter(Boolean).join(" ").slice(0, LABEL_LENGTH).trim();

/** One series' masks. Edits that are not stored yet outlive it: they are saved on, and are here when it is opened again. */
export class MaskStore {
  series = null;
  /** @type {Mask[]} */
  masks = [];
  /** The segment that the tools work on. @type {{mask: Mask, number: number}|null} */
  active = null;
  /** @type {Planes|null} */
  planes = null;
  /** Why the list could not be read. */
  problem = null;
  /** What went wrong with the last change, in words; "" while all is well. */
  notice = "";
  savedAt = 0;
  #wire;
  #on;
  #lines = new Map();
  #busy = new Set();

  /**
   * @param {object} wire
   * @param {{changed: () => void, goTo: (index: number) => void}} on
   */
  constructor(wire, on) {
    this.#wire = wire;
    this.#on = on;
    this.history = new History((error, what) => this.tell(`${what}: ${error.message}`));
  }

  open(series) {
    this.close();
    this.series = series;
    this.planes = new Planes(series.pixel, {
      read: this.#wire.readPlane,
      onChange: this.#on.changed,
      isPinned: (mask, number, frame) => this.#lines.get(mask)?.holds(number, frame) ?? false,
    });
    // What could not be saved when the series was left is shown again, as it was.
    for (const [mask, line] of this.#lines) {
      if (mask.seriesId !== series.id) continue;
      if (line.isOutdated) this.#letGo(mask, line);
      else this.#readopt(mask, line);
    }
    return this.refresh();
  }

  close() {
    for (const [mask, line] of this.#lines) {
      if (line.hasUnsaved) line.flush();
      else this.#lines.delete(mask);
    }
    this.planes?.close();
    this.series = this.planes = this.active = this.problem = null;
    this.notice = "";
    this.masks = [];
    this.history.clear();
  }

  /** Read the list anew: a run, another tab or another person may have added to it. */
  async refresh() {
    const { series } = this;
    if (!series) return;
    // What is added while the answer is on its way is not missing from it.
    const before = this.masks.filter((mask) => mask.id !== null && mask.segments.length > 0);
    try {
      const listed = await this.#wire.listMasks(series.id);
      if (series === this.series) this.#merge(listed, before);
      this.problem = null;
    } catch (problem) {
      if (problem.status === undefined) throw problem;
      if (series === this.series) this.problem = problem;
    }
    if (series === this.series) this.#on.changed();
  }

  /** Every segment in the order of the list. */
  get rows() {
    return this.masks.flatMap((mask) => mask.segments.map((segment) => ({ mask, segment })));
  }

  get activeSegment() {
    return this.active?.mask.segment(this.active.number) ?? null;
  }

  /** @returns {Promise<Mask|null>} The mask that a version is one of; null where this series has it no more. */
  async maskOfVersion(versionId) {
    const isHere = (mask) => mask.segments.length > 0;
    const newest = this.masks.find((mask) => mask.versionId === versionId && isHere(mask));
    if (newest) return newest;
    const { mask_id: maskId } = await this.#wire.readVersion(versionId);
    const find = () => this.masks.find((mask) => mask.id === maskId && isHere(mask)) ?? null;
    if (!find()) await this.refresh();
    return find();
  }

  line(mask) {
    if (!this.#lines.has(mask)) {
      this.#lines.set(
        mask,
        new SaveLine(mask, this.#wire, { saved: (one, version, isWhole) => this.#saved(one, version, isWhole), changed: this.#on.changed }),
      );
    }
    return this.#lines.get(mask);
  }

  /** All lines, those of series that are not open any more, too. */
  get lines() {
    return [...this.#lines.values()];
  }

  /** Whether a mask takes edits now; where not, it says why. */
  canEdit(mask) {
    if (mask.isConflicted) this.tell("This mask was saved elsewhere meanwhile. Choose first which of the two stays.");
    const { isOutdated, problem } = this.line(mask);
    if (isOutdated) this.tell(problem.message);
    return !mask.isConflicted && !isOutdated && !this.#busy.has(mask);
  }

  tell(notice) {
    this.notice = notice;
    this.#on.changed();
  }

  /** A colour that the list uses least. */
  nextColor() {
    const used = this.rows.map(({ segment }) => segment.color);
    const uses = (color) => used.filter((one) => one === color).length;
    return PALETTE.reduce((best, color) => (uses(color) < uses(best) ? color : best));
  }

  nextLabel() {
    const taken = new Set(this.rows.map(({ segment }) => segment.label));
    let number = this.rows.length + 1;
    while (taken.has(`Segment ${number}`)) number += 1;
    return `Segment ${number}`;
  }

  // ---- what a person does; each can be undone

  /** An empty segment, at once; the server hears of it before anything that is drawn on it. */
  add(label = this.nextLabel()) {
    const mask = this.#begin(label);
    this.history.add(this.#removable("add segment", mask));
    return mask;
  }

  rename(mask, number, label) {
    return this.#telling(this.#relook("rename", mask, number, { label }));
  }

  recolor(mask, number, color) {
    return this.#telling(this.#relook("colour", mask, number, { color }));
  }

  /** Take a segment away; its voxels stay in the versions before, and undo brings them back. */
  remove(mask, number) {
    const change = this.#change("delete", mask, {
      send: (base) => this.#wire.changeSegments(mask.id, mask.segments.filter((one) => one.number !== number), base),
      undo: (versions) => this.#restore(mask, versions.before),
      redo: (versions) => this.#restore(mask, versions.after),
    });
    return this.#telling(change);
  }

  /** A stroke ended: the plane is already as it left it. */
  stroked(mask, number, frame, plane, patch) {
    this.#edited(mask, number, frame, plane);
    const turn = (side) => () => this.#patch(mask, number, frame, patch, side);
    this.history.add({ label: "stroke", mask, undo: turn("before"), redo: turn("after") });
  }

  /**
   * Store a previewed prompt.
   *
   * @param {object} accepted  `prompt`, `bits_sha256`, `label`.
   * @param {import("./plane.js").Plane} plane  What was seen.
   * @param {{mask: Mask, number: number}|null} onto  Null for a segment of its own.
   * @returns {Promise<{mask: Mask, versionId: string}>}
   */
  async accept(accepted, plane, onto) {
    const { series } = this;
    const mask = onto?.mask ?? new Mask(series.id);
    const number = onto?.number ?? 1;
    const frame = accepted.prompt.frame_index;
    const place = onto ? (base) => ({ mask_id: mask.id, segment: number, ...base }) : ({ request_key }) => ({ request_key });
    const send = (base) => this.#wire.acceptPrompt(series.id, { ...accepted, ...place(base) });
    const show = () => {
      if (series !== this.series) return;
      this.planes.put(mask, number, frame, plane.packed);
      this.#count(mask, number, frame, plane);
    };
    if (onto) {
      const { after } = await this.#change("accept", mask, {
        send,
        undo: (versions) => this.#restore(mask, versions.before),
        redo: (versions) => this.#restore(mask, versions.after),
        show,
      });
      return { mask, versionId: after.id };
    }
    const version = await this.line(mask).change(send);
    if (series === this.series) {
      if (!this.masks.includes(mask)) this.masks.push(mask);
      show();
      this.active = { mask, number };
      this.history.add(this.#removable("accept", mask));
      this.#on.changed();
    }
    return { mask, versionId: version.id };
  }

  // ---- two tabs, one mask

  /** Show what was saved elsewhere; what is only here goes. */
  async takeTheirs(mask) {
    const listed = await this.#wire.listMasks(mask.seriesId);
    const theirs = listed.find((one) => one.mask_id === mask.id);
    this.line(mask).abandon();
    this.history.forget(mask);
    mask.isConflicted = false;
    if (mask.seriesId !== this.series?.id) return;
    this.planes.drop(mask);
    if (theirs) mask.take(theirs);
    else this.#leave(mask);
    this.#on.changed();
  }

  /** Keep both: what this tab shows becomes segments of their own, and the mask is theirs. */
  async saveMine(mask) {
    const edited = new Set(this.line(mask).unsaved().map((edit) => edit.number));
    for (const number of edited) {
      const segment = mask.segment(number);
      const mine = this.#begin(cleanLabel(`${segment.label.slice(0, LABEL_LENGTH - 7)} (mine)`));
      for (const frame of segment.pixels.keys()) {
        const plane = await this.planes.bring(mask, number, frame);
        this.#edited(mine, 1, frame, this.planes.put(mine, 1, frame, plane.packed.slice()));
      }
      this.active = { mask: mine, number: 1 };
    }
    await this.takeTheirs(mask);
  }

  // ---- how it is done

  #begin(label) {
    const { series } = this;
    const mask = new Mask(series.id);
    const color = this.nextColor();
    mask.segments = [{ number: 1, label, color, pixels: new Map(), isVisible: true }];
    this.masks.push(mask);
    this.active = { mask, number: 1 };
    const wanted = { label, color, frame_count: series.frames.length };
    this.line(mask)
      .change(({ request_key }) => this.#wire.beginMask(series.id, { ...wanted, request_key }), { isKept: true })
      .catch((error) => this.tell(error.message));
    return mask;
  }

  /** Undone by taking all segments away, done again by going back to the version before that. */
  #removable(label, mask) {
    let before = 0;
    const undo = async () => {
      await this.line(mask).change((base) => {
        before = mask.version;
        return this.#wire.changeSegments(mask.id, [], base);
      });
      if (this.active?.mask === mask) this.active = null;
    };
    return { label, mask, undo, redo: () => this.#restore(mask, before) };
  }

  #relook(label, mask, number, look) {
    const { label: oldLabel, color: oldColor } = mask.segment(number);
    const send = (wanted) => (base) =>
      this.#wire.changeSegments(mask.id, mask.segments.map((one) => (one.number === number ? { ...one, ...wanted } : one)), base);
    const apply = (wanted) => this.line(mask).change(send(wanted));
    return this.#change(label, mask, {
      send: send(look),
      undo: () => apply({ label: oldLabel, color: oldColor }),
      redo: () => apply(look),
    });
  }

  /** A change by the server. It takes its place among what can be undone when it is asked for, not when it is answered. */
  async #change(label, mask, { send, undo, redo, show = () => {} }) {
    let before = 0;
    const answer = this.line(mask).change((base) => {
      before = mask.version;
      return send(base);
    });
    const versions = answer.then((after) => ({ before, after: after.version }));
    // Told below; nobody may ever ask for the versions of a change that failed.
    versions.catch(() => this.history.remove(deed));
    const deed = { label, mask, undo: async () => undo(await versions), redo: async () => redo(await versions) };
    this.history.add(deed);
    const after = await answer;
    show();
    if (this.active && !this.activeSegment) this.active = null;
    this.#on.changed();
    return { before, after };
  }

  async #telling(change) {
    try {
      await change;
    } catch (error) {
      this.tell(error.message);
    }
  }

  async #restore(mask, version) {
    this.#busy.add(mask);
    try {
      const send = async (base) => this.#wire.readVersion((await this.#wire.restoreVersion(mask.id, version, base)).id);
      await this.line(mask).change(send, { isKept: true, isWhole: true });
      if (this.active && !this.activeSegment) this.active = null;
    } finally {
      this.#busy.delete(mask);
    }
  }

  async #patch(mask, number, frame, patch, side) {
    const { planes } = this;
    const plane = await planes.bring(mask, number, frame);
    if (planes !== this.planes) return;
    applyPatch(plane, patch, side);
    this.active = { mask, number };
    this.#edited(mask, number, frame, plane);
    // What changes is looked at.
    this.#on.goTo(frame);
  }

  #edited(mask, number, frame, plane) {
    this.#count(mask, number, frame, plane);
    this.line(mask).touch(number, frame, plane);
  }

  #count(mask, number, frame, plane) {
    const { pixels } = mask.segment(number);
    if (plane.count > 0) pixels.set(frame, plane.count);
    else pixels.delete(frame);
  }

  #saved(mask, version, isWhole) {
    const isOpen = mask.seriesId === this.series?.id;
    if (isWhole && isOpen) this.planes.drop(mask);
    mask.take(version);
    this.savedAt = Date.now();
    this.notice = "";
    if (!isOpen && !this.line(mask).hasUnsaved) this.#lines.delete(mask);
    this.#on.changed();
  }

  #readopt(mask, line) {
    mask.epoch += 1;
    this.masks.push(mask);
    for (const { number, frame, plane } of line.unsaved()) this.planes.adopt(mask, number, frame, plane);
  }

  /** More images came meanwhile: on which slices it was drawn is not known any more. */
  #letGo(mask, line) {
    line.abandon();
    this.#lines.delete(mask);
    this.tell(`“${mask.segments[0].label}” was drawn before more images came to this series and could not be kept. Draw it again.`);
  }

  #merge(listed, before) {
    // A mask that is being begun may be in the list before the answer that names it is here.
    const isBeginning = this.masks.some((mask) => mask.id === null);
    for (const version of listed) {
      const mask = this.masks.find((one) => one.id === version.mask_id);
      if (mask) this.#follow(mask, version);
      else if (!isBeginning) {
        const added = new Mask(this.series.id);
        added.take(version);
        this.masks.push(added);
      }
    }
    const known = new Set(listed.map((version) => version.mask_id));
    for (const mask of before) if (!known.has(mask.id) && !this.line(mask).hasUnsaved) this.#leave(mask);
  }

  #follow(mask, version) {
    if (version.version < mask.version || this.line(mask).hasUnsaved) return;
    if (version.version > mask.version) {
      this.planes.drop(mask);
      this.history.forget(mask);
    }
    mask.take(version);
  }

  #leave(mask) {
    this.masks = this.masks.filter((one) => one !== mask);
    this.history.forget(mask);
    this.#lines.delete(mask);
    if (this.active?.mask === mask) this.active = null;
  }
}
