// One run on the screen: its steps as they come, those that it goes on from above them, and which one is selected.

import { api } from "../shell/api.js";
import { button, el, fill } from "../shell/dom.js";
import { viewerBridge } from "./bridge.js";
import { Card } from "./card.js";
import { enlarge } from "./lightbox.js";
import { loadJudgements } from "./outbox.js";
import { cropOf, placeOf } from "./places.js";
import { Trace } from "./steps.js";
import { follow, readUntil } from "./stream.js";
import { TraceVerdict } from "./verdict.js";
import { pictureWords, stopWords } from "./words.js";

const AT_BOTTOM_PX = 32;
/** After these events no policy speaks. */
const SILENT = new Set(["ModelSpoke", "ToolCalled", "AnswerGiven", "RunStopped"]);

export class RunView {
  /**
   * @param {object} run  As GET /api/runs/{id} answers; kept up to date.
   * @param {object} panel  The column: `head`, `steps` (what scrolls), `viewer`, `mayJudge`, `mayAsk`, `say`, `openRun`,
   *   `continueFrom`.
   */
  constructor(run, panel) {
    Object.assign(this, { run, panel, trace: new Trace(run.id), parents: [], cards: new Map(), looks: new Map(), selected: null });
    this.isConnected = true;
    this.isCancelling = false;
    this.skewMs = Infinity;
    this.unfollow = () => {};
    /** Gives up a box that is being dragged. */
    this.stopEditing = () => {};
    this.leaving = new AbortController();
    // A finished run is read from its beginning, one that goes on is followed at its end.
    this.isLive = run.state !== "stopped";
    this.opening = el("div", { class: "sp-opening" });
    this.list = el("div", { class: "sp-step-list" });
    this.preview = el("div", { class: "sp-preview", hidden: true, "aria-label": "Being written" });
    this.ended = el("div", { class: "sp-ended", hidden: true });
    this.parts = [this.opening, this.list, this.preview, this.ended];
    this.verdict = panel.mayJudge ? new TraceVerdict({ runId: run.id, isStopped: () => Boolean(this.trace.stopped) }) : null;
    if (this.verdict) this.verdict.element.hidden = true;
  }

  /** Load what it goes on from, then follow it. `wanted` is an event whose step is to be selected when it is here. */
  async begin(wanted = null) {
    this.wanted = wanted;
    this.panel.head.showRun(this.run, this.trace);
    this.showState();
    if (this.verdict) this.loadJudgements();
    if (this.run.parent_run_id) await this.loadParents();
    if (this.leaving.signal.aborted) return;
    this.unfollow = follow(this.run.id, {
      event: (event) => this.take(event),
      preview: (text) => this.showPreview(text),
      connection: (isConnected) => {
        if (this.isConnected === isConnected) return;
        this.isConnected = isConnected;
        this.showState();
      },
    });
  }

  end() {
    this.leaving.abort();
    this.unfollow();
    this.stopEditing();
    for (const card of this.cards.values()) card.end();
    this.verdict?.end();
    for (const part of this.parts) part.remove();
  }

  async loadJudgements() {
    const { signal } = this.leaving;
    try {
      await loadJudgements(this.run.id, { signal });
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === undefined) throw error;
      this.panel.say(`Your earlier judgements did not load: ${error.message}`, () => this.loadJudgements());
    }
  }

  /** The steps of the runs that this one continues, up to where it begins, oldest first. */
  async loadParents() {
    const { signal } = this.leaving;
    const parents = [];
    try {
      for (let child = this.run; child.parent_run_id; child = parents[0].run) {
        const [run, events] = await Promise.all([
          api(`/api/runs/${child.parent_run_id}`, { signal }),
          readUntil(child.parent_run_id, child.parent_sequence, signal),
        ]);
        const trace = new Trace(run.id);
        for (const event of events) trace.add(event);
        parents.unshift({ run, trace });
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === undefined) throw error;
      this.panel.say(`What this run goes on from did not load: ${error.message}`);
      return;
    }
    this.parents = parents;
    for (const { trace } of parents) for (const step of trace.steps) this.addCard(step, { isParent: true });
    const before = button("Open the run before", () => this.panel.openRun(this.run.parent_run_id), { kind: "sp-small sp-quiet" });
    this.list.append(el("div", { class: "sp-from-here" }, el("span", {}, "continued from here"), before));
    this.showOpening();
  }

  // ------------------------------------------------------------------ events

  /** Take in a stored event; the same one again changes nothing. */
  take(event) {
    const { trace } = this;
    if (!trace.add(event)) return;
    const { kind, masks } = event.payload;
    this.skewMs = Math.min(this.skewMs, Date.now() - Date.parse(event.at));
    this.keepingPlace(() => {
      this.preview.hidden = true;
      if (kind === "QuestionAsked") this.panel.head.showRun(this.run, trace);
      if (kind === "ImageShown") this.showOpening();
      const step = trace.stepOf(event.sequence);
      if (step) (this.cards.get(step.key) ?? this.addCard(step, { isParent: false })).update();
      if (kind === "RunStopped") this.stopped(event.payload);
      this.showState();
      if (step && this.wanted === event.sequence) this.select(step.key, { jump: false });
    });
    if (!masks?.length) return;
    if (this.isLive) viewerBridge().refreshMasks();
    this.learnLooks(masks);
  }

  /** Change the steps; who reads at the end of a run that goes on stays at its end, anybody else where they are. */
  keepingPlace(change) {
    const { steps } = this.panel;
    const isAtBottom = steps.scrollHeight - steps.scrollTop - steps.clientHeight < AT_BOTTOM_PX;
    change();
    if (this.isLive && isAtBottom) steps.scrollTop = steps.scrollHeight;
  }

  addCard(step, { isParent }) {
    const { mayJudge, mayAsk } = this.panel;
    const card = new Card(step, this, { mayJudge, mayAsk, isParent });
    this.cards.set(step.key, card);
    this.list.append(card.element);
    return card;
  }

  stopped({ reason, message }) {
    Object.assign(this.run, { state: "stopped", stop_reason: reason });
    this.panel.showRuns();
    const words = stopWords(reason);
    this.ended.hidden = reason === "answered";
    fill(this.ended, el("b", {}, words[0].toUpperCase() + words.slice(1)), message && el("p", {}, message));
    if (this.verdict) this.verdict.element.hidden = false;
    this.updateJudges();
  }

  /** What is being written. A preview may come behind the event of its own turn: then it is old and is not shown. */
  showPreview(text) {
    const { last, lastSpoke: spoke } = this.trace;
    if (SILENT.has(last?.payload.kind) || (spoke && (spoke.payload.text + spoke.payload.cut).startsWith(text))) return;
    this.keepingPlace(() => {
      this.preview.hidden = false;
      this.preview.textContent = text;
      this.preview.scrollTop = this.preview.scrollHeight;
    });
  }

  showState() {
    const { trace } = this;
    const first = trace.events[0];
    this.panel.head.showState({
      isStopped: Boolean(trace.stopped),
      reason: trace.stopped?.payload.reason ?? null,
      steps: trace.steps.length,
      isCancelling: this.isCancelling || this.run.cancel_requested,
      isConnected: this.isConnected,
      elapsed: () => {
        if (!first) return null;
        // The server's clock: its time of now is ours less the smallest lag that an event came with.
        const now = trace.stopped ? Date.parse(trace.stopped.at) : Date.now() - this.skewMs;
        return Math.max(0, (now - Date.parse(first.at)) / 1000);
      },
    });
  }

  /** The pictures that came with the question: they belong to no step. */
  showOpening() {
    const first = this.parents[0]?.trace ?? this.trace;
    if (this.opening.childElementCount === first.opening.length) return;
    fill(
      this.opening,
      first.opening.map(({ payload }) => {
        const { url, words } = this.pictureFacts(payload, first.runId);
        return el(
          "div",
          { class: "sp-shown" },
          el("button", { type: "button", class: "sp-picture", "aria-label": `${words}, enlarge`, on: { click: () => enlarge(url, words) } }, el("img", { src: url, alt: "", draggable: "false" })),
          el("button", { type: "button", class: "sp-shown-words", on: { click: () => this.showView(payload.view) } }, el("b", {}, "Shown to the model"), el("span", {}, words)),
        );
      }),
    );
  }

  // ------------------------------------------------------------------ what cards ask for

  known() {
    const chain = [...this.parents.map(({ trace }) => trace), this.trace];
    return {
      picture: (index) => chain.map((trace) => trace.pictures.get(index)?.payload).findLast(Boolean),
      mask: (number) => chain.flatMap((trace) => trace.masks)[number - 1],
    };
  }

  placeOf(step) {
    return placeOf(step, this.known());
  }

  /** The picture of a step: the one that came with its result, else the one that its call names; or null. */
  pictureOf({ runId, shown, called }) {
    const picture = shown?.payload ?? this.known().picture(called?.payload.view_index);
    return picture ? this.pictureFacts(picture, runId) : null;
  }

  pictureFacts({ index, view }, runId) {
    const words = pictureWords(view, this.panel.viewer.state()?.count ?? 1, cropOf(view) !== null);
    return { index, url: `/api/runs/${runId}/pictures/${index}`, words: `Picture ${index}: ${words}` };
  }

  enlarge(step) {
    const picture = this.pictureOf(step);
    if (picture) enlarge(picture.url, picture.words);
  }

  maskLook(versionId) {
    return this.looks.get(versionId) ?? null;
  }

  /** Colours of masks that the viewer's side does not know. */
  async learnLooks(masks) {
    const { signal } = this.leaving;
    for (const { mask_version_id: id, segment } of masks) {
      if (viewerBridge().maskLook(id) || this.looks.has(id)) continue;
      this.looks.set(id, null);
      try {
        const version = await api(`/api/mask-versions/${id}`, { signal });
        this.looks.set(id, version.segments.find(({ number }) => number === segment) ?? null);
      } catch (error) {
        if (signal.aborted) return;
        // Without its colour the chip still says what and how large.
        if (error.status === undefined) throw error;
        this.looks.delete(id);
      }
      this.redrawMasks();
    }
  }

  redrawMasks() {
    for (const card of this.cards.values()) card.redrawMasks();
  }

  updateJudges() {
    for (const card of this.cards.values()) card.updateJudges();
    this.verdict?.update();
  }

  // ------------------------------------------------------------------ going about

  get card() {
    return this.cards.get(this.selected);
  }

  select(key, { jump }) {
    const card = this.cards.get(key);
    if (!card) return;
    this.card?.setSelected(false);
    this.selected = key;
    card.setSelected(true);
    card.element.scrollIntoView({ block: "nearest" });
    if (!card.element.contains(document.activeElement)) card.element.focus({ preventScroll: true });
    if (jump) this.jump();
  }

  /** Take the viewer to where the selected step lies. */
  jump() {
    const place = this.card && this.placeOf(this.card.step);
    const bridge = viewerBridge();
    if (!place) {
      bridge.showBox(null);
      return;
    }
    this.showView({ frame_index: place.frameIndex, window: place.window }, place.box ?? place.crop, place.box ? "prompt" : "crop", place.label);
    for (const id of place.maskVersionIds) bridge.showMask(id);
    if (place.maskVersionIds.length > 0) bridge.focusMask(place.maskVersionIds[0]);
  }

  showView(view, box = cropOf(view), kind = "crop", label = "") {
    const bridge = viewerBridge();
    bridge.goTo(view.frame_index);
    if (view.window) bridge.setWindow(view.window);
    bridge.showBox(box, { kind, frameIndex: view.frame_index, label });
  }

  goToCited(step, { label, sequence }) {
    const parents = this.parents.map(({ trace }) => trace);
    const own = [...parents, this.trace].find(({ runId }) => runId === step.runId);
    const cited = (label === "s" ? [own] : parents).map((trace) => trace.stepOf(sequence)).findLast(Boolean);
    if (cited) this.select(cited.key, { jump: true });
  }

  /** The step of an event of this run or of those that it goes on from, or undefined. */
  find(runId, sequence) {
    const trace = [this.trace, ...this.parents.map((parent) => parent.trace)].find((one) => one.runId === runId);
    return trace?.stepOf(sequence);
  }

  move(steps) {
    const keys = [...this.cards.keys()];
    if (keys.length === 0) return;
    const at = keys.indexOf(this.selected);
    const first = steps > 0 ? 0 : keys.length - 1;
    this.select(keys[at < 0 ? first : Math.min(keys.length - 1, Math.max(0, at + steps))], { jump: false });
  }
}
