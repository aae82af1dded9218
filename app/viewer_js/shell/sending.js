// Sending files to the server in batches that can be repeated, and waiting until they are read.

import { api, loadSession, toApiError } from "./api.js";
import { bytes, count } from "./words.js";

const BATCH_FILES = 100;
const BATCH_BYTES = 64 * 1024 * 1024;
const RETRY_PAUSES_MS = [500, 1500, 4000];
const POLL_MS = 400;
const LOST_POLLS = 25;

const watchers = [];

/** Hear about the upload that is under way, in a few words; null when there is none. */
export function onUploading(listener) {
  watchers.push(listener);
}

/** Files in batches of at most 100 and 64 MB; a larger file goes alone. */
export function batches(files) {
  const made = [];
  let size = Infinity;
  for (const entry of files) {
    if (size + entry.file.size > BATCH_BYTES || made.at(-1).length >= BATCH_FILES) {
      made.push([]);
      size = 0;
    }
    made.at(-1).push(entry);
    size += entry.file.size;
  }
  return made;
}

/**
 * One upload from here to its end.
 * `phase`: sending, stalled (some files did not go; `resend` goes on), reading, done, failed, cancelled.
 */
export class Sending {
  constructor({ projectId, modality, description, files, onChange }) {
    // crypto.randomUUID is missing on plain http other than localhost.
    const random = crypto.getRandomValues(new Uint8Array(16));
    this.body = {
      project_id: projectId,
      request_key: [...random].map((one) => one.toString(16).padStart(2, "0")).join(""),
      stated_modality: modality,
      stated_description: description,
    };
    this.unsent = files;
    this.count = files.length;
    this.bytes = files.reduce((sum, { file }) => sum + file.size, 0);
    this.sentBytes = 0;
    this.batchBytes = 0;
    this.refused = [];
    this.upload = null;
    this.problem = null;
    this.phase = "sending";
    this.onChange = onChange;
    this.guardLeaving = (event) => event.preventDefault();
  }

  get fraction() {
    return this.bytes ? Math.min(1, (this.sentBytes + this.batchBytes) / this.bytes) : 0;
  }

  /** Send what is not sent yet, then wait until the server has read it. */
  async run() {
    this.problem = null;
    this.enter("sending");
    addEventListener("beforeunload", this.guardLeaving);
    try {
      this.upload ??= await this.repeat(() => api("/api/uploads", { method: "POST", json: this.body }));
      for (const batch of batches(this.unsent)) {
        await this.repeat(() => this.sendBatch(batch));
        this.unsent = this.unsent.slice(batch.length);
        this.sentBytes += batch.reduce((sum, { file }) => sum + file.size, 0);
        this.batchBytes = 0;
      }
      await this.finish();
    } catch (error) {
      if (this.phase === "cancelled") return;
      this.problem = error;
      this.batchBytes = 0;
      this.enter(this.phase === "reading" ? "failed" : "stalled");
    } finally {
      removeEventListener("beforeunload", this.guardLeaving);
    }
  }

  /** Ask the server to read what it has, whether or not all went. */
  async finish() {
    this.upload = await this.repeat(() => api(`/api/uploads/${this.upload.id}/finish`, { method: "POST" }));
    this.enter("reading");
    let lost = 0;
    while (this.upload.state !== "done" && this.upload.state !== "failed") {
      await pause(POLL_MS);
      try {
        this.upload = await api(`/api/uploads/${this.upload.id}`);
        lost = 0;
      } catch (error) {
        // The server goes on reading while we cannot reach it.
        if (error.status !== 0 || ++lost > LOST_POLLS) throw error;
      }
      this.onChange(this);
    }
    this.enter(this.upload.state);
  }

  cancel() {
    this.enter("cancelled");
    this.request?.abort();
  }

  async repeat(attempt) {
    for (const wait of [...RETRY_PAUSES_MS, null]) {
      try {
        return await attempt();
      } catch (error) {
        // Only what may go better next time is tried again: no connection, or the server's own trouble.
        if (this.phase === "cancelled" || wait === null || (error.status > 0 && error.status < 500)) throw error;
        this.batchBytes = 0;
        this.onChange(this);
        await pause(wait);
        if (this.phase === "cancelled") throw error;
      }
    }
  }

  async sendBatch(batch) {
    const { csrf_token: csrfToken } = await loadSession();
    const form = new FormData();
    for (const { file, path } of batch) form.append("files", file, path);
    const size = batch.reduce((sum, { file }) => sum + file.size, 0);
    const answer = await new Promise((resolve, reject) => {
      const request = (this.request = new XMLHttpRequest());
      request.open("POST", `/api/uploads/${this.upload.id}/files`);
      request.setRequestHeader("X-CSRF-Token", csrfToken);
      request.upload.addEventListener("progress", ({ loaded }) => {
        this.batchBytes = Math.min(size, loaded);
        this.enter("sending");
      });
      request.addEventListener("load", () => {
        if (request.status < 300) resolve(JSON.parse(request.responseText));
        else reject(toApiError(request.status, request.responseText));
      });
      for (const kind of ["error", "abort"]) request.addEventListener(kind, () => reject(toApiError(0, "")));
      request.send(form);
    });
    this.refused.push(...answer.refused);
  }

  enter(phase) {
    if (this.phase === "cancelled") return;
    this.phase = phase;
    this.onChange(this);
    const words = { sending: `uploading ${Math.floor(this.fraction * 100)} %`, reading: "reading the upload", stalled: "upload stopped: look" };
    for (const listener of watchers) listener(words[phase] ?? null);
  }
}

/** How far, in words. */
export function progressText(sending) {
  if (sending.phase === "reading") {
    const { received = 0, ...seen } = sending.upload.counts;
    const read = Object.values(seen).reduce((sum, one) => sum + one, 0);
    return received + read > 0 ? `${read.toLocaleString("en")} of ${count(received + read, "file")} read` : "waiting for the worker";
  }
  const sent = sending.sentBytes + sending.batchBytes;
  return `${bytes(sent)} of ${bytes(sending.bytes)} sent · ${count(sending.count, "file")}`;
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
