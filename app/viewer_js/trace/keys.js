// The keys of the trace. They work wherever the case page has the focus and nobody else wanted the key; while somebody
// types they do nothing. The arrows are the viewer's where the viewer has the focus.

/** For the list that `?` shows. */
export const TRACE_KEYS = [
  ["J  K", "trace: next, previous step"],
  ["↑ ↓", "the same, where the trace has the focus"],
  ["Enter", "show the step on the image"],
  ["A  R  C", "accept, reject, correct the step"],
  ["Shift + A  R  C", "the same for its thought"],
  ["M", "comment on the step"],
  ["Q", "ask a question"],
  ["N", "submit, next study"],
];

const NO_STEP = "Choose a step first: J and K, or a click.";
const VERDICTS = { a: "accept", r: "reject", c: "correct" };

export function isTyping({ target }) {
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;
}

function commentOn(card) {
  if (card?.judge) card.judge.comment();
}

/**
 * Do what a key asks for; whether it was one of ours.
 * @param {KeyboardEvent} event
 * @param {object} panel
 */
export function pressed(event, panel) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(event)) return false;
  const isInTrace = panel.root.contains(event.target);
  const isPress = event.target instanceof HTMLButtonElement && (event.key === "Enter" || event.key === " ");
  if (isPress) return false;
  const letter = event.key.toLowerCase();
  const { view } = panel;
  const card = view?.card;
  const needsCard = letter in VERDICTS || (letter === "m" && !event.shiftKey);
  if (needsCard && view && !card && panel.mayJudge) panel.say(NO_STEP);
  else if (letter in VERDICTS) card?.press(VERDICTS[letter], { isThought: event.shiftKey });
  else if (event.shiftKey && event.key !== "?") return false;
  else if (letter === "j" || (isInTrace && event.key === "ArrowDown")) view?.move(1);
  else if (letter === "k" || (isInTrace && event.key === "ArrowUp")) view?.move(-1);
  else if (isInTrace && event.key === "Enter") view?.jump();
  else if (letter === "m") commentOn(card);
  else if (letter === "q" && panel.mayAsk) panel.askBox.focus();
  else if (letter === "n") panel.next();
  else if (event.key === "?") panel.help();
  else return false;
  return true;
}
