// The events of a run as the server stores them. The browser's EventSource reconnects by itself and names the last
// event that it has; where the server refuses, this asks again from there.

import { api } from "../shell/api.js";

const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 15_000;

/**
 * Follow a run until it stopped.
 * @param {string} runId
 * @param {object} on
 * @param {(event: import("./steps.js").TraceEvent) => void} on.event
 * @param {(text: string) => void} [on.preview]  Text that is still being written; no event.
 * @param {(isConnected: boolean) => void} [on.connection]
 * @param {() => void} [on.end]
 * @returns {() => void} Stops following; the run itself goes on.
 */
export function follow(runId, { event: onEvent, preview = () => {}, connection = () => {}, end = () => {} }) {
  let last = 0;
  let source = null;
  let pauseMs = FIRST_PAUSE_MS;
  let timer = 0;
  let isStopped = false;

  function open() {
    source = new EventSource(`/api/runs/${runId}/events?after=${last}`);
    source.addEventListener("open", () => {
      pauseMs = FIRST_PAUSE_MS;
      connection(true);
    });
    source.addEventListener("trace", ({ data }) => {
      const event = JSON.parse(data);
      if (event.sequence <= last) return;
      last = event.sequence;
      onEvent(event);
    });
    source.addEventListener("preview", ({ data }) => preview(JSON.parse(data).text));
    source.addEventListener("end", () => {
      stop();
      connection(true);
      end();
    });
    source.addEventListener("error", () => {
      connection(false);
      // CONNECTING: the browser tries again by itself. CLOSED: the answer was a refusal, which may pass.
      if (source.readyState !== EventSource.CLOSED) return;
      later();
    });
  }

  function later() {
    if (isStopped) return;
    timer = setTimeout(again, pauseMs);
    pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
  }

  /** An EventSource does not say why it was refused; a plain question does, and leads to the login where that is why. */
  async function again() {
    try {
      await api(`/api/runs/${runId}`);
    } catch (error) {
      if (error.status === undefined) throw error;
      later();
      return;
    }
    if (!isStopped) open();
  }

  function stop() {
    isStopped = true;
    clearTimeout(timer);
    source.close();
  }

  open();
  return stop;
}

/** The stored events of a run up to one of them, once. `signal` gives up. */
export function readUntil(runId, sequence, signal) {
  return new Promise((resolve, reject) => {
    const events = [];
    const stop = follow(runId, {
      event(event) {
        if (event.sequence <= sequence) events.push(event);
        if (event.sequence >= sequence) done();
      },
      end: done,
    });
    function done() {
      stop();
      resolve(events);
    }
    signal.addEventListener("abort", () => {
      stop();
      reject(signal.reason);
    });
  });
}
