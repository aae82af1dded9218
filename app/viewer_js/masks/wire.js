// The routes of masks and prompts.

import { api, leaveToLogin, loadSession, toApiError } from "../shell/api.js";
import { deflate, inflate } from "./plane.js";

/** A key by which the server knows a request again. crypto.randomUUID is missing on plain http. */
export function requestKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("");
}

export const listMasks = async (seriesId) => (await api(`/api/series/${seriesId}/masks`)).masks;
export const readVersion = (versionId) => api(`/api/mask-versions/${versionId}`);
export const listConcepts = (seriesId) => api(`/api/series/${seriesId}/concepts`);

/** The bits of one plane, packed. */
export async function readPlane(versionId, segment, frameIndex, signal) {
  const answer = await send(`/api/mask-versions/${versionId}/planes/${segment}/${frameIndex}`, { signal });
  return inflate(await answer.arrayBuffer());
}

/** @returns {Promise<object>} The new version, or an `ApiError` of 409 `mask_conflict`. */
export async function savePlane(maskId, segment, frameIndex, packed, { base_version, request_key }) {
  const query = new URLSearchParams({ base_version, request_key });
  const headers = { "X-CSRF-Token": (await loadSession()).csrf_token, "Content-Type": "application/octet-stream" };
  const body = await deflate(packed);
  const answer = await send(`/api/masks/${maskId}/planes/${segment}/${frameIndex}?${query}`, { method: "PUT", headers, body });
  return answer.json();
}

const post = (path, json, signal) => api(path, { method: "POST", json, signal });

export const beginMask = (seriesId, wanted) => post(`/api/series/${seriesId}/masks`, wanted);
export const restoreVersion = (maskId, version, base) => post(`/api/masks/${maskId}/restore`, { version, ...base });
export const changeSegments = (maskId, segments, base) =>
  api(`/api/masks/${maskId}`, {
    method: "PATCH",
    json: { segments: segments.map(({ number, label, color }) => ({ number, label, color })), ...base },
  });
export const prepareFrame = (seriesId, frameIndex) => post(`/api/series/${seriesId}/prepare`, { frame_index: frameIndex });
export const previewPrompt = (seriesId, prompt, signal) => post(`/api/series/${seriesId}/prompts`, prompt, signal);
export const acceptPrompt = (seriesId, accepted) => post(`/api/series/${seriesId}/prompts/accept`, accepted);

async function send(path, options) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw toApiError(0, "");
  }
  if (answer.ok) return answer;
  const error = toApiError(answer.status, await answer.text());
  if (error.code === "not_signed_in") leaveToLogin();
  throw error;
}
