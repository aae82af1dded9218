// Judgements on their way to the server: saved at once, in order, again and again until they are. One that cannot be
// saved stays here and on the screen until a person sends it anew or drops it. Nothing is kept beyond the page.

import { api } from "../shell/api.js";

const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 15_000;

/**
 * @typedef {object} Entry
 * @property {string} runId
 * @property {object} body       As POSTed; its `request_key` makes sure that one judgement is one row (casebook C61).
 * @property {"saving"|"waiting"|"refused"} state  `waiting`: the last try failed and the next one comes by itself.
 * @property {string} message    Why it is not saved.
 */

/** @type {Entry[]} */
const entries = [];
const stored = new Map();
const listeners = new Set();
let isSending = false;
let wake = null;

/** 24 random hexadecimal digits. `crypto.randomUUID` is absent on plain HTTP beyond this machine. */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function onOutbox(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Everything judged of a run, oldest first: what the server has, then what is on its way. */
export function judgementsOf(runId) {
  const sent = (stored.get(runId) ?? []).map((body) => ({ body, state: "saved", message: "" }));
  return [...sent, ...entries.filter((entry) => entry.runId === runId)];
}

export function isAllSaved() {
  return entries.length === 0;
}

/** Read what the server has of this person for a run. */
export async function loadJudgements(runId, options) {
  const { feedback } = await api(`/api/runs/${runId}/feedback`, options);
  stored.set(runId, feedback);
  tell();
}

/** Save a judgement. */
export function save(runId, body) {
  const entry = { runId, body: { ...body, request_key: newKey() }, state: "saving", message: "" };
  entries.push(entry);
  tell();
  send();
  return entry;
}

/** Try now what waits or was refused. */
export function retry(entry) {
  if (!entries.includes(entry)) return;
  Object.assign(entry, { state: "saving", message: "" });
  tell();
  wake?.();
  send();
}

export function drop(entry) {
  const at = entries.indexOf(entry);
  if (at < 0) return;
  entries.splice(at, 1);
  tell();
}

/** Resolves once all is saved (true), or something is not and waits for another try or a person (false). */
export function settled() {
  return new Promise((resolve) => {
    const stop = onOutbox(look);
    function look() {
      if (!isAllSaved() && entries.every((entry) => entry.state === "saving")) return;
      stop();
      resolve(isAllSaved());
    }
    look();
  });
}

/** One after the other, so that of two judgements of one step the newer one is stored as the newer one. */
async function send() {
  if (isSending) return;
  isSending = true;
  let pauseMs = FIRST_PAUSE_MS;
  try {
    for (let entry = next(); entry; entry = next()) {
      if (await sent(entry)) {
        pauseMs = FIRST_PAUSE_MS;
      } else if (entry.state === "waiting") {
        await pause(pauseMs);
        pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
      }
    }
  } finally {
    isSending = false;
  }
}

async function sent(entry) {
  const { runId, body } = entry;
  try {
    const feedback = await api(`/api/runs/${runId}/feedback`, { method: "POST", json: body });
    stored.set(runId, [...(stored.get(runId) ?? []).filter((one) => one.id !== feedback.id), feedback]);
    drop(entry);
    return true;
  } catch (error) {
    if (error.status === undefined) throw error;
    const willPass = error.status === 0 || error.status === 408 || error.status === 429 || error.status >= 500;
    Object.assign(entry, { state: willPass ? "waiting" : "refused", message: error.message });
    tell();
    return false;
  }
}

function next() {
  return entries.find((entry) => entry.state !== "refused");
}

function pause(milliseconds) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  }).finally(() => (wake = null));
}

function tell() {
  for (const listener of [...listeners]) listener();
}

addEventListener("online", () => wake?.());
addEventListener("beforeunload", (event) => {
  if (!isAllSaved()) event.preventDefault();
});
