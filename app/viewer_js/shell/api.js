// The way to /api: one session, one CSRF token, one shape of error.

import { current } from "./router.js";

export class ApiError extends Error {
  constructor(status, code, message, details = {}) {
    super(message);
    Object.assign(this, { status, code, details });
  }
}

// What a reader can do about it is said here; the server's words are for whoever programs against it.
const WORDS = {
  series_changed: "More images came to this series since it was opened, so its slices may lie elsewhere now. Open it again.",
};

let session = null;
const prefetched = new Map();

/** The signed-in person, their projects and what they may do; asked once for the life of the page. */
export function loadSession() {
  session ??= request("/api/session");
  session.catch(() => (session = null));
  return session;
}

export async function may(permission) {
  return (await loadSession()).permissions.includes(permission);
}

/** Ask for JSON, and answer a changing request's need for the CSRF token. Raises `ApiError`. */
export async function api(path, { method = "GET", json, signal } = {}) {
  const headers = {};
  if (method !== "GET") headers["X-CSRF-Token"] = (await loadSession()).csrf_token;
  if (json !== undefined) headers["Content-Type"] = "application/json";
  return request(path, { method, headers, signal, body: json === undefined ? undefined : JSON.stringify(json) });
}

/** Begin an answer that is about to be needed; the next `fetchJson` of it takes it. Nothing else keeps it. */
export function prefetch(path) {
  if (prefetched.has(path)) return;
  const answer = api(path);
  answer.catch(() => prefetched.delete(path));
  prefetched.set(path, answer);
  setTimeout(() => prefetched.delete(path), 10_000);
}

export function fetchJson(path, options = {}) {
  const early = prefetched.get(path);
  prefetched.delete(path);
  return early ?? api(path, options);
}

/** The error that a body of ours names, or one made of the status alone. */
export function toApiError(status, text) {
  try {
    const { error } = JSON.parse(text);
    return new ApiError(status, error.code, WORDS[error.code] ?? error.message, error.details);
  } catch (problem) {
    if (!(problem instanceof SyntaxError || problem instanceof TypeError)) throw problem;
    return new ApiError(status, "no_answer", status ? `The server answered ${status}.` : "The server cannot be reached.");
  }
}

/** Leave for the login page; what is on the screen goes first, so that Back finds nothing. */
export function leaveToLogin() {
  for (const element of document.querySelectorAll(".sp-root")) element.replaceChildren();
  prefetched.clear();
  location.replace(current().view === "worklist" ? "/login" : `/login${location.hash}`);
}

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw toApiError(0, "");
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  const error = toApiError(response.status, await response.text());
  if (error.code === "not_signed_in") leaveToLogin();
  throw error;
}
