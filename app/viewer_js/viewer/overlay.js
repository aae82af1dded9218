/** What is written over the picture: corners, edge letters, scale bar, messages, progress. */

import { RESEARCH_NOTICE } from "./contract.js";
import { make, setText } from "./dom.js";
import { scaleBar } from "./scalebar.js";

const MODE_NAMES = { cpu: "CPU rendering", webgl: "WebGL rendering" };

const plain = (value) => String(Number(value.toFixed(Math.abs(value) >= 100 ? 0 : 2)));

/** Where the shown slice is: "slice 14 / 28 · 33.0 mm". */
export function positionText(series, index) {
  const { frames } = series;
  if (frames.length === 1) return "";
  const { position_mm: position, time_ms: time } = frames[index];
  const name = series.kind === "multiframe" ? "frame" : "slice";
  const where = position !== null ? ` · ${position.toFixed(1)} mm` : time !== null ? ` · ${(time / 1000).toFixed(2)} s` : "";
  return `${name} ${index + 1} / ${frames.length}${where}`;
}

/** The texts over the picture. */
export class Overlay {
  /** @param {HTMLElement} stage */
  constructor(stage) {
    this.title = make("div", "sv-title");
    this.chip = make("div", "sv-chip");
    this.window = make("div", "sv-window");
    this.zoom = make("div");
    this.position = make("div", "sv-position");
    this.bar = make("div", "sv-bar");
    this.barLabel = make("div", "sv-bar-label");
    this.cursor = make("div", "sv-cursor");
    this.status = make("div", "sv-status");
    this.statusSize = make("span");
    this.statusMode = make("span", "sv-status-mode");
    this.statusFrames = make("span");
    this.status.append(this.statusSize, this.statusMode, this.statusFrames);
    this.message = make("div", "sv-message");
    this.message.setAttribute("role", "alert");
    this.progress = make("div", "sv-progress", { children: [make("i")] });
    this.letters = Object.fromEntries(
      ["left", "right", "top", "bottom"].map((edge) => [edge, make("span", `sv-letter sv-letter-${edge}`)]),
    );
    stage.append(
      make("div", "sv-corner sv-tl", { children: [this.title, this.chip] }),
      make("div", "sv-corner sv-tr", { children: [this.window, this.zoom, this.position] }),
      make("div", "sv-corner sv-bl", { children: [this.cursor, this.bar, this.barLabel] }),
      make("div", "sv-corner sv-br", { children: [this.status, make("div", "", { text: RESEARCH_NOTICE })] }),
      ...Object.values(this.letters),
      this.message,
      this.progress,
    );
    this.empty();
  }

  /** @param {import("./contract.js").SeriesDescriptor} series */
  setSeries(series) {
    const name = [series.description, series.modality].filter(Boolean).join(" · ");
    setText(this.title, name);
    const isOff = !series.three_d && series.frames.length > 1 && Boolean(series.kind_reason);
    setText(this.chip, isOff ? `3D off: ${series.kind_reason}` : "");
    this.chip.hidden = !isOff;
  }

  /**
   * Write everything that goes with the shown frame.
   *
   * @param {object} shown
   * @param {import("./contract.js").SeriesDescriptor} shown.series
   * @param {number} shown.index
   * @param {import("./contract.js").Window | null} shown.window  null for colour.
   * @param {boolean} shown.isInverted  By the reader's wish.
   * @param {import("./camera.js").Camera} shown.camera
   */
  write({ series, index, window, isInverted, camera }) {
    const facts = series.frames[index];
    const inverted = isInverted ? " · inverted" : "";
    setText(this.window, window ? `C ${plain(window.center)} W ${plain(window.width)}${inverted}` : `colour${inverted}`);
    setText(this.zoom, `zoom ${camera.zoom.toFixed(2)}`);
    setText(this.position, positionText(series, index));
    const bar = scaleBar(camera, facts.spacing, series.spacing_source);
    this.bar.style.width = `${bar.pixels}px`;
    this.bar.hidden = bar.pixels === 0;
    setText(this.barLabel, bar.label);
    for (const [edge, element] of Object.entries(this.letters)) setText(element, facts.letters?.[edge] ?? "");
  }

  /** How the picture is drawn and how much of the series is here. */
  setStatus({ mode, series, loaded }) {
    const { rows, columns } = series.pixel;
    const count = series.frames.length;
    setText(this.statusSize, `${columns} × ${rows}`);
    setText(this.statusMode, ` · ${MODE_NAMES[mode]}`);
    setText(this.statusFrames, count > 1 ? ` · ${loaded} / ${count} loaded` : "");
    this.progress.firstElementChild.style.transform = `scaleX(${count ? loaded / count : 0})`;
  }

  /** The progress line is shown while frames arrive. */
  setBusy(isBusy) {
    this.progress.classList.toggle("sv-busy", isBusy);
  }

  setCursor(text) {
    setText(this.cursor, text);
  }

  /** Say what is wrong in the middle of the picture; "" takes it away. */
  setMessage(text) {
    setText(this.message, text);
    this.message.hidden = text === "";
  }

  empty() {
    const texts = [this.title, this.window, this.zoom, this.position, this.barLabel, this.cursor];
    for (const element of [...texts, this.statusSize, this.statusMode, this.statusFrames]) {
      setText(element, "");
    }
    for (const element of Object.values(this.letters)) setText(element, "");
    this.bar.hidden = true;
    this.chip.hidden = true;
    this.setMessage("");
    this.setBusy(false);
  }
}
