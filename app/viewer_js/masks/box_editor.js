// A step's box in the hand: eight handles, the inside moves it.

const REACH = 9;
const LEAST = 1;

/** Which edges of the box a handle moves: [x0, y0, x1, y1]. */
const HANDLES = [
  [1, 1, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0],
  [1, 0, 0, 0], [0, 0, 1, 0],
  [1, 0, 0, 1], [0, 0, 0, 1], [0, 0, 1, 1],
];
const ALL = [1, 1, 1, 1];

/** One box that is being corrected, on one frame; it stays on the picture and is never turned inside out. */
export class BoxEditor {
  /**
   * @param {[number, number, number, number]} box  Edges in pixels of the frame.
   * @param {{rows: number, columns: number}} size
   * @param {{changed: () => void, dropped: (box: number[]) => void}} on  `dropped` when the hand lets go of a change.
   */
  constructor(box, size, on) {
    this.box = [...box];
    this.size = size;
    this.on = on;
  }

  get handles() {
    const [x0, y0, x1, y1] = this.box;
    const middle = [(x0 + x1) / 2, (y0 + y1) / 2];
    return HANDLES.map(([left, top, right, bottom]) => [left ? x0 : right ? x1 : middle[0], top ? y0 : bottom ? y1 : middle[1]]);
  }

  /**
   * @param {[number, number]} at  Picture coordinates.
   * @param {(distance: [number, number]) => number} toView  Length on the screen of a way in the picture, CSS pixels.
   * @returns {import("./hand.js").Grip|null}
   */
  grip(at, toView) {
    const near = this.handles.map((handle) => toView([handle[0] - at[0], handle[1] - at[1]]));
    const nearest = near.indexOf(Math.min(...near));
    const [x0, y0, x1, y1] = this.box;
    const isInside = at[0] > x0 && at[0] < x1 && at[1] > y0 && at[1] < y1;
    const edges = near[nearest] <= REACH ? HANDLES[nearest] : isInside ? ALL : null;
    if (!edges) return null;
    const before = this.box;
    const to = (place) => this.#set(this.#moved(before, edges, place[0] - at[0], place[1] - at[1]));
    const settle = () => {
      if (this.box.some((edge, which) => edge !== before[which])) this.on.dropped(this.box);
    };
    return {
      move: to,
      end: (place) => {
        if (place) to(place);
        settle();
      },
      cancel: () => this.#set(before),
    };
  }

  #set(box) {
    this.box = box;
    this.on.changed();
  }

  #moved(box, edges, dx, dy) {
    const { columns, rows } = this.size;
    const limit = (value, most) => Math.min(most, Math.max(0, value));
    if (edges === ALL) {
      const x = Math.min(columns - box[2], Math.max(-box[0], dx));
      const y = Math.min(rows - box[3], Math.max(-box[1], dy));
      return [box[0] + x, box[1] + y, box[2] + x, box[3] + y];
    }
    const [x0, y0, x1, y1] = [0, 1, 2, 3].map((which) => limit(box[which] + (edges[which] ? (which % 2 ? dy : dx) : 0), which % 2 ? rows : columns));
    return [
      edges[0] ? Math.min(x0, x1 - LEAST) : x0,
      edges[1] ? Math.min(y0, y1 - LEAST) : y0,
      edges[2] ? Math.max(x1, x0 + LEAST) : x1,
      edges[3] ? Math.max(y1, y0 + LEAST) : y1,
    ];
  }
}
