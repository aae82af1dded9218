// The trace column of the case page: asks, follows a run, shows its steps, and collects what people say of them.

import { api } from "../shell/api.js";
import { button, el, fill } from "../shell/dom.js";
import { AskBox } from "./ask.js";
import { onViewerBridge, registerTraceBridge, viewerBridge } from "./bridge.js";
import { Card } from "./card.js";
import { TraceHead } from "./head.js";
import { pressed } from "./keys.js";
import { enlarge } from "./lightbox.js";
import { openNext } from "./next_study.js";
import { loadJudgements, newKey, onOutbox, settled } from "./outbox.js";
import { cropOf, placeOf } from "./places.js";
import { Trace, continuesFrom } from "./steps.js";
import { follow, readUntil } from "./stream.js";
import { TraceVerdict } from "./verdict.js";
import { pictureWords, stopWords, suggestions } from "./words.js";

// The first image comes first; the trace is asked for when it is here, or after this.
const LATEST_START_MS = 1500;
const AT_BOTTOM_PX = 32;

export class TracePanel {
  /**
   * @param {HTMLElement} root
   * @param {object} session
   * @param {{state: () => object|null, toggleHelp: () => void}} viewer
   */
  constructor(root, session, viewer) {
    const may = (permission) => session.permissions.includes(permission);
    Object.assign(this, { root, viewer, mayJudge: may("judge"), mayAsk: may("ask_model") });
    this.head = new TraceHead({ userId: session.user.id, mayAsk: this.mayAsk, cancel: () => this.cancel(), openRun: (runId) => this.openRun(runId) });
    this.opening = el("div", { class: "sp-opening" });
    this.list = el("div", { class: "sp-step-list" });
    this.preview = el("div", { class: "sp-preview", hidden: true, "aria-label": "Being written" });
    this.ended = el("div", { class: "sp-ended", hidden: true });
    this.empty = el("div", { class: "sp-trace-empty" });
    this.steps = el("div", { class: "sp-steps", tabindex: "0", role: "feed", "aria-label": "Steps" }, this.empty, this.opening, this.list, this.preview, this.ended);
    this.askBox = new AskBox((question) => this.ask(question));
    this.verdictSlot = el("div", {});
    this.notice = el("p", { class: "sp-unsaved", role: "alert", hidden: true });
    this.nextButton = button(this.mayJudge ? "Submit and next" : "Next", () => this.next(), { kind: "sp-next", title: "Makes sure that all is saved, then opens the next study (N)" });
    this.nextButton.append(el("kbd", { "aria-hidden": "true" }, "N"));
    fill(root, this.head.element, this.steps, el("div", { class: "sp-trace-foot" }, this.verdictSlot, this.mayAsk && this.askBox.element, this.notice, this.nextButton));
    this.reset();
    onOutbox(() => this.updateJudges());
    onViewerBridge(() => this.redrawMasks());
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

  close() {
    clearTimeout(this.waiting);
    this.going?.abort();
    this.seriesId = null;
    this.isStarted = false;
    this.runs = [];
    this.askBox.reset();
    this.askBox.offer([]);
    this.leaveRun();
    this.head.clear();
    this.head.showRuns([], null);
    this.say("");
    fill(this.empty);
  }

  reset() {
    Object.assign(this, { seriesId: null, runs: [], run: null, trace: null, parents: [], cards: new Map(), looks: new Map(), selected: null, wanted: null });
    this.head.clear();
  }

  async load() {
    const { seriesId, going } = this;
    try {
      const { runs } = await api(`/api/series/${seriesId}/runs`, { signal: going.signal });
      if (going.signal.aborted) return;
      this.runs = runs;
      if (runs.length > 0 && !this.run) this.openRun(runs[0].id);
      else if (!this.run) this.showEmpty();
    } catch (error) {
      if (error.name === "AbortError" || going.signal.aborted) return;
      if (error.status === undefined) throw error;
      fill(this.empty, el("p", {}, `The runs of this series did not load: ${error.message}`), button("Try again", () => this.load(), { kind: "sp-small" }));
    }
  }

  async offerQuestions() {
    const { seriesId, going } = this;
    try {
      const { concepts } = await api(`/api/series/${seriesId}/concepts`, { signal: going.signal });
      if (going.signal.aborted) return;
      this.askBox.offer(suggestions(concepts));
    } catch (error) {
      if (error.name === "AbortError" || going.signal.aborted) return;
      if (error.status === undefined) throw error;
      this.withoutSegmenter = error.message;
    }
    if (!this.run && this.isStarted) this.showEmpty();
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

  async ask({ question, options, request_key }) {
    const state = this.viewer.state();
    const body = { question, options, request_key, frame_index: Math.max(0, state?.target ?? 0) };
    if (state?.count) body.frame_count = state.count;
    const run = await api(`/api/series/${this.seriesId}/runs`, { method: "POST", json: body });
    this.addRun(run);
  }

  /** A run that was begun here: shown at once, unless the page went on to another series meanwhile. */
  addRun(run) {
    if (run.series_id !== this.seriesId) return;
    this.runs = [run, ...this.runs.filter((one) => one.id !== run.id)];
    this.openRun(run.id);
  }

  leaveRun() {
    this.unfollow?.();
    this.leaving?.abort();
    this.unfollow = null;
    for (const card of this.cards.values()) card.end();
    this.verdict?.end();
    viewerBridge().showBox(null);
    Object.assign(this, { run: null, trace: null, parents: [], cards: new Map(), selected: null, verdict: null, isCancelling: false, isConnected: true, skewMs: Infinity });
    fill(this.opening);
    fill(this.list);
    fill(this.verdictSlot);
    this.preview.hidden = this.ended.hidden = true;
  }

  async openRun(runId) {
    const run = this.runs.find((one) => one.id === runId);
    if (!run || this.run?.id === runId) return;
    this.leaveRun();
    fill(this.empty);
    this.run = run;
    this.trace = new Trace(run.id);
    // A finished run is read from its beginning, one that goes on is followed at its end.
    this.isFollowing = run.state !== "stopped";
    this.wasStopped = run.state === "stopped";
    const leaving = (this.leaving = new AbortController());
    this.head.showRun(run, this.trace);
    this.head.showRuns(this.runs, run.id);
    this.showState();
    if (this.mayJudge) {
      this.verdict = new TraceVerdict({ runId: run.id, isStopped: () => Boolean(this.trace?.stopped) });
      fill(this.verdictSlot, this.verdict.element);
      this.verdict.element.hidden = true;
      this.loadJudgements(run.id, leaving.signal);
    }
    if (run.parent_run_id) await this.loadParents(run, leaving.signal);
    if (leaving.signal.aborted) return;
    this.unfollow = follow(run.id, {
      event: (event) => this.take(event),
      preview: (text) => this.showPreview(text),
      connection: (isConnected) => {
        if (this.isConnected === isConnected) return;
        this.isConnected = isConnected;
        this.showState();
      },
    });
  }

  async loadJudgements(runId, signal) {
    try {
      await loadJudgements(runId, { signal });
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === undefined) throw error;
      this.say(`Your earlier judgements did not load: ${error.message}`, () => this.loadJudgements(runId, signal));
    }
  }

  /** What a continued run goes on from: the steps of its parents up to where it begins, oldest first. */
  async loadParents(run, signal) {
    const parents = [];
    try {
      for (let child = run; child.parent_run_id; child = parents[0].run) {
        const [parent, events] = await Promise.all([api(`/api/runs/${child.parent_run_id}`, { signal }), readUntil(child.parent_run_id, child.parent_sequence, signal)]);
        const trace = new Trace(parent.id);
        for (const event of events) trace.add(event);
        parents.unshift({ run: parent, trace });
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === undefined) throw error;
      this.say(`What this run goes on from did not load: ${error.message}`);
      return;
    }
    this.parents = parents;
    for (const { trace } of parents) for (const step of trace.steps) this.addCard(step, { isParent: true });
    this.list.append(el("div", { class: "sp-from-here" }, el("span", {}, "continued from here"), button("Open the run before", () => this.openRun(run.parent_run_id), { kind: "sp-small sp-quiet" })));
  }

  // ------------------------------------------------------------------ events

  /** Take in a stored event; the same one again changes nothing. */
  take(event) {
    if (!this.trace.add(event)) return;
    const isLive = !this.wasStopped;
    this.skewMs = Math.min(this.skewMs, Date.now() - Date.parse(event.at));
    const isAtBottom = this.steps.scrollHeight - this.steps.scrollTop - this.steps.clientHeight < AT_BOTTOM_PX;
    this.preview.hidden = true;
    if (event.payload.kind === "QuestionAsked") this.head.showRun(this.run, this.trace);
    this.showOpening();
    const step = this.trace.stepOf(event.sequence);
    if (step) (this.cards.get(step.key) ?? this.addCard(step, { isParent: false })).update();
    if (event.payload.masks?.length && isLive) viewerBridge().refreshMasks();
    if (event.payload.kind === "RunStopped") this.stopped(event.payload);
    if (event.payload.masks) this.learnLooks(event.payload.masks);
    this.showState();
    if (this.isFollowing && isAtBottom) this.steps.scrollTop = this.steps.scrollHeight;
    if (this.wanted?.runId === this.run.id && step && this.wanted.sequence === event.sequence) {
      this.wanted = null;
      this.select(step.key, { jump: false });
    }
  }

  addCard(step, { isParent }) {
    const card = new Card(step, this, { mayJudge: this.mayJudge, mayAsk: this.mayAsk, isParent });
    this.cards.set(step.key, card);
    this.list.append(card.element);
    return card;
  }

  stopped({ reason, message }) {
    Object.assign(this.run, { state: "stopped", stop_reason: reason });
    this.head.showRuns(this.runs, this.run.id);
    this.ended.hidden = reason === "answered";
    fill(this.ended, el("b", {}, sentence(stopWords(reason))), message && el("p", {}, message));
    if (this.verdict) this.verdict.element.hidden = false;
    this.updateJudges();
  }

  showPreview(text) {
    if (this.trace.stopped) return;
    const isAtBottom = this.steps.scrollHeight - this.steps.scrollTop - this.steps.clientHeight < AT_BOTTOM_PX;
    this.preview.hidden = false;
    this.preview.textContent = text;
    this.preview.scrollTop = this.preview.scrollHeight;
    if (this.isFollowing && isAtBottom) this.steps.scrollTop = this.steps.scrollHeight;
  }

  showState() {
    const { trace } = this;
    const first = trace.events[0];
    this.head.showState({
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
        const words = `Picture ${payload.index}: ${this.pictureWords(payload)}`;
        const url = `/api/runs/${first.runId}/pictures/${payload.index}`;
        return el(
          "div",
          { class: "sp-shown" },
          el("button", { type: "button", class: "sp-picture", "aria-label": "Enlarge", on: { click: () => enlarge(url, words) } }, el("img", { src: url, alt: "", draggable: "false" })),
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

  /** The picture of a step: the one that came with its result, else the one that its call names. */
  pictureOf({ runId, shown, called }) {
    const picture = shown?.payload ?? this.known().picture(called?.payload.view_index);
    return picture ? { index: picture.index, url: `/api/runs/${runId}/pictures/${picture.index}`, words: `Picture ${picture.index}: ${this.pictureWords(picture)}` } : null;
  }

  pictureWords({ view }) {
    return pictureWords(view, this.viewer.state()?.count ?? 1, cropOf(view) !== null);
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
    for (const { mask_version_id: id, segment } of masks) {
      if (viewerBridge().maskLook(id) || this.looks.has(id)) continue;
      this.looks.set(id, null);
      try {
        const version = await api(`/api/mask-versions/${id}`);
        this.looks.set(id, version.segments.find(({ number }) => number === segment) ?? null);
      } catch (error) {
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

  select(key, { jump }) {
    if (!this.cards.has(key)) return;
    this.cards.get(this.selected)?.setSelected(false);
    this.selected = key;
    const card = this.cards.get(key);
    card.setSelected(true);
    card.element.scrollIntoView({ block: "nearest" });
    if (!card.element.contains(document.activeElement)) card.element.focus({ preventScroll: true });
    if (jump) this.jump();
  }

  /** Take the viewer to where the selected step lies. */
  jump() {
    const step = this.cards.get(this.selected)?.step;
    const place = step && this.placeOf(step);
    const bridge = viewerBridge();
    if (!place) {
      bridge.showBox(null);
      return;
    }
    bridge.goTo(place.frameIndex);
    if (place.window) bridge.setWindow(place.window);
    const box = place.box ?? place.crop;
    bridge.showBox(box, { kind: place.box ? "prompt" : "crop", frameIndex: place.frameIndex, label: place.label });
    for (const id of place.maskVersionIds) bridge.showMask(id);
    if (place.maskVersionIds.length > 0) bridge.focusMask(place.maskVersionIds[0]);
  }

  showView(view) {
    viewerBridge().goTo(view.frame_index);
    if (view.window) viewerBridge().setWindow(view.window);
    viewerBridge().showBox(cropOf(view), { kind: "crop", frameIndex: view.frame_index });
  }

  goToCited(step, { label, sequence }) {
    const parents = this.parents.map(({ trace }) => trace);
    const own = step.runId === this.run.id ? this.trace : parents.find(({ runId }) => runId === step.runId);
    const places = label === "s" ? [own] : parents;
    const cited = places.map((trace) => trace.stepOf(sequence)).findLast(Boolean);
    if (cited) this.select(cited.key, { jump: true });
  }

  selectStepOfMask(runId, sequence) {
    for (const trace of [this.trace, ...this.parents.map((parent) => parent.trace)]) {
      const step = trace?.runId === runId && trace.stepOf(sequence);
      if (step) {
        this.select(step.key, { jump: false });
        return true;
      }
    }
    if (!this.runs.some((run) => run.id === runId)) return false;
    this.wanted = { runId, sequence };
    this.openRun(runId);
    return true;
  }

  move(steps) {
    const keys = [...this.cards.keys()];
    if (keys.length === 0) return;
    const at = keys.indexOf(this.selected);
    const next = at < 0 ? (steps > 0 ? 0 : keys.length - 1) : Math.min(keys.length - 1, Math.max(0, at + steps));
    this.select(keys[next], { jump: false });
  }

  press(verdict, options) {
    this.cards.get(this.selected)?.press(verdict, options);
  }

  comment() {
    this.cards.get(this.selected)?.judge?.comment();
  }

  help() {
    this.viewer.toggleHelp();
  }

  key(event) {
    if (!this.seriesId || document.body.dataset.view !== "case" || document.querySelector("dialog[open]")) return;
    if (!pressed(event, this)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  // ------------------------------------------------------------------ cancel, continue, next

  async cancel() {
    const { run } = this;
    this.isCancelling = true;
    this.showState();
    try {
      Object.assign(run, await api(`/api/runs/${run.id}/cancel`, { method: "POST" }));
    } catch (error) {
      if (error.status === undefined) throw error;
      if (this.run === run) {
        this.isCancelling = false;
        this.showState();
        this.say(`It was not stopped: ${error.message}`);
      }
    }
  }

  /** Begin a child run behind a step; whether it was begun. */
  async continueFrom(step, correction) {
    const wanted = JSON.stringify([step.key, correction]);
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
    if (this.isWriting) {
      this.say("Save or cancel what you are writing first.");
      return;
    }
    if (this.verdict?.hasUnsavedMarks) {
      this.say("Accept or reject the whole trace: your marks are saved with it.");
      return;
    }
    this.nextButton.disabled = true;
    try {
      if (await settled()) await openNext(this.studyId);
      else this.say("Not everything is saved yet: nothing is lost, but stay here until it is.");
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
    if (words && !again) this.saying = setTimeout(() => this.say(""), 8000);
  }
}

function sentence(words) {
  return words[0].toUpperCase() + words.slice(1);
}
