// The case page: series on the left, the viewer, what is known of the study, the trace on the right.

import { fetchJson, loadSession } from "./api.js";
import { button, el, fact, fill, icon } from "./dom.js";
import { showStudyInHeader } from "./header.js";
import { takeHint } from "./opening.js";
import { current, onRoute } from "./router.js";
import { count, dicomDate, localTime, personName, seriesLabel, studyTitle } from "./words.js";
import { MaskWorkspace } from "../masks/index.js";
import { TRACE_KEYS, makeTrace } from "../trace/index.js";

const VIEWER = "/assets/viewer/viewer.js";
const SPEED_WINDOW_MS = 1000;
const BUSY_PAUSE_MS = 150;
const BUSY_PICTURES = 12;

let viewerModule = null;

/** Load and warm the viewer, once; asked for early so that a click finds it ready. */
function loadViewer() {
  viewerModule ??= import(/* @vite-ignore */ VIEWER).then(async (module) => {
    await module.prepare();
    return module;
  });
  return viewerModule;
}

export async function mountCase(root) {
  const session = await loadSession();
  const page = new CasePage(root, session);
  onRoute((route) => (route.view === "case" ? page.open(route.id) : page.close()));
  if (current().view === "case") return;
  // After the first view has its data; then the next click waits for nothing.
  (globalThis.requestIdleCallback ?? setTimeout)(() => page.makeViewer());
}

class CasePage {
  constructor(root, session) {
    this.strip = el("nav", { class: "sp-strip", "aria-label": "Series" });
    this.stage = el("div", { class: "sp-stage" });
    this.notice = el("div", { class: "sp-stage-notice", hidden: true, role: "alert" });
    this.mayEdit = session.permissions.includes("judge");
    this.segments = el("div");
    this.facts = el("section", { class: "sp-facts", "aria-label": "Study" });
    this.masks = null;
    this.status = el("footer", { class: "sp-status" });
    this.study = null;
    this.seriesId = null;
    this.viewer = null;
    this.making = null;
    this.loaded = { loaded: 0, total: 0 };
    this.drawn = [];
    this.trace = makeTrace(session, {
      state: () => this.viewer?.state() ?? null,
      toggleHelp: () => this.viewer?.toggleHelp(),
      spacingSource: () => this.viewer?.series?.spacing_source ?? null,
      reopen: () => this.reopen(),
    });
    fill(root, this.strip, el("section", { class: "sp-stage-holder" }, this.stage, this.notice), el("aside", { class: "sp-side" }, this.segments, this.facts), this.trace.root, this.status);
    this.showStatus();
  }

  makeViewer() {
    this.making ??= loadViewer().then((module) => {
      this.viewer = module.createViewer(this.stage, { fetchJson, onEvent: (kind, detail) => this.onViewer(kind, detail) });
      this.masks = new MaskWorkspace(this.viewer, { mayEdit: this.mayEdit, reopen: () => this.reopen() });
      fill(this.segments, this.masks.column.element);
      // For tests and for the console, as the viewer's own.
      this.stage.serpensMasks = this.masks;
      this.viewer.addHelp("Trace", TRACE_KEYS);
      return this.viewer;
    });
    return this.making;
  }

  /** Show a study. The first series begins to load before the study's own answer is here, where the row named it. */
  async open(studyId) {
    const hint = takeHint(studyId);
    const isNew = this.study?.id !== studyId;
    this.opening = studyId;
    this.notice.hidden = true;
    if (isNew) {
      this.study = null;
      fill(this.strip);
      fill(this.facts, el("h4", {}, "Study"), el("p", { class: "sp-dim" }, "…"));
    }
    if (hint) {
      showStudyInHeader(hint);
      if (hint.cover_series_id) this.show(hint.cover_series_id);
    }
    await this.readStudy(studyId, !hint?.cover_series_id);
  }

  /** Ask for a study and its series; `isFirst` shows one of them. */
  async readStudy(studyId, isFirst) {
    let study;
    try {
      study = await fetchJson(`/api/studies/${studyId}`);
    } catch (error) {
      if (this.opening === studyId) this.showProblem(error);
      return;
    }
    if (this.opening !== studyId) return;
    this.study = study;
    showStudyInHeader(study);
    fill(this.strip, study.series.map((series) => this.thumbnail(series)));
    if (isFirst) {
      const first = study.series.find((series) => series.id === study.cover_series_id) ?? study.series[0];
      if (first) this.show(first.id);
      else this.showProblem({ status: 404, message: "This study holds no series that can be shown." });
    }
    this.mark();
  }

  async show(seriesId) {
    if (this.seriesId === seriesId) return;
    this.seriesId = seriesId;
    this.loaded = { loaded: 0, total: 0 };
    this.drawn = [];
    this.notice.hidden = true;
    this.mark();
    this.trace.open({ studyId: this.opening, seriesId });
    try {
      const viewer = await this.makeViewer();
      if (this.seriesId === seriesId) await viewer.open(seriesId);
    } catch (error) {
      if (this.seriesId === seriesId) this.showProblem(error);
      if (!error.status) throw error;
    }
  }

  close() {
    this.opening = null;
    this.study = null;
    this.seriesId = null;
    this.viewer?.close();
    this.masks?.close();
    this.trace.close();
    fill(this.strip);
    fill(this.facts);
    this.notice.hidden = true;
  }

  onViewer(kind, detail) {
    if (kind === "progress") this.loaded = detail;
    if (kind === "frame" || kind === "window") this.countDrawn();
    if (kind === "error" && detail.index === null) this.showProblem(detail);
    if (kind === "opened" || kind === "first-image") this.showFacts();
    if (kind === "opened") this.trace.learnSizes();
    if (kind === "first-image" || kind === "error") this.trace.start();
    this.masks?.onViewer(kind);
    if (kind !== "cursor") this.showStatus();
  }

  /** Pictures a second while the hand is busy, kept on the screen when it rests; single steps say nothing of speed. */
  countDrawn() {
    const now = performance.now();
    if (now - (this.drawn.at(-1) ?? 0) > BUSY_PAUSE_MS) this.drawn = [];
    this.drawn.push(now);
    while (now - this.drawn[0] > SPEED_WINDOW_MS) this.drawn.shift();
    const spanS = (now - this.drawn[0]) / 1000;
    if (this.drawn.length >= BUSY_PICTURES) this.framesPerSecond = Math.round((this.drawn.length - 1) / spanS);
  }

  thumbnail(series) {
    const picture = el("img", { src: `/api/series/${series.id}/thumbnail`, alt: "", draggable: "false" });
    picture.addEventListener("error", () => picture.replaceWith(icon("image")));
    return el(
      "button",
      { type: "button", class: "sp-thumb", title: [seriesLabel(series), series.description, series.kind_reason].filter(Boolean).join("\n"), data: { seriesId: series.id }, on: { click: () => this.show(series.id) } },
      picture,
      el("span", { class: "sp-thumb-label" }, seriesLabel(series)),
      el("span", { class: "sp-thumb-count" }, String(series.frame_count)),
    );
  }

  mark() {
    for (const thumb of this.strip.children) {
      const isShown = thumb.dataset.seriesId === this.seriesId;
      thumb.toggleAttribute("aria-current", isShown);
      if (isShown) thumb.scrollIntoView({ block: "nearest" });
    }
    this.showFacts();
  }

  showFacts() {
    const { study } = this;
    if (!study) return;
    const identity = study.identity ?? {};
    const series = study.series.find((one) => one.id === this.seriesId);
    fill(
      this.facts,
      el("h4", {}, "Study"),
      el(
        "dl",
        {},
        study.identity && fact("Patient", personName(identity.patient_name), { isWide: true }),
        fact("Patient id", identity.patient_id),
        fact("Born", dicomDate(identity.patient_birth_date)),
        fact("Sex", identity.patient_sex),
        fact("Taken", dicomDate(identity.study_date)),
        fact("Accession", identity.accession_number),
        fact("File", identity.source_name, { isWide: true }),
        fact("Description", study.description, { isWide: true }),
        fact("Project", study.project_name),
        fact("Received", localTime(study.received_at), { isWide: true }),
      ),
      series && el("h4", {}, "Series"),
      series &&
        el(
          "dl",
          {},
          fact("Modality", series.modality || "unknown"),
          fact("Description", series.description, { isWide: true }),
          fact("Size", `${series.columns} × ${series.rows}`),
          fact("Frames", series.frame_count.toLocaleString("en")),
          fact("Kind", { volume: "volume", pictures: "2D pictures", multiframe: "loop in time", picture: "single picture" }[series.kind]),
        ),
      series?.kind_reason && el("p", { class: "sp-reason" }, series.kind_reason),
      el("h4", {}, "Keys"),
      el("p", { class: "sp-dim" }, "↑ ↓ slices · 1–9 windows · W window · Z zoom · P pan · I invert · 0 reset · ? all keys"),
    );
  }

  showStatus() {
    const state = this.viewer?.state();
    const { loaded, total } = this.loaded;
    fill(
      this.status,
      this.masks?.status.element,
      el("span", {}, total ? `frames ${loaded} / ${total}` : "no frames yet"),
      state?.renderMode && el("span", {}, `${state.renderMode === "cpu" ? "CPU" : "WebGL"} rendering${this.framesPerSecond ? ` · ${this.framesPerSecond} fps` : ""}`),
      el("span", { class: "sp-grow" }),
      this.study && el("span", {}, count(this.study.series_count, "series", "series")),
    );
  }

  showProblem({ status, message }) {
    this.notice.hidden = false;
    fill(
      this.notice,
      el("h2", {}, status === 404 ? "There is nothing here to show" : "This did not load"),
      el("p", {}, message),
      el("div", { class: "sp-actions" }, button("Try again", () => this.again()), el("a", { class: "sp-button sp-quiet", href: "#/" }, "To the worklist")),
    );
  }

  /** More images came to the series that is shown: it is read anew, and what is typed beside it stays. */
  reopen() {
    const { seriesId } = this;
    this.seriesId = null;
    this.show(seriesId);
    this.readStudy(this.opening, false);
  }

  again() {
    const studyId = this.opening;
    const seriesId = this.seriesId;
    this.seriesId = null;
    if (this.study && seriesId) this.show(seriesId);
    else this.open(studyId);
  }
}
