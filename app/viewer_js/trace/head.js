// The head of the trace: what was asked, who answers, how far it is, and the other runs of the series.

import { button, el, fill, icon } from "../shell/dom.js";
import { localTime } from "../shell/words.js";
import { seconds, stopWords } from "./words.js";

const TICK_MS = 200;

export class TraceHead {
  /** @param {{userId: string, mayAsk: boolean, cancel: () => void, openRun: (runId: string) => void}} about */
  constructor({ userId, mayAsk, cancel, openRun }) {
    Object.assign(this, { userId, mayAsk, openRun });
    this.question = el("p", { class: "sp-asked" });
    this.meta = el("small", { class: "sp-asked-by" });
    this.policy = el("span", { class: "sp-chip", hidden: true });
    this.state = el("span", { class: "sp-chip sp-run-state", hidden: true, role: "status" });
    this.stop = button("Stop", cancel, { kind: "sp-small", hidden: true });
    this.menu = el("div", { class: "sp-menu sp-runs-menu", role: "menu", hidden: true });
    this.opener = el("button", { type: "button", class: "sp-chip sp-runs", hidden: true, "aria-haspopup": "menu", "aria-expanded": "false", on: { click: () => this.toggle(this.menu.hidden) } });
    this.bar = el("i", { class: "sp-progress" });
    this.options = el("ol", { class: "sp-asked-options", hidden: true });
    this.element = el(
      "div",
      { class: "sp-trace-head" },
      el("div", { class: "sp-asked-row" }, this.question, this.stop, el("div", { class: "sp-runs-holder" }, this.opener, this.menu)),
      this.options,
      this.meta,
      el("div", { class: "sp-run-row" }, this.policy, this.state),
      this.bar,
    );
    document.addEventListener("pointerdown", ({ target }) => {
      if (!this.opener.parentElement.contains(target)) this.toggle(false);
    });
    this.opener.parentElement.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.menu.hidden) return;
      event.stopPropagation();
      this.toggle(false);
      this.opener.focus();
    });
    this.question.addEventListener("click", () => this.question.classList.toggle("sp-asked-whole"));
  }

  toggle(isOpen) {
    this.menu.hidden = !isOpen;
    this.opener.setAttribute("aria-expanded", String(isOpen));
  }

  /** No run is shown. */
  clear(words = "Trace") {
    clearInterval(this.ticking);
    fill(this.question, words);
    fill(this.meta, "what a model does with this series, step by step");
    for (const part of [this.policy, this.state, this.stop, this.options]) part.hidden = true;
    this.bar.classList.remove("sp-working");
  }

  showRuns(runs, current) {
    this.opener.hidden = runs.length < 2;
    const at = runs.findIndex((run) => run.id === current);
    fill(this.opener, `run ${runs.length - at} of ${runs.length}`, icon("down"));
    fill(
      this.menu,
      runs.map((run, index) =>
        el(
          "button",
          {
            type: "button",
            role: "menuitem",
            "aria-current": run.id === current ? "true" : null,
            on: { click: () => (this.toggle(false), this.openRun(run.id)) },
          },
          el("span", { class: "sp-clip" }, run.question),
          el("small", {}, `run ${runs.length - index} · ${localTime(run.created_at)} · ${runWords(run)}${run.parent_run_id ? " · continued" : ""}`),
        ),
      ),
    );
  }

  /** @param {object} run  @param {import("./steps.js").Trace} trace */
  showRun(run, trace) {
    fill(this.question, run.question);
    this.question.title = run.question;
    this.options.hidden = run.options.length === 0;
    fill(this.options, run.options.map((option) => el("li", {}, option)));
    const asked = trace.asked?.payload;
    const segmenters = (asked?.segmenter ?? []).map((body) => `${body.name} ${body.version}`).join(", ");
    const who = asked ? (asked.asked_by === this.userId ? " by you" : " by a colleague") : "";
    const words = [`asked ${localTime(run.created_at)}${who}`, asked && `${asked.policy.name} ${asked.policy.version}`, segmenters];
    this.meta.textContent = words.filter(Boolean).join(" · ");
    this.meta.title = this.meta.textContent;
    if (asked) {
      this.policy.hidden = false;
      this.policy.classList.toggle("sp-chip-demo", asked.policy.is_demonstration);
      this.policy.textContent = asked.policy.label ?? `${asked.policy.name} ${asked.policy.version}`;
    } else this.policy.hidden = true;
  }

  /**
   * How far the run is. `elapsed()` gives seconds since it began, null before that.
   * @param {{isStopped: boolean, reason: string|null, steps: number, isCancelling: boolean, isConnected: boolean, elapsed: () => number|null}} now
   */
  showState(now) {
    clearInterval(this.ticking);
    const write = () => {
      const spent = now.elapsed();
      this.state.textContent = stateWords(now, spent === null ? "" : seconds(spent));
    };
    this.state.hidden = false;
    this.state.dataset.state = now.isStopped ? (now.reason === "answered" ? "answered" : "ended") : "running";
    this.bar.classList.toggle("sp-working", !now.isStopped);
    this.stop.hidden = now.isStopped || !this.mayAsk;
    this.stop.disabled = now.isCancelling;
    write();
    if (!now.isStopped) this.ticking = setInterval(write, TICK_MS);
  }
}

function stateWords({ isStopped, reason, steps, isCancelling, isConnected }, spent) {
  const time = spent && ` · ${spent}`;
  if (isStopped) return reason === "answered" ? `${steps} ${steps === 1 ? "step" : "steps"}${time}` : `${stopWords(reason)}${time}`;
  if (!isConnected) return "connecting again…";
  if (isCancelling) return "stopping…";
  return steps === 0 ? `waiting to begin${time}` : `step ${steps}${time}`;
}

function runWords(run) {
  return run.state === "stopped" ? stopWords(run.stop_reason) : run.state;
}
