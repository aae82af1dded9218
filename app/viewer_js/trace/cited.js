// An answer's text to the letter, with its citations as links to the steps.

import { el } from "../shell/dom.js";
import { citations } from "./words.js";

/** @param {(cited: {label: "s"|"p", sequence: number}) => void} go */
export function citedText(text, go) {
  return citations(text).map((part) =>
    typeof part === "string"
      ? part
      : el("button", { type: "button", class: "sp-cite", title: "Go to this step", on: { click: () => go(part) } }, part.cite),
  );
}
