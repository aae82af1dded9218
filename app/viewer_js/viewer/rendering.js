/** Chooses how to draw: WebGL on a real GPU, else the CPU; `?render=cpu` or `?render=webgl` forces one. */

import { CanvasPainter } from "./painter_canvas.js";

const SOFTWARE = /swiftshader|llvmpipe|softpipe|software|basic render/i;

/** The name of the graphics card, "" where the browser offers no WebGL 2. */
function graphicsCard() {
  const gl = document.createElement("canvas").getContext("webgl2");
  if (!gl) return "";
  const info = gl.getExtension("WEBGL_debug_renderer_info");
  const name = String(gl.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : gl.RENDERER));
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return name;
}

/**
 * @param {string} search  The query of the page's address.
 * @returns {"cpu" | "webgl"} WebGL in software says "yes, WebGL 2" and draws 10 pictures a second where the CPU draws
 *     60, so it counts as none.
 */
export function chooseMode(search) {
  const wish = new URLSearchParams(search).get("render");
  if (wish === "cpu" || wish === "webgl") return wish;
  const card = graphicsCard();
  return card === "" || SOFTWARE.test(card) ? "cpu" : "webgl";
}

// Cornerstone is large and of use with a GPU only: fetched where it is.
const loadWebgl = () => import("./painter_webgl.js");

/**
 * Fetch what the mode needs, ahead of the first picture.
 * @param {"cpu" | "webgl"} mode
 */
export async function prepareMode(mode) {
  if (mode === "webgl") await loadWebgl();
}

/**
 * @param {"cpu" | "webgl"} mode
 * @param {HTMLElement} host
 * @param {import("./contract.js").SeriesDescriptor["pixel"]} pixel
 * @returns {Promise<CanvasPainter | import("./painter_webgl.js").WebglPainter>} The CPU's where the picture is larger
 *     than a texture.
 */
export async function makePainter(mode, host, pixel) {
  if (mode === "webgl") {
    const { WebglPainter } = await loadWebgl();
    if (WebglPainter.canShow(pixel)) return new WebglPainter(host);
  }
  return new CanvasPainter(host);
}
