/**
 * The order in which neighbours are fetched: outward from the slice on the screen, the way the reader moves first.
 *
 * @param {number} around  The slice on the screen.
 * @param {number} count  Slices of the series.
 * @param {number} direction  +1 or -1, where the reader moves to.
 * @param {number} capacity  How many slices fit in memory; no more are asked for.
 * @returns {number[]}
 */
export function outward(around, count, direction, capacity) {
  const order = [around];
  for (let distance = 1; order.length < Math.min(count, capacity) && distance < count; distance += 1) {
    for (const index of [around + direction * distance, around - direction * distance]) {
      if (index >= 0 && index < count && order.length < capacity) order.push(index);
    }
  }
  return order;
}
