/**
 * The viewer of Serpens. Research use, not for diagnosis.
 *
 * `prepare()` early, `createViewer(element, {fetchJson, onEvent})` once, then `open(seriesId)` for each series.
 */

import { chooseMode, prepareMode } from "./rendering.js";
import { ViewerError } from "./contract.js";
import { Viewer } from "./viewer.js";

let mode = null;

/**
 * Choose how to draw and fetch what that needs, so that the first picture does not wait for it. May be called again.
 * @returns {Promise<{renderMode: "cpu" | "webgl"}>}
 */
export async function prepare() {
  mode ??= chooseMode(window.location.search);
  await prepareMode(mode);
  return { renderMode: mode };
}

async function fetchPlainJson(url) {
  const answer = await fetch(url, { credentials: "same-origin" });
  if (!answer.ok) throw new ViewerError(`http_${answer.status}`, `the server answered ${answer.status}`);
  return answer.json();
}

/**
 * Put a viewer into an element.
 *
 * @param {HTMLElement} element  Has a size of its own; the viewer fills it.
 * @param {object} [options]
 * @param {(url: string) => Promise<any>} [options.fetchJson]  Throws an error with `code` and `message`.
 * @param {(kind: string, detail: object) => void} [options.onEvent]  `opened {seriesId, count}`, `first-image {index}`,
 *     `frame {index}`, `tool {name}`, `window {center, width, function}`, `progress {loaded, total}`, `cursor {i, j, value}`,
 *     `error {code, message, status, index}` (`index` null
 *     where the series as a whole is concerned).
 * @param {number} [options.maxCacheBytes]  Memory for frames.
 * @returns {Viewer}
 */
export function createViewer(element, { fetchJson = fetchPlainJson, onEvent = () => {}, maxCacheBytes } = {}) {
  mode ??= chooseMode(window.location.search);
  const viewer = new Viewer(element, { mode, fetchJson, onEvent, maxCacheBytes });
  // The one hook for tests and for the console; nothing is global.
  element.serpensViewer = viewer;
  return viewer;
}

export { ViewerError };
