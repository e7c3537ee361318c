// The keys of lines: which line of a matrix is the same as one elsewhere. Equal to the SDK's to the bit.

import { nthLargest } from "./order.js";
import { Word } from "./words.js";

/** t, the entries of the set of a line: 2% of its length, at least 8. */
export const sizeOfSet = (length) => Math.max(8, Math.floor((length + 25) / 50));

/** r, the members of a set that make its key. */
export function membersOfKey(length) {
  for (const [beyond, members] of [[1024, 5], [256, 4], [128, 5], [96, 6]]) if (length >= beyond) return members;
  return 7;
}

/** MT19937 (Matsumoto and Nishimura 1998), from which the SDK draws its permutations. */
function* twister(seed) {
  const state = new Uint32Array(624);
  state[0] = seed;
  for (let i = 1; i < 624; i += 1) state[i] = Math.imul(1812433253, state[i - 1] ^ (state[i - 1] >>> 30)) + i;
  for (;;) {
    for (let i = 0; i < 624; i += 1) {
      const y = (state[i] & 0x80000000) | (state[(i + 1) % 624] & 0x7fffffff);
      state[i] = state[(i + 397) % 624] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
    }
    for (const each of state) {
      let y = each ^ (each >>> 11);
      y ^= (y << 7) & 0x9d2c5680;
      y ^= (y << 15) & 0xefc60000;
      yield (y ^ (y >>> 18)) >>> 0;
    }
  }
}

/** The odd factors and the offsets of `affine32` for seed 1. */
export function permutations(count) {
  const drawn = twister(1), next = () => drawn.next().value;
  const factors = Int32Array.from({ length: count }, () => (next() & 0x7fffffff) * 2 + 1);
  return { factors, offsets: Int32Array.from({ length: count }, next) };
}

/** fmix32 of MurmurHash3. */
export function mixed(x) {
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return x ^ (x >>> 16);
}

const walks = new Map();

/** The rank of each place of a line in the walk that is the same for all. */
export function walk(length) {
  if (!walks.has(length)) {
    if (walks.size >= 8) walks.clear();
    const { factors: [a], offsets: [b] } = permutations(1);
    walks.set(length, Uint32Array.from({ length }, (_, place) => Math.imul(a, mixed(place)) + b));
  }
  return walks.get(length);
}

/** The keys of lines of one direction; a line without a key has neither half. */
export class Keys {
  constructor(lines) {
    this.halves = new Uint32Array(2 * lines); // the lower half comes first
    this.has = new Uint8Array(lines);
  }

  /** The keys of the lines that have one. */
  get held() {
    const has = this.has;
    return new BigUint64Array(this.halves.buffer).filter((_, line) => has[line]);
  }
}

/** What makes keys of the members of sets, for lines of one length. */
export class KeyMaker {
  #word = new Word();

  constructor(length) {
    this.length = length;
    this.size = sizeOfSet(length);
    this.first = new Float64Array(membersOfKey(length));
  }

  /**
   * Writes the key of a line, and tells whether it has one.
   * @param found magnitudes, among them all of the set; `ranks` of their places; `count` of them.
   * @param least the least magnitude of the set, above 0.
   */
  write(found, ranks, from, count, least, keys, line) {
    const { first, size } = this;
    let held = 0;
    first.fill(0xffffffff);
    for (let j = from; j < from + count; j += 1) {
      if (found[j] < least) continue;
      held += 1;
      let rank = ranks[j];
      for (let k = 0; k < first.length; k += 1) {
        if (rank < first[k]) {
          const other = first[k];
          first[k] = rank;
          rank = other;
        }
      }
    }
    if (held > 2 * size) return false;
    const word = this.#word.set(0, this.length);
    for (const rank of first) {
      word.multiply(0x9e3779b9, 0x7f4a7c15).add(0, rank);
      word.xorShifted(33).multiply(0xff51afd7, 0xed558ccd).xorShifted(33).multiply(0xc4ceb9fe, 0x1a85ec53).xorShifted(33);
    }
    keys.halves[2 * line] = word.lo;
    keys.halves[2 * line + 1] = word.hi;
    keys.has[line] = 1;
    return true;
  }
}

const TINY = 1e-3;

/** The keys of a matrix's rows, which come in stretches. */
export class RowKeys {
  #guess = 0;

  /** `members` takes the place of each member of a set among the values of the tensor. */
  constructor(rows, scales, members) {
    Object.assign(this, { scales, members, keys: new Keys(rows) });
    const length = scales.length;
    this.maker = new KeyMaker(length);
    this.ranks = walk(length);
    this.found = new Float32Array(length);
    this.order = new Float32Array(length);
    this.places = new Uint32Array(length);
    this.own = new Uint32Array(length);
  }

  take(first, count, values, firstValue) {
    const { length } = this.scales;
    for (let row = 0; row < count; row += 1) this.#row(first + row, values, row * length, firstValue);
  }

  #row(line, values, from, firstValue) {
    const { found, order, places, own, ranks, maker } = this;
    // What the last line needed is a good guess for this one: it decides the time, and no key.
    let count = this.#above(values, from, this.#guess);
    while (count < maker.size) {
      this.#guess = this.#guess > TINY ? this.#guess / 2 : 0;
      count = this.#above(values, from, this.#guess);
    }
    for (let j = 0; j < count; j += 1) {
      order[j] = found[j];
      own[j] = ranks[places[j]];
    }
    const least = nthLargest(order, count, maker.size);
    this.#guess = Math.fround(0.9 * least);
    if (!(least > 0) || !maker.write(found, own, 0, count, least, this.keys, line)) return;
    const begin = firstValue + line * places.length;
    for (let j = 0; j < count; j += 1) if (found[j] >= least) this.members(begin + places[j]);
  }

  #above(values, from, least) {
    const { scales, found, places } = this;
    let count = 0;
    for (let j = 0; j < scales.length; j += 1) {
      const magnitude = Math.fround(Math.abs(values[from + j]) * scales[j]);
      if (magnitude >= least) {
        found[count] = magnitude;
        places[count++] = j;
      }
    }
    return count;
  }
}
