/** Fetches frames: stored values in little-endian order, one frame an answer. */

import { seriesUrl, ViewerError } from "./contract.js";

const ARRAYS = {
  uint8: Uint8Array,
  int8: Int8Array,
  uint16: Uint16Array,
  int16: Int16Array,
  uint32: Uint32Array,
  int32: Int32Array,
  float32: Float32Array,
  float64: Float64Array,
};

/**
 * The typed array for numpy's name of a dtype.
 * @param {string} dtype
 */
export function arrayOf(dtype) {
  const array = ARRAYS[dtype];
  if (!array) throw new ViewerError("unknown_dtype", `frames are ${Object.keys(ARRAYS).join(", ")}, got ${dtype}`);
  return array;
}

/**
 * Fetch one frame.
 *
 * @param {import("./contract.js").SeriesDescriptor} series
 * @param {number} index  Place in the series, from 0.
 * @param {AbortSignal} signal
 * @returns {Promise<import("./contract.js").FrameValues>}
 * @throws {ViewerError} With the server's code where it answered, `no_answer` where it did not, `frame_size` where the
 *     bytes do not fill the picture. An abort stays the browser's AbortError.
 */
export async function loadFrame(series, index, signal) {
  const { rows, columns, samples, dtype } = series.pixel;
  const answer = await fetchOrExplain(`${seriesUrl(series.id)}/frames/${index}`, signal);
  const buffer = await answer.arrayBuffer();
  const array = arrayOf(dtype);
  const wanted = rows * columns * samples * array.BYTES_PER_ELEMENT;
  if (buffer.byteLength !== wanted) {
    throw new ViewerError("frame_size", `slice ${index + 1} needs ${wanted} bytes, ${buffer.byteLength} came`);
  }
  return { stored: new array(buffer), facts: series.frames[index], bytes: wanted };
}

async function fetchOrExplain(url, signal) {
  let answer;
  try {
    answer = await fetch(url, { signal, credentials: "same-origin" });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ViewerError("no_answer", "the server does not answer");
  }
  if (answer.ok) return answer;
  throw await explained(answer);
}

/** The server's own words for a refusal, or its status where it gave none. */
async function explained(answer) {
  const text = await answer.text();
  try {
    const { code, message } = JSON.parse(text).error;
    return new ViewerError(String(code), String(message));
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof TypeError) {
      return new ViewerError(`http_${answer.status}`, `the server answered ${answer.status}`);
    }
    throw error;
  }
}
