// The line in the footer: what is saved, and what is not.

import { el, fill } from "../shell/dom.js";

const TICK_MS = 1000;

function ago(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  return seconds < 3600 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}

/** "saving…", "saved 2 s ago · mask v2", or what stands in the way, with a way to try again. */
export class SaveStatus {
  element = el("span", { class: "sm-saving", role: "status" });
  #store;
  #text = "";

  #reopen;

  /**
   * @param {import("./store.js").MaskStore} store
   * @param {() => void} reopen  Opens the series anew.
   */
  constructor(store, reopen) {
    this.#store = store;
    this.#reopen = reopen;
    setInterval(() => this.show(), TICK_MS);
  }

  get isUnsaved() {
    return this.#store.lines.some((line) => line.hasUnsaved);
  }

  show() {
    const { tone, text, retry, act = "Try now" } = this.#read();
    if (text === this.#text) return;
    this.#text = text;
    this.element.dataset.tone = tone;
    fill(this.element, text, retry && el("button", { type: "button", on: { click: retry } }, act));
  }

  #read() {
    const { lines } = this.#store;
    const outdated = lines.find((line) => line.state === "outdated");
    if (outdated) return { tone: "bad", text: `not saved: ${outdated.problem.message}`, retry: this.#reopen, act: "Open it again" };
    const failed = lines.filter((line) => line.state === "failed");
    if (failed.length > 0) {
      const { problem, retryAt } = failed[0];
      const wait = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
      const text = `not saved, the edit is kept here: ${problem.message} Trying again in ${wait} s.`;
      return { tone: "bad", text, retry: () => failed.forEach((line) => line.retry()) };
    }
    if (lines.some((line) => line.state === "conflict")) return { tone: "bad", text: "not saved: the mask was changed elsewhere" };
    if (lines.some((line) => line.hasUnsaved)) return { tone: "", text: "saving…" };
    const { savedAt, active } = this.#store;
    if (!savedAt) return { tone: "", text: "" };
    return { tone: "", text: `saved ${ago(Date.now() - savedAt)}${active ? ` · mask v${active.mask.version}` : ""}` };
  }
}
