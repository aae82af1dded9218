// The trace column of the case page.

import "./trace.css";
import { TRACE_KEYS } from "./keys.js";
import { TracePanel } from "./panel.js";

export { TRACE_KEYS };

/**
 * @param {object} session  As GET /api/session answers.
 * @param {import("./panel.js").ViewerOfPage} viewer  The viewer, or what stands for it before it is made.
 * @returns {TracePanel}  `open({studyId, seriesId})`, `start()` when the first image is here, `close()`; `root` is its element.
 */
export function makeTrace(session, viewer) {
  const root = document.createElement("section");
  root.className = "sp-trace";
  root.setAttribute("aria-label", "Trace");
  return new TracePanel(root, session, viewer);
}
