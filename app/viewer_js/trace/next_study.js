// Which study comes after this one: the next of the worklist whose newest trace this person has not judged as a whole.

import { api } from "../shell/api.js";
import { openStudy } from "../shell/opening.js";
import { go } from "../shell/router.js";

// Beyond these the next one is taken as it is, judged or not: nobody waits for a search of the whole list.
const MOST_LOOKED_AT = 12;
const MOST_PAGES = 40;

/** Open the next study; false where the list has no other. */
export async function openNext(studyId) {
  const later = await studiesAfter(studyId);
  if (later.length === 0) {
    go("#/");
    return false;
  }
  let next = later[0];
  for (const study of later.slice(0, MOST_LOOKED_AT)) {
    if (await isJudged(study)) continue;
    next = study;
    break;
  }
  openStudy(next);
  return true;
}

/** The studies behind one in the worklist, newest first, then those before it on the same page. */
async function studiesAfter(studyId) {
  for (let page = 1; page <= MOST_PAGES; page += 1) {
    const { studies, pages } = await api(`/api/studies?page=${page}`);
    const at = studies.findIndex((study) => study.id === studyId);
    if (at >= 0) {
      const rest = studies.slice(at + 1);
      const more = page < pages && rest.length < MOST_LOOKED_AT ? (await api(`/api/studies?page=${page + 1}`)).studies : [];
      return [...rest, ...more, ...studies.slice(0, at)];
    }
    if (page >= pages) break;
  }
  const { studies } = await api("/api/studies?page=1");
  return studies.filter((study) => study.id !== studyId);
}

async function isJudged(study) {
  if (!study.cover_series_id) return false;
  const { runs } = await api(`/api/series/${study.cover_series_id}/runs`);
  if (runs.length === 0) return false;
  const { feedback } = await api(`/api/runs/${runs[0].id}/feedback`);
  return feedback.some(({ target }) => target === "trace");
}
