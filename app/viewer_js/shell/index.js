// The pages of Serpens inside Gradio's shell: `mount(view, element)` is called once for each `gr.HTML` component.

import "./shell.css";
import { fetchJson, loadSession, prefetch } from "./api.js";
import { mountCase } from "./case.js";
import { el, fill } from "./dom.js";
import { mountHeader } from "./header.js";
import { mountNotice, mountTable } from "./native.js";
import { current, onRoute, start } from "./router.js";
import { mountUpload } from "./upload.js";
import { mountWorklist } from "./worklist.js";

const MOUNTS = { header: mountHeader, worklist: mountWorklist, upload: mountUpload, case: mountCase, table: mountTable, notice: mountNotice };

/**
 * Put a part of the page into a Gradio element.
 * `gradio` has Gradio's own `props`, `watch` and `trigger` for the parts that Python feeds.
 */
export async function mount(part, element, gradio) {
  const root = element.querySelector(".sp-root");
  try {
    await MOUNTS[part](root, gradio);
  } catch (error) {
    if (error.code === "not_signed_in") return;
    fill(root, el("div", { class: "sp-empty", role: "alert" }, el("h2", {}, "This page could not be built"), el("p", {}, error.message)));
    throw error;
  }
}

/** Tell Python when a page that it fills is entered. */
export function whenEntered(view, listener) {
  onRoute((route) => {
    if (route.view === view) listener();
  });
}

// What the first view needs is asked for while Gradio is still loading.
loadSession().catch(() => {});
const first = current();
if (first.view === "worklist") prefetch("/api/studies?page=1");
if (first.view === "case") prefetch(`/api/studies/${first.id}`);
start();

// A page kept by the browser after signing out is not shown again: ask anew.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

export { fetchJson };
