// The upload page: choose, send, wait until it is read, see what became of each file.

import { api, loadSession } from "./api.js";
import { fromDrop, fromInput } from "./choosing.js";
import { button, el, fill, icon } from "./dom.js";
import { openStudy } from "./opening.js";
import { Sending, progressText } from "./sending.js";
import { MODALITIES, bytes, count, refusal, studyTitle } from "./words.js";

const LISTED_FILES = 200;
const OUTCOMES = [
  ["stored", "stored", "ok"],
  ["duplicate", "already here", ""],
  ["skipped", "without an image", ""],
  ["quarantined", "set aside", "warn"],
  ["refused", "refused", "bad"],
];

export async function mountUpload(root) {
  const session = await loadSession();
  if (session.permissions.includes("upload_studies")) new UploadPage(root, session).choose();
  else fill(root, el("div", { class: "sp-empty" }, el("h2", {}, "No upload for your role"), el("p", {}, "An administrator can change your role.")));
}

class UploadPage {
  constructor(root, session) {
    this.body = el("div", { class: "sp-sheet" });
    this.files = [];
    fill(root, this.body);
    this.project = select("Project", session.projects.map((one) => [one.id, one.name]));
    this.modality = select("Modality", [["", "unknown"], ...MODALITIES.map(([code, name]) => [code, `${code} · ${name}`])], "for NIfTI and pictures, which do not say it themselves");
    const description = el("input", { class: "sp-input", id: "sp-stated-description", type: "text", maxlength: "200", autocomplete: "off", placeholder: "optional" });
    this.description = { input: description, row: el("div", { class: "sp-field" }, el("label", { for: description.id }, "Description"), description, el("small", {}, "for files without one; no patient names")) };
    this.hasProject = session.projects.length > 0;
    document.addEventListener("dragover", (event) => this.onDrag(event));
    document.addEventListener("drop", (event) => this.onDrag(event));
  }

  // ---- choosing

  choose() {
    this.sending = null;
    if (!this.hasProject) {
      fill(this.body, el("div", { class: "sp-empty" }, el("h2", {}, "You are in no project yet"), el("p", {}, "Studies belong to projects. An administrator can make you a member of one.")));
      return;
    }
    const files = el("input", { type: "file", multiple: true, hidden: true, id: "sp-files" });
    const folder = el("input", { type: "file", webkitdirectory: true, hidden: true, id: "sp-folder" });
    for (const input of [files, folder]) {
      input.addEventListener("change", () => {
        this.add(fromInput(input));
        input.value = "";
      });
    }
    this.zone = el(
      "div",
      { class: "sp-drop", on: { dragenter: () => this.zone.classList.add("sp-over"), dragleave: (event) => this.zone.contains(event.relatedTarget) || this.zone.classList.remove("sp-over") } },
      icon("upload"),
      el("h2", {}, "Drop files, a folder or a zip here"),
      el("p", {}, "DICOM · NIfTI (.nii, .nii.gz) · PNG · JPEG · TIFF"),
      el("div", { class: "sp-actions" }, button([icon("file"), "Choose files"], () => files.click()), button([icon("folder"), "Choose a folder"], () => folder.click())),
      files,
      folder,
    );
    this.staged = el("div", { class: "sp-staged" });
    fill(this.body, el("h1", {}, "Upload"), this.zone, el("div", { class: "sp-fields" }, this.project.row, this.modality.row, this.description.row), this.staged);
    this.showStaged();
  }

  async onDrag(event) {
    // A file dropped beside the zone would otherwise replace the page and show its bytes.
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    if (event.type !== "drop" || document.body.dataset.view !== "upload" || this.sending || !this.zone) return;
    this.zone.classList.remove("sp-over");
    try {
      this.add(await fromDrop(event.dataTransfer));
    } catch (error) {
      this.showStaged(`What was dropped could not be read: ${error.message}`);
    }
  }

  add(files) {
    const known = new Set(this.files.map((one) => `${one.path}\n${one.file.size}`));
    this.files.push(...files.filter((one) => !known.has(`${one.path}\n${one.file.size}`)));
    this.showStaged(files.length === 0 ? "There is no file in what was chosen." : null);
  }

  showStaged(problem = null) {
    const total = this.files.reduce((sum, { file }) => sum + file.size, 0);
    const names = this.files.slice(0, 3).map((one) => one.path).join(", ");
    fill(
      this.staged,
      problem && el("p", { class: "sp-problem", role: "alert" }, problem),
      el("div", { class: "sp-staged-what" }, el("b", {}, this.files.length ? `${count(this.files.length, "file")} · ${bytes(total)}` : "Nothing chosen yet"), el("small", { class: "sp-clip" }, this.files.length > 3 ? `${names}, …` : names)),
      this.files.length > 0 && button("Clear", () => ((this.files = []), this.showStaged()), { kind: "sp-quiet" }),
      button("Upload", () => this.send(), { kind: "sp-primary", disabled: this.files.length === 0, id: "sp-send" }),
    );
  }

  // ---- sending and reading

  send() {
    this.sending = new Sending({
      projectId: this.project.input.value,
      modality: this.modality.input.value,
      description: this.description.input.value.trim(),
      files: this.files,
      onChange: () => this.showSending(),
    });
    this.bar = el("i", {});
    this.progress = el("div", { class: "sp-bar", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": "100" }, this.bar);
    this.title = el("h1", {});
    this.text = el("p", { class: "sp-dim", "aria-live": "polite" });
    this.actions = el("div", { class: "sp-actions" });
    this.detail = el("div", {});
    this.shown = null;
    fill(this.body, this.title, this.progress, this.text, this.actions, this.detail);
    this.sending.run();
  }

  showSending() {
    const { sending } = this;
    const { phase } = sending;
    if (phase === "sending" || phase === "reading") {
      this.text.textContent = progressText(sending);
      const fraction = phase === "sending" ? sending.fraction : readFraction(sending.upload);
      this.bar.style.width = `${fraction * 100}%`;
      this.progress.setAttribute("aria-valuenow", String(Math.round(fraction * 100)));
    }
    if (phase === this.shown) return;
    this.shown = phase;
    this.progress.dataset.phase = phase;
    fill(this.detail);
    fill(this.actions);
    if (phase === "sending") {
      this.title.textContent = "Sending";
      fill(this.actions, button("Cancel", () => sending.cancel()));
    } else if (phase === "reading") {
      this.title.textContent = "Reading what arrived";
    } else if (phase === "stalled") {
      this.showStalled(sending);
    } else if (phase === "cancelled") {
      this.title.textContent = "Cancelled";
      this.text.textContent = "Nothing of this upload was taken in. The files are still chosen.";
      fill(this.actions, button("Back to the files", () => this.choose(), { kind: "sp-primary" }));
    } else {
      this.showResult(sending);
    }
  }

  showStalled(sending) {
    const sent = sending.count - sending.unsent.length;
    this.title.textContent = `${count(sending.unsent.length, "file")} did not go`;
    this.text.textContent = `${sending.problem.message} ${sent > 0 ? `${count(sent, "file")} arrived and wait on the server.` : "Nothing is lost: the files are still chosen."}`;
    fill(
      this.actions,
      button(`Send the ${sending.unsent.length === 1 ? "file" : `${sending.unsent.length} files`} again`, () => sending.run(), { kind: "sp-primary", id: "sp-resend" }),
      sent > 0 && button("Go on without them", () => ((sending.unsent = []), sending.run())),
      button("Cancel", () => sending.cancel(), { kind: "sp-quiet" }),
    );
    fill(this.detail, fileTable(["File", "Size"], sending.unsent.map(({ file, path }) => [path, bytes(file.size)])));
  }

  // ---- the result

  async showResult({ phase, upload, problem, refused }) {
    this.files = [];
    const isEmpty = !upload.counts.stored && !upload.counts.duplicate;
    this.title.textContent = phase === "failed" ? "Upload failed" : isEmpty ? "Nothing of this upload can be shown" : "Upload finished";
    this.text.textContent = problem?.message ?? upload.message ?? "";
    this.bar.style.width = "100%";
    // A file that was refused on its way stands in the upload's own list too.
    const listed = new Set(upload.problems.map(({ name, code }) => `${code}\n${name}`));
    const problems = [...upload.problems, ...refused.filter(({ name, code }) => !listed.has(`${code}\n${name}`)).map((one) => ({ ...one, state: "refused" }))];
    const numbers = OUTCOMES.filter(([key]) => upload.counts[key] || key === "stored");
    const studies = el("div", { class: "sp-studies" });
    fill(this.actions, button("Upload more", () => this.choose()), el("a", { class: "sp-button sp-quiet", href: "#/" }, "To the worklist"));
    fill(
      this.detail,
      el("div", { class: "sp-outcomes" }, numbers.map(([key, label, tone]) => el("div", { class: "sp-outcome", data: { outcome: key, tone: upload.counts[key] ? tone : "" } }, el("b", {}, (upload.counts[key] ?? 0).toLocaleString("en")), el("span", {}, label)))),
      studies,
      problems.length > 0 && el("h3", {}, "Files that are not shown"),
      problems.length > 0 &&
        fileTable(
          ["File", "Reason", "Code", "Details"],
          problems.map(({ name, state, code, message }) => [name, refusal(code) || state, code ?? state, message ?? ""]),
        ),
    );
    const rows = await Promise.all(upload.study_ids.map((id) => api(`/api/studies/${id}`)));
    fill(
      studies,
      rows.map((study, index) =>
        el(
          "button",
          { type: "button", class: `sp-button sp-open ${index === 0 ? "sp-primary" : ""}`, on: { click: () => openStudy(study) } },
          el("span", {}, "Open study"),
          el("b", {}, studyTitle(study)),
          el("small", {}, `${count(study.series_count, "series", "series")} · ${count(study.frame_count, "frame")}`),
        ),
      ),
    );
  }
}

function readFraction({ counts }) {
  const { received = 0, ...seen } = counts;
  const read = Object.values(seen).reduce((sum, one) => sum + one, 0);
  return received + read ? read / (received + read) : 0;
}

function fileTable(titles, rows) {
  const hidden = rows.length - LISTED_FILES;
  return el(
    "div",
    { class: "sp-table-holder" },
    el(
      "table",
      { class: "sp-table" },
      el("thead", {}, el("tr", {}, titles.map((title) => el("th", {}, title)))),
      el("tbody", {}, rows.slice(0, LISTED_FILES).map((row) => el("tr", {}, row.map((value) => el("td", {}, value))))),
    ),
    hidden > 0 && el("p", { class: "sp-dim" }, `and ${count(hidden, "more file", "more files")}`),
  );
}

function select(label, options, hint = "") {
  const id = `sp-stated-${label.toLowerCase()}`;
  const input = el("select", { class: "sp-input", id }, options.map(([value, text]) => el("option", { value }, text)));
  return { input, row: el("div", { class: "sp-field" }, el("label", { for: id }, label), input, el("small", {}, hint)) };
}
