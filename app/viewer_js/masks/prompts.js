// Prompts of a person: a box, points or a name, asked at once and shown dashed until they are accepted or rejected.

import { fromBase64, inflate, Plane } from "./plane.js";

/**
 * @typedef {object} PromptState
 * @property {"none"|"asking"|"ready"|"absent"|"failed"} phase  `absent`: the segmenter looked and found nothing.
 * @property {object|null} prompt  As on the wire: `frame_index` with `box`, `points` and `labels`, or `concept`.
 * @property {object|null} preview  The answer.
 * @property {Plane|null} plane  Its bits.
 * @property {Error|null} problem
 * @property {number} elapsedMs  From the prompt to the preview.
 */

const NONE = { phase: "none", prompt: null, preview: null, plane: null, problem: null, elapsedMs: 0 };

/** One prompt at a time; the last one counts, and only while its series is open (C31, C54). */
export class Prompts {
  /** @type {PromptState} */
  state = NONE;
  /** What is found by name here: null until asked. @type {{concepts: string[], bodies: object[]}|null} */
  known = null;
  /** Why the segmenter could not be readied or asked for its names; null while all is well. */
  problem = null;
  #wire;
  #onChange;
  #series = null;
  #asking = null;
  #prepared = new Set();

  constructor(wire, onChange) {
    this.#wire = wire;
    this.#onChange = onChange;
  }

  open(series) {
    this.close();
    this.#series = series;
  }

  close() {
    this.#asking?.abort();
    this.#series = null;
    this.#prepared.clear();
    this.known = null;
    this.problem = null;
    this.state = NONE;
  }

  get isOpen() {
    return this.state.phase !== "none";
  }

  /** Have a frame encoded ahead of its first prompt. */
  async prepare(frameIndex) {
    if (this.#prepared.has(frameIndex)) return;
    this.#prepared.add(frameIndex);
    await this.#about((series) => this.#wire.prepareFrame(series.id, frameIndex), () => this.#prepared.delete(frameIndex));
  }

  /** Ask what can be found by name, once a series. */
  async learnNames() {
    if (this.known) return;
    await this.#about(async (series) => {
      const known = await this.#wire.listConcepts(series.id);
      if (series === this.#series) this.known = known;
    });
  }

  /** @param {object} prompt  As on the wire. */
  async ask(prompt) {
    this.#asking?.abort();
    const asking = new AbortController();
    this.#asking = asking;
    const series = this.#series;
    const startedAt = performance.now();
    this.#show({ ...NONE, phase: "asking", prompt });
    try {
      const preview = await this.#wire.previewPrompt(series.id, prompt, asking.signal);
      const packed = await inflate(fromBase64(preview.bits));
      if (asking.signal.aborted) return;
      const plane = new Plane(series.pixel.columns, series.pixel.rows, packed);
      const phase = preview.is_present === false || preview.area_px === 0 ? "absent" : "ready";
      this.problem = null;
      this.#show({ phase, prompt, preview, plane, problem: null, elapsedMs: performance.now() - startedAt });
    } catch (problem) {
      if (asking.signal.aborted) return;
      if (problem.status === undefined) throw problem;
      this.#show({ ...NONE, phase: "failed", prompt, problem });
    }
  }

  again() {
    if (this.state.prompt) return this.ask(this.state.prompt);
    this.problem = null;
    return this.learnNames();
  }

  /** Drop the prompt; nothing of it was stored. */
  reject() {
    this.#asking?.abort();
    this.#show(NONE);
  }

  /** What was seen could not be stored as it was seen. */
  fail(problem) {
    this.#show({ ...this.state, phase: "failed", problem });
  }

  #show(state) {
    this.state = state;
    this.#onChange();
  }

  async #about(ask, onFailure = () => {}) {
    const series = this.#series;
    try {
      await ask(series);
      if (series === this.#series) this.problem = null;
    } catch (problem) {
      onFailure();
      if (problem.status === undefined) throw problem;
      if (series === this.#series) this.problem = problem;
    }
    if (series === this.#series) this.#onChange();
  }
}

/** What went wrong with a prompt, in words. */
export function promptProblem({ code, message, details }) {
  if (code === "unknown_concept") {
    const known = details?.known ?? [];
    return known.length > 0 ? `That name is not known here. Known: ${known.join(", ")}.` : "Nothing is found by name in this kind of picture.";
  }
  if (code === "unusable_prompt") return message;
  if (["segmenter_unavailable", "segmenter_busy", "segmenter_timeout", "no_answer"].includes(code)) {
    return code === "segmenter_busy" ? "The segmenter is busy with other prompts." : "The segmenter does not answer at the moment.";
  }
  if (code === "preview_changed") return "The segmenter's answer changed since the preview, so nothing was stored. Look again.";
  return message;
}
