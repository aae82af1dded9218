// The worklist: pages of 50 that the server makes, search, a filter, keys.

import { fetchJson, loadSession, prefetch } from "./api.js";
import { button, el, fill, icon } from "./dom.js";
import { onRoute } from "./router.js";
import { openStudy } from "./opening.js";
import { MODALITIES, count, dicomDate, localTime, studyTitle, whose } from "./words.js";

const SEARCH_PAUSE_MS = 180;
const HOVER_PAUSE_MS = 90;
const SKELETON_ROWS = 12;

export async function mountWorklist(root) {
  const session = await loadSession();
  new Worklist(root, session).start();
}

class Worklist {
  constructor(root, session) {
    this.session = session;
    this.seesIdentity = session.permissions.includes("see_identity");
    this.query = { q: "", modality: "", project_id: "", page: 1 };
    this.asking = null;
    this.studies = null;
    this.selected = 0;
    this.scroll = 0;
    this.search = el("input", {
      class: "sp-input",
      type: "search",
      placeholder: this.seesIdentity ? "Search description, patient name or id" : "Search description",
      "aria-label": "Search studies",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.modality = el("select", { class: "sp-input", "aria-label": "Modality" }, el("option", { value: "" }, "All modalities"), MODALITIES.map(([code, name]) => el("option", { value: code }, `${code} · ${name}`)));
    this.project = el("select", { class: "sp-input", "aria-label": "Project" }, el("option", { value: "" }, "All projects"), session.projects.map((one) => el("option", { value: one.id }, one.name)));
    this.total = el("span", { class: "sp-dim", "aria-live": "polite" });
    this.rows = el("div", { class: "sp-rows", role: "listbox", tabindex: "0", "aria-label": "Studies" });
    this.pager = el("div", { class: "sp-pager" });
    fill(root, this.toolbar(), this.rows, this.pager);
  }

  start() {
    let pause;
    this.search.addEventListener("input", () => {
      clearTimeout(pause);
      pause = setTimeout(() => this.ask({ q: this.search.value.trim(), page: 1 }), SEARCH_PAUSE_MS);
    });
    this.modality.addEventListener("change", () => this.ask({ modality: this.modality.value, page: 1 }));
    this.project.addEventListener("change", () => this.ask({ project_id: this.project.value, page: 1 }));
    this.rows.addEventListener("scroll", () => (this.scroll = this.rows.scrollTop), { passive: true });
    document.addEventListener("keydown", (event) => this.onKey(event));
    onRoute((route) => {
      if (route.view !== "worklist") return;
      // A view that was hidden has lost where it was scrolled to.
      this.rows.scrollTop = this.scroll;
      this.ask({});
      if (this.studies) this.rows.focus({ preventScroll: true });
    });
  }

  toolbar() {
    return el(
      "div",
      { class: "sp-toolbar" },
      el("div", { class: "sp-search" }, icon("search"), this.search, el("kbd", {}, "/")),
      this.modality,
      this.session.projects.length > 1 && this.project,
      el("span", { class: "sp-grow" }),
      this.total,
      this.session.permissions.includes("upload_studies") && el("a", { class: "sp-button sp-primary", href: "#/upload" }, icon("upload"), "Upload"),
    );
  }

  head() {
    const titles = ["", this.seesIdentity && "Patient", "Study", "Modality", "Series", "Frames", "Project", "Received"];
    return el("div", { class: this.rowClass("sp-row-head"), "aria-hidden": "true" }, titles.filter((one) => one !== false).map((title) => el("span", {}, title)));
  }

  rowClass(kind) {
    return `sp-row ${kind} ${this.seesIdentity ? "sp-with-patient" : ""}`;
  }

  /** Ask for a page of the list. A newer question ends an older one, so the last one typed is the one shown. */
  async ask(change) {
    this.query = { ...this.query, ...change };
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    if (this.studies === null) this.showSkeleton();
    let answer;
    try {
      answer = await askForPage(this.query, asking.signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.showProblem(error);
      return;
    }
    if (asking.signal.aborted) return;
    this.show(answer, { isNewList: Object.keys(change).length > 0 });
  }

  show({ page, pages, total, studies }, { isNewList }) {
    const chosen = isNewList ? null : this.studies?.[this.selected]?.id;
    this.studies = studies;
    this.selected = Math.max(0, studies.findIndex((study) => study.id === chosen));
    this.total.textContent = count(total, "study", "studies");
    if (studies.length === 0) {
      fill(this.rows, this.emptyState());
    } else {
      fill(this.rows, this.head(), studies.map((study, index) => this.row(study, index)));
    }
    if (isNewList) this.rows.scrollTop = this.scroll = 0;
    else this.rows.scrollTop = this.scroll;
    this.mark();
    fill(
      this.pager,
      pages > 1 && [
        button(icon("left"), () => this.ask({ page: page - 1 }), { kind: "sp-quiet", disabled: page <= 1, "aria-label": "Previous page" }),
        el("span", {}, `${(page - 1) * 50 + 1}–${(page - 1) * 50 + studies.length} of ${total.toLocaleString("en")}`),
        button(icon("right"), () => this.ask({ page: page + 1 }), { kind: "sp-quiet", disabled: page >= pages, "aria-label": "Next page" }),
      ],
      el("span", { class: "sp-grow" }),
      el("span", { class: "sp-keys" }, el("kbd", {}, "↑"), el("kbd", {}, "↓"), " choose ", el("kbd", {}, "Enter"), " open ", el("kbd", {}, "/"), " search"),
    );
  }

  row(study, index) {
    const received = new Date(study.received_at);
    const cells = [
      el("span", { class: "sp-cell-picture" }, thumbnail(study)),
      this.seesIdentity && patientCell(study.identity),
      el("span", { class: "sp-cell-main" }, el("b", {}, studyTitle(study)), el("small", {}, study.identity?.study_date ? `taken ${dicomDate(study.identity.study_date)}` : "")),
      el("span", { class: "sp-tags" }, study.modalities.filter(Boolean).map((one) => el("i", { class: "sp-tag" }, one))),
      el("span", { class: "sp-number" }, String(study.series_count)),
      el("span", { class: "sp-number" }, study.frame_count.toLocaleString("en")),
      el("span", { class: "sp-dim sp-clip" }, study.project_name),
      el("time", { class: "sp-dim", datetime: study.received_at, title: received.toISOString() }, localTime(study.received_at)),
    ];
    let pause;
    return el(
      "div",
      {
        class: this.rowClass("sp-study"),
        role: "option",
        data: { studyId: study.id },
        on: {
          click: () => this.open(index),
          // Only the series' description is fetched early, no pixels: a hand passing over the list loads no patient.
          pointerenter: () => (pause = setTimeout(() => study.cover_series_id && prefetch(`/api/series/${study.cover_series_id}`), HOVER_PAUSE_MS)),
          pointerleave: () => clearTimeout(pause),
        },
      },
      cells,
    );
  }

  open(index) {
    this.selected = index;
    this.mark();
    openStudy(this.studies[index]);
  }

  mark() {
    [...this.rows.querySelectorAll(".sp-study")].forEach((row, index) => {
      row.setAttribute("aria-selected", String(index === this.selected));
    });
  }

  onKey(event) {
    if (document.body.dataset.view !== "worklist" || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const isTyping = event.target === this.search;
    if (event.key === "/" && !isTyping) {
      event.preventDefault();
      this.search.focus();
      this.search.select();
      return;
    }
    if (event.key === "Escape" && isTyping) {
      this.search.value = "";
      this.rows.focus();
      this.ask({ q: "", page: 1 });
      return;
    }
    if (event.target.closest?.("select, button, a, .sp-menu") || !this.studies?.length) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      if (isTyping) this.rows.focus();
      else this.selected = Math.min(this.studies.length - 1, Math.max(0, this.selected + step));
      this.mark();
      this.rows.querySelector("[aria-selected=true]").scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.open(this.selected);
    }
  }

  showSkeleton() {
    const cells = () => Array.from({ length: this.seesIdentity ? 8 : 7 }, () => el("span", {}, el("i", {})));
    const rows = Array.from({ length: SKELETON_ROWS }, () => el("div", { class: this.rowClass("sp-skeleton"), "aria-hidden": "true" }, cells()));
    fill(this.rows, this.head(), rows);
  }

  showProblem(error) {
    this.total.textContent = "";
    this.studies = null;
    fill(this.pager);
    fill(this.rows, el("div", { class: "sp-empty", role: "alert" }, el("h2", {}, "The worklist did not arrive"), el("p", {}, error.message), button("Try again", () => this.ask({}), { kind: "sp-primary" })));
  }

  emptyState() {
    const { q, modality, project_id: projectId } = this.query;
    if (q || modality || projectId) {
      return el(
        "div",
        { class: "sp-empty" },
        el("h2", {}, "Nothing matches"),
        el("p", {}, "No study fits this search and filter."),
        button("Clear search and filter", () => {
          this.search.value = this.modality.value = this.project.value = "";
          this.ask({ q: "", modality: "", project_id: "", page: 1 });
        }),
      );
    }
    if (this.session.projects.length === 0) {
      return el("div", { class: "sp-empty" }, el("h2", {}, "You are in no project yet"), el("p", {}, "Studies belong to projects. An administrator can make you a member of one."));
    }
    return el(
      "div",
      { class: "sp-empty" },
      el("h2", {}, "No studies yet"),
      el("p", {}, "Upload DICOM, NIfTI, PNG or JPEG: files, a folder or a zip."),
      this.session.permissions.includes("upload_studies") && el("a", { class: "sp-button sp-primary", href: "#/upload" }, icon("upload"), "Upload the first study"),
    );
  }
}

function patientCell(identity) {
  const name = whose(identity);
  const id = identity?.patient_id && identity.patient_id !== name ? identity.patient_id : "";
  const born = identity?.patient_birth_date ? `born ${dicomDate(identity.patient_birth_date)}` : "";
  return el("span", { class: "sp-cell-main" }, name ? el("b", {}, name) : el("b", { class: "sp-faint" }, "not named"), el("small", {}, [id, born].filter(Boolean).join(" · ")));
}

function thumbnail(study) {
  if (!study.cover_series_id) return icon("image");
  const picture = el("img", { src: `/api/series/${study.cover_series_id}/thumbnail`, alt: "", loading: "lazy", decoding: "async", draggable: "false" });
  picture.addEventListener("error", () => picture.replaceWith(icon("image")));
  return picture;
}

/** A page of the list. Words that were typed may name a patient: they go in a body and stand in no address. */
function askForPage(query, signal) {
  if (query.q) return fetchJson("/api/studies/search", { method: "POST", json: query, signal });
  const filters = Object.entries(query).filter(([, value]) => value !== "");
  return fetchJson(`/api/studies?${new URLSearchParams(filters)}`, { signal });
}
