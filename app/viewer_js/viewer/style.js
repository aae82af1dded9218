/** The viewer's look, brought along with its code so that no page has to remember it. */

import text from "./viewer.css?inline";

const adopted = new WeakSet();

/** @param {Document} page */
export function adoptStyle(page) {
  if (adopted.has(page)) return;
  const sheet = new CSSStyleSheet();
  // Gradio resets buttons and fields with two classes' weight; under an id's weight ours hold.
  sheet.replaceSync(`:is(html, #sv-weight) {\n${text}\n}`);
  page.adoptedStyleSheets.push(sheet);
  adopted.add(page);
}
