// How long something was on the screen of a page that somebody looked at.

const HALF = 0.5;
const clocks = new Map();
const observer = new IntersectionObserver(
  (entries) => {
    for (const { target, intersectionRatio, intersectionRect, rootBounds } of entries) {
      // A card taller than its column is seen when it fills half of the column.
      const fills = rootBounds ? intersectionRect.height / rootBounds.height : 0;
      clocks.get(target)?.setSeen(intersectionRatio >= HALF || fills >= HALF);
    }
  },
  { threshold: [0, 0.25, HALF, 0.75, 1] },
);
document.addEventListener("visibilitychange", () => {
  for (const clock of clocks.values()) clock.settle();
});

export class VisibleTime {
  #seconds = 0;
  #isSeen = false;
  #since = null;

  constructor(element) {
    this.element = element;
    clocks.set(element, this);
    observer.observe(element);
  }

  setSeen(isSeen) {
    this.#isSeen = isSeen;
    this.settle();
  }

  settle() {
    const now = performance.now();
    if (this.#since !== null) this.#seconds += (now - this.#since) / 1000;
    this.#since = this.#isSeen && document.visibilityState === "visible" ? now : null;
  }

  /** Seconds since it was first shown, or since they were last taken. */
  take() {
    this.settle();
    const seconds = Math.round(this.#seconds * 10) / 10;
    this.#seconds = 0;
    return seconds;
  }

  end() {
    clocks.delete(this.element);
    observer.unobserve(this.element);
  }
}
