// The trace column of the case page: asks, opens runs, and goes on to the next study.

import { api } from "../shell/api.js";
import { button, el, fill } from "../shell/dom.js";
import { AskBox } from "./ask.js";
import { onViewerBridge, registerTraceBridge, viewerBridge } from "./bridge.js";
import { TraceHead } from "./head.js";
import { pressed } from "./keys.js";
import { openNext } from "./next_study.js";
import { newKey, onOutbox, settled } from "./outbox.js";
import { RunView } from "./run_view.js";
import { continuesFrom } from "./steps.js";
import { suggestions } from "./words.js";

// The first image comes first; the trace is asked for when it is here, or after this.
const LATEST_START_MS = 1500;
const SAID_MS = 8000;

/**
 * The viewer, or what stands for it before it is made.
 * @typedef {object} ViewerOfPage
 * @property {() => object|null} state
 * @property {() => void} toggleHelp
 * @property {() => void} reopen  Opens the series anew.
 * @property {() => import("../shell/words.js").SpacingSource} spacingSource  Of the open series.
 */

export class TracePanel {
  /**
   * @param {HTMLElement} root
   * @param {object} session
   * @param {ViewerOfPage} viewer
   */
  constructor(root, session, viewer) {
    const may = (permission) => session.permissions.includes(permission);
    Object.assign(this, { root, viewer, mayJudge: may("judge"), mayAsk: may("ask_model"), seriesId: null, runs: [], view: null });
    this.head = new TraceHead({ userId: session.user.id, mayAsk: this.mayAsk, cancel: () => this.cancel(), openRun: (runId) => this.openRun(runId) });
    this.empty = el("div", { class: "sp-trace-empty" });
    this.steps = el("div", { class: "sp-steps", tabindex: "0", "aria-label": "Steps" }, this.empty);
    this.askBox = new AskBox((question) => this.ask(question), () => this.viewer.reopen());
    this.verdictSlot = el("div", {});
    this.notice = el("p", { class: "sp-unsaved", role: "alert", hidden: true });
    this.nextButton = button(this.mayJudge ? "Submit and next" : "Next", () => this.next(), { kind: "sp-next", title: "Makes sure that all is saved, then opens the next study (N)" });
    this.nextButton.append(el("kbd", { "aria-hidden": "true" }, "N"));
    const foot = el("div", { class: "sp-trace-foot" }, this.verdictSlot, this.mayAsk && this.askBox.element, this.notice, this.nextButton);
    fill(root, this.head.element, this.steps, foot);
    this.head.clear();
    onOutbox(() => this.view?.updateJudges());
    onViewerBridge(() => this.view?.redrawMasks());
    registerTraceBridge({ selectStepOfMask: (runId, sequence) => this.selectStepOfMask(runId, sequence) });
    document.addEventListener("keydown", (event) => this.key(event));
    addEventListener("beforeunload", (event) => {
      if (this.isWriting) event.preventDefault();
    });
  }

  get isWriting() {
    return this.root.querySelector(".sp-editor textarea") !== null;
  }

  // ------------------------------------------------------------------ series and runs

  /** Show the runs of a series; `start` tells that its first image is here. */
  open({ studyId, seriesId }) {
    this.studyId = studyId;
    if (seriesId === this.seriesId) return;
    this.close();
    this.seriesId = seriesId;
    this.going = new AbortController();
    this.waiting = setTimeout(() => this.start(), LATEST_START_MS);
  }

  start() {
    clearTimeout(this.waiting);
    if (!this.seriesId || this.isStarted) return;
    this.isStarted = true;
    this.load();
    this.offerQuestions();
  }

  /** The descriptor of the series is here: sizes are written anew in what it allows. */
  learnSizes() {
    this.view?.redrawMasks();
  }

  close() {
    clearTimeout(this.waiting);
    this.going?.abort();
    this.leaveRun();
    Object.assign(this, { seriesId: null, isStarted: false, isLoaded: false, runs: [], withoutSegmenter: "" });
    this.askBox.reset();
    this.askBox.offer([]);
    this.head.clear();
    this.showRuns();
    this.say("");
    fill(this.empty);
  }

  async load() {
    const { seriesId, going } = this;
    try {
      const { runs } = await api(`/api/series/${seriesId}/runs`, { signal: going.signal });
      const begun = this.runs.filter((run) => !runs.some(({ id }) => id === run.id));
      this.runs = [...begun, ...runs];
      this.isLoaded = true;
    } catch (error) {
      if (going.signal.aborted) return;
      if (error.status === undefined) throw error;
      fill(this.empty, el("p", {}, `The runs of this series did not load: ${error.message}`), button("Try again", () => this.load(), { kind: "sp-small" }));
      return;
    }
    if (this.view) this.showRuns();
    else if (this.runs.length > 0) this.openRun(this.runs[0].id);
    else this.showEmpty();
  }

  async offerQuestions() {
    const { seriesId, going } = this;
    try {
      const { concepts } = await api(`/api/series/${seriesId}/concepts`, { signal: going.signal });
      this.askBox.offer(suggestions(concepts));
    } catch (error) {
      if (going.signal.aborted) return;
      if (error.status === undefined) throw error;
      this.withoutSegmenter = error.message;
    }
    if (!this.view && this.isLoaded) this.showEmpty();
  }

  showEmpty() {
    const offered = this.mayAsk ? this.askBox.suggestions() : [];
    fill(
      this.empty,
      el("b", {}, this.mayAsk ? "Ask about this series" : "Nothing was asked about this series"),
      el("p", {}, "Each step of the answer appears here: what the model thought, what it called, the picture it saw, the outline it made."),
      offered.length > 0 && el("div", { class: "sp-offered" }, offered),
      this.withoutSegmenter && el("p", { class: "sp-warned" }, `Outlines cannot be made now: ${this.withoutSegmenter}`),
    );
  }

  showRuns() {
    this.head.showRuns(this.runs, this.view?.run.id ?? null);
  }

  async ask({ question, options, request_key }) {
    const { seriesId } = this;
    const state = this.viewer.state();
    // Until the viewer shows this series its places are those of another.
    const isOpen = state?.seriesId === seriesId;
    const json = { question, options, request_key, frame_index: isOpen ? Math.max(0, state.target) : 0 };
    if (isOpen) json.frame_count = state.count;
    this.addRun(await api(`/api/series/${seriesId}/runs`, { method: "POST", json }));
  }

  /** A run that was begun here: shown at once, unless the page went on to another series meanwhile. */
  addRun(run) {
    if (run.series_id !== this.seriesId) return;
    this.runs = [run, ...this.runs.filter((one) => one.id !== run.id)];
    this.openRun(run.id);
  }

  leaveRun() {
    this.view?.end();
    this.view = null;
    fill(this.verdictSlot);
    viewerBridge().showBox(null);
  }

  /** @param {number|null} wanted  An event whose step is selected when it is here. */
  openRun(runId, wanted = null) {
    const run = this.runs.find((one) => one.id === runId);
    if (!run || this.view?.run.id === runId) return;
    this.leaveRun();
    fill(this.empty);
    this.view = new RunView(run, this);
    this.steps.append(...this.view.parts);
    this.steps.scrollTop = 0;
    if (this.view.verdict) fill(this.verdictSlot, this.view.verdict.element);
    this.showRuns();
    this.view.begin(wanted);
  }

  // ------------------------------------------------------------------ keys and masks

  key(event) {
    if (!this.seriesId || document.body.dataset.view !== "case" || document.querySelector("dialog[open]")) return;
    if (!pressed(event, this)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  help() {
    this.viewer.toggleHelp();
  }

  selectStepOfMask(runId, sequence) {
    const step = this.view?.find(runId, sequence);
    if (step) this.view.select(step.key, { jump: false });
    else if (this.runs.some((run) => run.id === runId)) this.openRun(runId, sequence);
    else return false;
    return true;
  }

  // ------------------------------------------------------------------ cancel, continue, next

  async cancel() {
    const { view } = this;
    view.isCancelling = true;
    view.showState();
    try {
      const { cancel_requested: isRequested } = await api(`/api/runs/${view.run.id}/cancel`, { method: "POST" });
      view.run.cancel_requested = isRequested;
    } catch (error) {
      if (error.status === undefined) throw error;
      view.isCancelling = false;
      if (this.view !== view) return;
      view.showState();
      this.say(`It was not stopped: ${error.message}`);
    }
  }

  /** Begin a child run behind a step; whether it was begun. */
  async continueFrom(step, correction) {
    const wanted = JSON.stringify([step.key, correction]);
    // The same wish after a lost answer is the same run.
    if (this.pendingContinue?.wanted !== wanted) this.pendingContinue = { wanted, request_key: newKey() };
    const json = { from_sequence: continuesFrom(step), ...correction, request_key: this.pendingContinue.request_key };
    try {
      this.addRun(await api(`/api/runs/${step.runId}/continue`, { method: "POST", json }));
      this.pendingContinue = null;
      return true;
    } catch (error) {
      if (error.status === undefined) throw error;
      this.say(`It did not go on: ${error.message}`);
      return false;
    }
  }

  async next() {
    if (this.nextButton.disabled) return;
    if (this.isWriting) {
      this.say("Save or cancel what you are writing first.");
      return;
    }
    if (this.view?.verdict?.hasUnsavedMarks) {
      this.say("Accept or reject the whole trace: your marks are saved with it.");
      return;
    }
    this.nextButton.disabled = true;
    try {
      if (await settled()) await openNext(this.studyId);
      else this.say("Not everything is saved yet. Nothing is lost: stay here until it is.");
    } catch (error) {
      if (error.status === undefined) throw error;
      this.say(`The next study did not open: ${error.message}`);
    } finally {
      this.nextButton.disabled = false;
    }
  }

  /** Tell something above the buttons; an empty text takes it away. */
  say(words, again = null) {
    this.notice.hidden = words === "";
    fill(this.notice, words, again && button("Try again", () => (this.say(""), again()), { kind: "sp-small" }));
    clearTimeout(this.saying);
    if (words && !again) this.saying = setTimeout(() => this.say(""), SAID_MS);
  }
}
