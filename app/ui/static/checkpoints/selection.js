// The K largest magnitudes of a checkpoint, exactly, in three readings and little memory.
//
// The bits of non-negative floats ascend as the floats do. The first reading counts their upper
// halves, the second one the lower halves in the bin where the K-th largest lies: that is the
// threshold. The third one takes what is above it, and the first of those that equal it.

import { Unreadable, quoted } from "./safetensors.js";
import { Room, valuesOf } from "./values.js";

const STRETCH = 1 << 20;
const BINS = 1 << 16;
const INVALID = 0x7f80;
const SIGN = 0x8000;
const MAX_DEFAULT_K = 2 ** 25;

/** K where nobody asks for another: a twentieth of M, as the SDK has it. */
export const defaultK = (parameters) => Math.min(Math.max(1, Math.floor(parameters / 20)), MAX_DEFAULT_K);

const SIZE = 0x7fffffff; // the bits of a float but its sign: those of its magnitude

/** Calls `take` with the bits of stretches of values, and with the tensor and the first element. */
function read(source, tensors, took, take) {
  const room = new Room();
  for (const tensor of tensors) {
    for (let begin = 0; begin < tensor.size; begin += STRETCH) {
      const values = valuesOf(source, tensor, begin, Math.min(begin + STRETCH, tensor.size), room);
      take(new Uint32Array(values.buffer, values.byteOffset, values.length), tensor, begin);
      took(values.length);
    }
  }
}

function requireFinite(counts, bits, tensor, begin) {
  if (!counts.subarray(INVALID, SIGN).some((count) => count > 0)) return;
  const at = begin + bits.findIndex((each) => (each & SIZE) >>> 16 >= INVALID);
  throw new Unreadable(`tensor ${quoted(tensor.name)} has a weight that is infinite or NaN as float32, at element ${at}`);
}

/** The place from the top at which counts reach `wanted`, and what lies above it. */
function reached(counts, wanted, from) {
  let above = 0, place = from;
  while (place > 0 && above + counts[place] < wanted) {
    above += counts[place];
    place -= 1;
  }
  return { place, above };
}

/**
 * The threshold of the K largest positive magnitudes, or of all where they are fewer.
 * @returns {{bits: number, ties: number, k: number}} `ties` of those that equal it are taken.
 */
function locate(source, tensors, k, took) {
  const counts = new Float64Array(BINS), within = new Float64Array(BINS);
  read(source, tensors, took, (bits, tensor, begin) => {
    for (let at = 0; at < bits.length; at += 1) counts[(bits[at] & SIZE) >>> 16] += 1;
    requireFinite(counts, bits, tensor, begin);
  });
  const { place: upper, above } = reached(counts, k, INVALID - 1);
  read(source, tensors, took, (bits) => {
    for (let at = 0; at < bits.length; at += 1) if ((bits[at] & SIZE) >>> 16 === upper) within[bits[at] & 0xffff] += 1;
  });
  if (upper === 0) within[0] = 0; // zeros are never taken
  const inside = within.reduce((sum, count) => sum + count, 0);
  const rest = Math.min(k - above, inside);
  if (above + rest === 0) throw new Unreadable("all its values are zero, so none is more important than another");
  if (rest === 0) return { bits: 1, ties: 1, k: above };
  const { place: lower, above: greater } = reached(within, rest, BINS - 1);
  return { bits: upper * BINS + lower, ties: rest - greater, k: above + rest };
}

/** How many low bytes of each gap stand by themselves: the mean of the rest is below 256. */
function lowBytes(parameters, k) {
  let width = 0;
  while (parameters >= k * 256 * 256 ** width) width += 1;
  return width;
}

/**
 * The gap stream of the K largest magnitudes, as `modelkin.core.codecs.gaps` defines it.
 * @param source as of `valuesOf`.
 * @param tensors in the order of the layout: ties go to the lower index.
 * @param {(values: number) => void} took is called three times for each value.
 */
export function selectLargest(source, tensors, k, took) {
  const parameters = tensors.reduce((sum, { size }) => sum + size, 0);
  const threshold = locate(source, tensors, k, took);
  const width = lowBytes(parameters, threshold.k), scale = 256 ** width;
  const symbols = new Uint8Array(threshold.k + Math.floor(parameters / scale / 255) + 1);
  const planes = new Uint8Array(width * threshold.k);
  const { bits: least, k: count } = threshold;
  let { ties } = threshold, index = 0, next = 0, taken = 0, filled = 0;
  read(source, tensors, took, (bits) => {
    for (let at = 0; at < bits.length; at += 1) {
      const size = bits[at] & SIZE;
      if (size < least || (size === least && ties-- <= 0)) continue;
      let gap = index + at - next;
      next = index + at + 1;
      for (let plane = 0; plane < width; plane += 1) {
        planes[plane * count + taken] = gap % 256;
        gap = Math.floor(gap / 256);
      }
      for (; gap >= 255; gap -= 255) symbols[filled++] = 255;
      symbols[filled++] = gap;
      taken += 1;
    }
    index += bits.length;
  });
  return { parameters, k: threshold.k, stream: [symbols.subarray(0, filled), planes] };
}
