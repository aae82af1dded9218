/** One viewer in one element: opens a series, shows a slice, keeps picture, number and texts in step. */

import { defaultCacheBytes } from "./cache.js";
import { Camera } from "./camera.js";
import { Cine, frameTime } from "./cine.js";
import { seriesUrl, ViewerError } from "./contract.js";
import { HandTools } from "./hand_tools.js";
import { addKeys, pressed } from "./keys.js";
import { Latest } from "./latest.js";
import { layOut } from "./layout.js";
import { choicesOf, windowOf } from "./presets.js";
import { readingAt } from "./readout.js";
import { makePainter } from "./rendering.js";
import { FrameSource } from "./source.js";

const INSETS = { top: 56, right: 12, bottom: 12, left: 12 };
const SLIDER_ROOM = 32;

const isPlayable = ({ kind, frames }) => kind === "multiframe" && frames.length > 1;

/** See `createViewer` in index.js. */
export class Viewer {
  #mode;
  #fetchJson;
  #onEvent;
  #parts;
  #camera = new Camera();
  #cine = new Cine((frames) => this.#playOn(frames));
  #hands = new HandTools(this);
  #resized = new ResizeObserver(() => this.#resize());
  #onWindowResize = () => this.#resize();
  #painter = null;
  #opening = 0;
  #series = null;
  #source = null;
  #choices = [];
  /** What is on the screen. Changed in `#paint` alone, together with the picture. */
  #shown = { index: -1, frame: null };
  #latest = this.#newLatest();
  #isRetry = false;
  #window = null;
  #isInverted = false;
  #isSmooth = true;
  #tool = "window";
  #cursor = null;
  #stale = { picture: false, status: false };
  #request = 0;
  #layers = [];

  constructor(element, { mode, fetchJson, onEvent, maxCacheBytes }) {
    this.#mode = mode;
    this.#fetchJson = fetchJson;
    this.#onEvent = onEvent;
    this.maxCacheBytes = maxCacheBytes ?? defaultCacheBytes();
    this.#parts = layOut(element, this, this.#hands);
    this.#parts.root.addEventListener("keydown", (event) => this.#key(event));
    this.#resized.observe(this.#parts.root);
    window.addEventListener("resize", this.#onWindowResize);
    this.setTool("window");
  }

  /**
   * Show a series: its thumbnail at once, its middle slice as soon as that is here, the others behind it.
   *
   * @param {string} seriesId
   * @returns {Promise<void>} When the series is known; `first-image` tells of the picture.
   */
  async open(seriesId) {
    this.close();
    const opening = this.#opening;
    this.#parts.placeholder.show(`${seriesUrl(seriesId)}/thumbnail`);
    this.#parts.overlay.setBusy(true);
    try {
      const series = await this.#fetchJson(seriesUrl(seriesId));
      if (opening !== this.#opening) return;
      this.#begin(series);
      const painter = await this.#readyPainter(series);
      if (opening !== this.#opening) return;
      this.#painter = painter;
      this.#schedule({ picture: true, status: true });
    } catch (error) {
      if (opening !== this.#opening) return;
      this.#parts.placeholder.hide();
      this.#parts.overlay.setBusy(false);
      this.#parts.overlay.setMessage(error.message);
      this.#tell(error);
    }
  }

  /** Let go of the series: requests are cancelled, frames forgotten, the stage is black. */
  close() {
    this.#opening += 1;
    this.#cine.stop();
    this.#source?.close();
    this.#series = this.#source = this.#window = null;
    this.#shown = { index: -1, frame: null };
    this.#latest = this.#newLatest();
    this.#isInverted = false;
    this.#choices = [];
    this.#painter?.clear(this.#camera);
    for (const layer of this.#layers) layer.clear();
    this.#parts.overlay.empty();
    this.#parts.placeholder.hide();
    this.#parts.slider.setCount(1);
    this.#parts.toolbar.setInverted(false);
    this.#parts.toolbar.setCine({ isOffered: false, isPlaying: false });
  }

  /** Take the viewer off the page. */
  destroy() {
    this.close();
    cancelAnimationFrame(this.#request);
    this.#resized.disconnect();
    window.removeEventListener("resize", this.#onWindowResize);
    this.#painter?.destroy();
    this.#painter = null;
    this.#parts.toolbar.destroy();
    this.#parts.root.remove();
  }

  /** What is on the screen now. `target` is the slice that is asked for; it differs from `index` while it loads. */
  state() {
    return {
      seriesId: this.#series?.id ?? null,
      index: this.#shown.index,
      target: this.#latest.target,
      count: this.#series?.frames.length ?? 0,
      window: this.#shown.frame && this.#hasWindow ? this.#currentWindow() : null,
      inverted: this.#isInverted,
      zoom: this.#camera.zoom,
      smooth: this.#isSmooth,
      tool: this.#tool,
      playing: this.#cine.isPlaying,
      renderMode: this.#painter?.mode ?? this.#mode,
      loadedFrames: this.#source?.loaded ?? 0,
    };
  }

  get camera() {
    return this.#camera;
  }

  /** The canvas on the screen, null before the first picture. */
  get canvas() {
    return this.#painter?.canvas ?? null;
  }

  /** What the server says of the open series, null where none is open. */
  get series() {
    return this.#series;
  }

  /** The elements on the page: `root` is the whole, `surface` takes the hand, `toolbar` takes more tools. */
  get parts() {
    return this.#parts;
  }

  /** @param {{draw: (shown: {series, index, camera}) => void, clear: () => void}} layer  Goes with each picture. */
  addLayer(layer) {
    this.#layers.push(layer);
  }

  get isHelpOpen() {
    return !this.#parts.help.hidden;
  }

  setTool(name) {
    const { names } = this.#parts.toolbar;
    if (!names.includes(name)) throw new ViewerError("unknown_tool", `tools are ${names.join(", ")}, got ${name}`);
    this.#tool = name;
    this.#parts.toolbar.setTool(name);
    this.#parts.surface.dataset.tool = name;
    this.#onEvent("tool", { name });
  }

  /** @param {import("./contract.js").Window} window  Kept for the whole series until `reset`. */
  setWindow({ center, width, function: name = "LINEAR" }) {
    const isWide = name === "LINEAR" ? width >= 1 : width > 0;
    if (!Number.isFinite(center) || !Number.isFinite(width) || !isWide) {
      throw new ViewerError("invalid_window", `a ${name} window has a width above its least one, got ${width}`);
    }
    if (!this.#hasWindow) return;
    this.#window = { center, width, function: name };
    this.#schedule({ picture: true });
    this.#onEvent("window", this.#window);
  }

  /** @param {number} at  Place in the list of presets, from 0. */
  choose(at) {
    if (this.#choices[at] && this.#shown.frame) this.setWindow(windowOf(this.#choices[at], this.#shown.frame));
  }

  invert() {
    this.#isInverted = !this.#isInverted;
    this.#parts.toolbar.setInverted(this.#isInverted);
    this.#schedule({ picture: true });
  }

  /** Window, zoom and place as they were when the series was opened. */
  reset() {
    this.#window = null;
    this.#isInverted = false;
    this.#parts.toolbar.setInverted(false);
    this.#camera.fit();
    this.#schedule({ picture: true });
    if (this.#shown.frame && this.#hasWindow) this.#onEvent("window", this.#currentWindow());
  }

  fit() {
    this.#camera.fit();
    this.#schedule();
  }

  setZoom(zoom, about) {
    this.#camera.zoomTo(zoom, about);
    this.#schedule();
  }

  pan(dx, dy) {
    this.#camera.pan(dx, dy);
    this.#schedule();
  }

  setSmooth(isSmooth) {
    this.#isSmooth = isSmooth;
    this.#schedule();
  }

  /** Ask for a slice. The last one asked for is shown; what comes late is dropped (C54). */
  goTo(index) {
    if (!this.#series) return;
    this.#latest.target = Math.min(this.#series.frames.length - 1, Math.max(0, Math.round(index)));
    // A slice that could not be shown is tried again when it is asked for again, and not before.
    this.#isRetry = this.#latest.target === this.#shown.index && !this.#shown.frame;
    this.#parts.slider.setIndex(this.#latest.target);
    this.#schedule();
  }

  /** @param {number} slices  Forward, or back where negative; it ends at the ends. */
  step(slices) {
    if (!this.#series) return;
    this.goTo(Math.min(this.#series.frames.length - 1, Math.max(0, this.#latest.target + slices)));
  }

  toggleCine() {
    if (!this.#series || !isPlayable(this.#series)) return;
    if (this.#cine.isPlaying) this.#cine.stop();
    else this.#cine.play(frameTime(this.#series.frames));
    this.#parts.toolbar.setCine({ isOffered: true, isPlaying: this.#cine.isPlaying });
  }

  /** @param {[string, string][]} rows  Key, and what it does: keys of another part of the page. */
  addHelp(title, rows) {
    addKeys(this.#parts.help, title, rows);
  }

  toggleHelp() {
    this.#parts.help.hidden = !this.#parts.help.hidden;
  }

  /** @param {[number, number] | null} at  View coordinates; null where the pointer is elsewhere. */
  hover(at) {
    this.#cursor = at;
    this.#schedule();
  }

  get #hasWindow() {
    return this.#series?.pixel.samples === 1;
  }

  #currentWindow() {
    return this.#window ?? this.#defaultWindow(this.#shown.frame);
  }

  #defaultWindow(frame) {
    return windowOf({ window: frame.facts.window ?? this.#series.windows[0] ?? null }, frame);
  }

  #begin(series) {
    const count = series.frames.length;
    this.#series = series;
    this.#source = new FrameSource(series, {
      maxBytes: this.maxCacheBytes,
      onLoaded: () => {
        this.#schedule({ status: true });
        this.#onEvent("progress", { loaded: this.#source?.loaded ?? 0, total: count });
      },
    });
    this.#choices = choicesOf(series);
    const { overlay, toolbar, slider, root } = this.#parts;
    overlay.setSeries(series);
    toolbar.setChoices(this.#choices);
    toolbar.setOffered({ hasWindow: this.#hasWindow, hasSlices: count > 1 });
    toolbar.setCine({ isOffered: isPlayable(series), isPlaying: false });
    slider.setCount(count);
    root.classList.toggle("sv-has-slices", count > 1);
    this.#resize();
    this.#camera.setPicture({ ...series.pixel, spacing: series.frames[0].spacing });
    this.#onEvent("opened", { seriesId: series.id, count });
    // A loop in time begins at its beginning, a stack of slices in its middle.
    this.goTo(isPlayable(series) ? 0 : Math.floor(count / 2));
    this.#bring();
  }

  async #readyPainter({ pixel }) {
    let painter = this.#painter;
    const made = painter === null || painter.mode !== this.#mode ? await makePainter(this.#mode, this.#parts.surface, pixel) : painter;
    if (made !== painter) {
      painter?.destroy();
      painter = made;
    }
    await painter.open(pixel, this.#camera.stretch);
    return painter;
  }

  #schedule({ picture = false, status = false } = {}) {
    this.#stale.picture ||= picture;
    this.#stale.status ||= status;
    if (this.#request === 0) this.#request = requestAnimationFrame(() => this.#paint());
  }

  /** One for each open series: what the one before still brings reaches nobody. */
  #newLatest() {
    return new Latest(() => this.#schedule({ picture: true }));
  }

  #bring() {
    this.#latest.bring(this.#isRetry ? -1 : this.#shown.index, this.#source);
    this.#isRetry = false;
  }

  #paint() {
    this.#request = 0;
    if (!this.#series) return;
    this.#bring();
    if (this.#painter) {
      this.#takeArrived();
      this.#draw();
    }
    this.#writeCursor();
    if (this.#stale.status) this.#writeStatus();
  }

  #takeArrived() {
    const arrived = this.#latest.take();
    if (!arrived) return;
    const isFirst = this.#shown.index === -1;
    const isNew = arrived.index !== this.#shown.index;
    this.#shown = { index: arrived.index, frame: arrived.frame };
    this.#stale.picture = true;
    const { overlay, placeholder } = this.#parts;
    placeholder.hide();
    overlay.setMessage(arrived.error ? `Slice ${arrived.index + 1} cannot be shown: ${arrived.error.message}` : "");
    this.#source.prefetchAround(arrived.index);
    if (arrived.error) this.#tell(arrived.error, arrived.index);
    const index = arrived.index;
    if (isNew) queueMicrotask(() => this.#onEvent("frame", { index }));
    if (isFirst && arrived.frame) queueMicrotask(() => this.#onEvent("first-image", { index }));
  }

  #draw() {
    const { index, frame } = this.#shown;
    if (index === -1) return;
    const window = this.#hasWindow && frame ? this.#currentWindow() : null;
    if (frame) {
      if (this.#stale.picture) {
        const isReversed = this.#series.pixel.photometric === "MONOCHROME1";
        this.#painter.show(frame, { window, inverted: isReversed !== this.#isInverted });
      }
      this.#painter.draw(this.#camera, this.#isSmooth);
    } else this.#painter.clear(this.#camera);
    this.#stale.picture = false;
    const { overlay } = this.#parts;
    overlay.write({ series: this.#series, index, window, isInverted: this.#isInverted, camera: this.#camera });
    for (const layer of this.#layers) {
      if (frame) layer.draw({ series: this.#series, index, camera: this.#camera });
      else layer.clear();
    }
  }

  #writeStatus() {
    this.#stale.status = false;
    const { overlay, slider } = this.#parts;
    overlay.setStatus({ mode: this.state().renderMode, series: this.#series, loaded: this.#source.loaded });
    overlay.setBusy(this.#source.isBusy);
    slider.drawLoaded((index) => this.#source.has(index));
  }

  #writeCursor() {
    const reading = this.#cursor && readingAt(this.#series, this.#shown.frame, this.#camera.toPicture(this.#cursor));
    this.#parts.overlay.setCursor(reading?.text ?? "");
    if (reading) this.#onEvent("cursor", { i: reading.i, j: reading.j, value: reading.value });
  }

  #playOn(frames) {
    const next = (this.#latest.target + frames) % this.#series.frames.length;
    // A loop does not run ahead of its frames.
    if (this.#shown.index === this.#latest.target) this.goTo(next);
  }

  #key(event) {
    const isPress = event.target instanceof HTMLButtonElement && (event.key === " " || event.key === "Enter");
    if (isPress || !pressed(event, this)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  #resize() {
    const { clientWidth: width, clientHeight: height } = this.#parts.root;
    if (width === 0 || height === 0) return;
    const right = INSETS.right + ((this.#series?.frames.length ?? 1) > 1 ? SLIDER_ROOM : 0);
    this.#camera.setView({ width, height, ratio: window.devicePixelRatio || 1, insets: { ...INSETS, right } });
    this.#schedule({ status: true });
  }

  /** Report an error; `index` is the slice where one slice alone is concerned. */
  #tell({ code = "viewer_failed", message, status }, index = null) {
    this.#onEvent("error", { code, message, status, index });
  }
}
