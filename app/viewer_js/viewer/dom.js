/** Small helpers for the page: text is always set as text. */

/**
 * Make an element.
 *
 * @param {string} tag
 * @param {string} [className]
 * @param {{text?: string, title?: string, label?: string, children?: Node[]}} [content]
 */
export function make(tag, className = "", { text, title, label, children = [] } = {}) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  if (title) element.title = title;
  if (label) element.setAttribute("aria-label", label);
  element.append(...children);
  return element;
}

/** Write only what changed: a text node that stays the same costs no layout. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
