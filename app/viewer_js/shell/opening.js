// Opening a study from its row: what the row already says is handed on, so that the first image need not wait for the
// study to be asked for.

import { go } from "./router.js";

let hint = null;

export function openStudy(study) {
  hint = study;
  go(`#/case/${study.id}`);
}

/** The row that this study was opened from, or null. */
export function takeHint(studyId) {
  const row = hint?.id === studyId ? hint : null;
  hint = null;
  return row;
}
