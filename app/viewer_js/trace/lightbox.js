// The picture that the model saw, as large as the window allows.

import { button, el, fill } from "../shell/dom.js";

let dialog = null;
let image = null;
let caption = null;

/** @param {string} url  @param {string} words  What it shows. */
export function enlarge(url, words) {
  dialog ??= make();
  image.src = url;
  image.alt = words;
  fill(caption, el("span", {}, words), button("Close", () => dialog.close(), { kind: "sp-small" }));
  dialog.showModal();
}

function make() {
  image = el("img", { draggable: "false" });
  caption = el("div", { class: "sp-lightbox-caption" });
  const made = el("dialog", { class: "sp-dialog sp-lightbox", "aria-label": "Picture that the model saw" }, image, caption);
  made.addEventListener("click", ({ target }) => {
    if (target === made || target === image) made.close();
  });
  // What was seen of a patient does not stay behind.
  made.addEventListener("close", () => image.removeAttribute("src"));
  document.body.append(made);
  return made;
}
