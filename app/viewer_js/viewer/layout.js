/** Puts the parts of a viewer on the page. */

import { make } from "./dom.js";
import { Gestures } from "./gestures.js";
import { makeHelp } from "./keys.js";
import { Overlay } from "./overlay.js";
import { Slider } from "./slider.js";
import { adoptStyle } from "./style.js";
import { Toolbar } from "./toolbar.js";

/** The thumbnail, shown until the first frame is drawn. */
class Placeholder {
  #image = make("img", "sv-placeholder");

  constructor(stage) {
    this.#image.alt = "";
    this.#image.hidden = true;
    stage.append(this.#image);
  }

  show(url) {
    this.#image.src = url;
    this.#image.hidden = false;
  }

  hide() {
    this.#image.hidden = true;
    this.#image.removeAttribute("src");
  }
}

/**
 * @param {HTMLElement} element  Keeps its size; the viewer fills it.
 * @param {import("./viewer.js").Viewer} viewer
 * @param {import("./hand_tools.js").HandTools} hands
 */
export function layOut(element, viewer, hands) {
  adoptStyle(element.ownerDocument);
  const root = make("section", "sv-root", { label: "Image viewer" });
  const surface = make("div", "sv-surface");
  surface.tabIndex = 0;
  root.append(surface);
  const placeholder = new Placeholder(root);
  const overlay = new Overlay(root);
  const toolbar = new Toolbar(root, {
    tool: (name) => viewer.setTool(name),
    invert: () => viewer.invert(),
    reset: () => viewer.reset(),
    fit: () => viewer.fit(),
    preset: (at) => viewer.choose(at),
    cine: () => viewer.toggleCine(),
    help: () => viewer.toggleHelp(),
  });
  const slider = new Slider(root, (index) => viewer.goTo(index));
  const help = makeHelp();
  help.addEventListener("click", () => viewer.toggleHelp());
  root.append(help);
  element.append(root);
  new Gestures(surface, hands);
  return { root, surface, placeholder, overlay, toolbar, slider, help };
}
