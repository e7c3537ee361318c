// The keys of columns, of a matrix that is read by rows and never held.
//
// Of each column the largest magnitudes so far are kept. A guess says which are not worth it: where
// it was too high for a column, that is read again. So guesses decide the time, and no key.

import { KeyMaker, sizeOfSet, walk } from "./lines.js";
import { nthLargest } from "./order.js";

const MOST_KEPT = 1 << 24;
const MARGIN = 2.5;
const LEAST = 2 ** -149;

const roomOf = (rows) => Math.min(rows, 2 * sizeOfSet(rows) + 1 + Math.max(16, sizeOfSet(rows)));

/** Columns in groups whose entries are kept at a time. */
export function groupsOfColumns(numbers, rows) {
  const step = Math.max(1, Math.floor(MOST_KEPT / roomOf(rows))), groups = [];
  for (let begin = 0; begin < numbers.length; begin += step) groups.push(numbers.slice(begin, begin + step));
  return groups;
}

/** Magnitudes that more entries of each column reach than its set has, by a sample of rows. */
export function guessesOf(sample, scales) {
  const { length: rows } = scales, { columns, rowNumbers } = sample, count = rowNumbers.length;
  const share = (MARGIN * sizeOfSet(rows)) / rows, guesses = new Float32Array(columns);
  if (share >= 1) return guesses;
  const wanted = Math.min(count, Math.ceil(share * count)), own = new Float32Array(count);
  for (let column = 0; column < columns; column += 1) {
    for (let row = 0; row < count; row += 1) own[row] = Math.abs(sample.rows[row * columns + column]) * scales[rowNumbers[row]];
    guesses[column] = 0.7 * nthLargest(own, count, Math.min(count, wanted + 1));
  }
  return guesses;
}

const bits = new Uint32Array(1), float = new Float32Array(bits.buffer);
function above(number) {
  [float[0]] = [number];
  bits[0] += 1;
  return float[0];
}

/** The keys of some columns of a matrix in the making. */
export class ColumnKeys {
  constructor(numbers, scales, guesses) {
    Object.assign(this, { numbers, scales, room: roomOf(scales.length) });
    this.ranks = walk(scales.length);
    this.maker = new KeyMaker(scales.length);
    this.bounds = Float32Array.from(numbers, (column) => Math.max(guesses[column], LEAST));
    this.counts = new Int32Array(numbers.length);
    this.magnitudes = new Float32Array(numbers.length * this.room);
    this.kept = new Uint32Array(numbers.length * this.room);
    this.order = new Float32Array(this.room);
  }

  /** Takes some rows, of all `columns` of the matrix; each is taken once. */
  take(first, count, values, columns) {
    const { numbers, scales, bounds } = this;
    for (let row = 0; row < count; row += 1) {
      const scale = scales[first + row], from = row * columns;
      for (let place = 0; place < numbers.length; place += 1) {
        const magnitude = Math.fround(Math.abs(values[from + numbers[place]]) * scale);
        if (magnitude >= bounds[place]) this.#keep(place, magnitude, first + row);
      }
    }
  }

  #keep(place, magnitude, row) {
    const { counts, room } = this;
    if (counts[place] === room) {
      this.#compact(place);
      if (magnitude < this.bounds[place]) return;
    }
    const at = place * room + counts[place];
    this.magnitudes[at] = magnitude;
    this.kept[at] = this.ranks[row];
    counts[place] += 1;
  }

  /** Moves the entries that stay to the front: those of a set, and ties until they are too many. */
  #compact(place) {
    const { magnitudes, kept, room, maker: { size } } = this;
    const from = place * room;
    this.order.set(magnitudes.subarray(from, from + room));
    const bound = nthLargest(this.order, room, size);
    let ties = 2 * size + 1, stay = from;
    for (let k = from; k < from + room; k += 1) if (magnitudes[k] > bound) ties -= 1;
    for (let k = from; k < from + room; k += 1) {
      const isTie = magnitudes[k] === bound;
      if (!(magnitudes[k] > bound) && !(isTie && ties > 0)) continue;
      if (isTie) ties -= 1;
      magnitudes[stay] = magnitudes[k];
      kept[stay] = kept[k];
      stay += 1;
    }
    this.counts[place] = stay - from;
    this.bounds[place] = stay - from > 2 * size ? above(bound) : bound;
  }

  /** Writes the keys; returns the columns of which the guess kept too few entries. */
  finish(keys, guesses) {
    const { numbers, counts, magnitudes, kept, room, maker } = this, missed = [];
    for (let place = 0; place < numbers.length; place += 1) {
      const count = counts[place], from = place * room, column = numbers[place];
      if (count < maker.size) {
        if (guesses[column] > 0) missed.push(column);
        continue;
      }
      for (let k = 0; k < count; k += 1) this.order[k] = magnitudes[from + k];
      const least = nthLargest(this.order, count, maker.size);
      maker.write(magnitudes, kept, from, count, least, keys, column);
    }
    return missed;
  }
}
