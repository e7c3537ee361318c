// The values of GGUF's blocks as float32, rounded step by step as the package `gguf` does in numpy.

import { HALVES } from "./halves.js";

const half = new Uint32Array(1), float = new Float32Array(half.buffer);
function halfAt(bytes, at) {
  half[0] = HALVES[bytes[at] | (bytes[at + 1] << 8)];
  return float[0];
}

const { fround } = Math;

/** Blocks of 32 values of 4 or 5 bits: `low` takes away from each, or a minimum is added. */
function small(bits, hasMinimum, low) {
  return (bytes, at, out, to) => {
    const d = halfAt(bytes, at), m = hasMinimum ? halfAt(bytes, at + 2) : 0, upper = at + (hasMinimum ? 4 : 2);
    const codes = upper + (bits === 5 ? 4 : 0);
    for (let j = 0; j < 32; j += 1) {
      let q = (bytes[codes + (j & 15)] >> (j < 16 ? 0 : 4)) & 15;
      if (bits === 5) q |= ((bytes[upper + (j >> 3)] >> (j & 7)) & 1) << 4;
      out[to + j] = hasMinimum ? fround(d * q) + m : d * (q - low);
    }
  };
}

function q8(bytes, at, out, to) {
  const d = halfAt(bytes, at);
  for (let j = 0; j < 32; j += 1) out[to + j] = ((bytes[at + 2 + j] << 24) >> 24) * d;
}

/** Super-blocks of 256 values with scales and minima of 6 bits for each 32. */
function q45K(bits) {
  return (bytes, at, out, to) => {
    const d = halfAt(bytes, at), least = halfAt(bytes, at + 2), scales = at + 4;
    const upper = at + 16, codes = upper + (bits === 5 ? 32 : 0);
    for (let group = 0; group < 8; group += 1) {
      const k = group & 3, a = bytes[scales + k], b = bytes[scales + 4 + k], c = bytes[scales + 8 + k];
      const scale = fround(d * (group < 4 ? a & 63 : (c & 15) | ((a >> 2) & 48)));
      const minimum = fround(least * (group < 4 ? b & 63 : (c >> 4) | ((b >> 2) & 48)));
      for (let j = 0; j < 32; j += 1) {
        let q = (bytes[codes + 32 * (group >> 1) + j] >> (group & 1 ? 4 : 0)) & 15;
        if (bits === 5) q |= ((bytes[upper + j] >> group) & 1) << 4;
        out[to + 32 * group + j] = fround(scale * q) - minimum;
      }
    }
  };
}

function q6K(bytes, at, out, to) {
  const d = halfAt(bytes, at + 208);
  for (let place = 0; place < 256; place += 1) {
    const row = place >> 5, j = place & 31, side = row >> 2; // 64 bytes of low bits make four rows
    const low = (bytes[at + 64 * side + 32 * (row & 1) + j] >> (row & 2 ? 4 : 0)) & 15;
    const high = (bytes[at + 128 + 32 * side + j] >> (2 * (row & 3))) & 3;
    const scale = fround(d * ((bytes[at + 192 + (place >> 4)] << 24) >> 24));
    out[to + place] = scale * ((low | (high << 4)) - 32);
  }
}

function q2K(bytes, at, out, to) {
  const d = halfAt(bytes, at + 80), least = halfAt(bytes, at + 82);
  for (let place = 0; place < 256; place += 1) {
    const row = place >> 5, both = bytes[at + (place >> 4)];
    const q = (bytes[at + 16 + 32 * (row >> 2) + (place & 31)] >> (2 * (row & 3))) & 3;
    out[to + place] = fround(fround(d * (both & 15)) * q) - fround(least * (both >> 4));
  }
}

function q3K(bytes, at, out, to) {
  const d = halfAt(bytes, at + 108), packed = at + 96;
  for (let place = 0; place < 256; place += 1) {
    const row = place >> 5, j = place & 31, group = place >> 4;
    const low = (bytes[packed + (group & 7)] >> (group < 8 ? 0 : 4)) & 15;
    const high = (bytes[packed + 8 + (group & 3)] >> (2 * (group >> 2))) & 3;
    const q = (bytes[at + 32 + 32 * (row >> 2) + j] >> (2 * (row & 3))) & 3;
    const offset = (bytes[at + j] >> row) & 1 ? 0 : 4;
    out[to + place] = fround(d * ((low | (high << 4)) - 32)) * (q - offset);
  }
}

/** The types of GGUF that are read here by number: name, values and bytes of a block, its reader. */
export const TYPES = new Map([
  [0, { name: "F32", size: 1, bytes: 4 }],
  [1, { name: "F16", size: 1, bytes: 2 }],
  [28, { name: "F64", size: 1, bytes: 8 }],
  [30, { name: "BF16", size: 1, bytes: 2 }],
  [2, { name: "Q4_0", size: 32, bytes: 18, read: small(4, false, 8) }],
  [3, { name: "Q4_1", size: 32, bytes: 20, read: small(4, true) }],
  [6, { name: "Q5_0", size: 32, bytes: 22, read: small(5, false, 16) }],
  [7, { name: "Q5_1", size: 32, bytes: 24, read: small(5, true) }],
  [8, { name: "Q8_0", size: 32, bytes: 34, read: q8 }],
  [10, { name: "Q2_K", size: 256, bytes: 84, read: q2K }],
  [11, { name: "Q3_K", size: 256, bytes: 110, read: q3K }],
  [12, { name: "Q4_K", size: 256, bytes: 144, read: q45K(4) }],
  [13, { name: "Q5_K", size: 256, bytes: 176, read: q45K(5) }],
  [14, { name: "Q6_K", size: 256, bytes: 210, read: q6K }],
  [24, { name: "I8", size: 1, bytes: 1 }],
  [25, { name: "I16", size: 1, bytes: 2 }],
  [26, { name: "I32", size: 1, bytes: 4 }],
  [27, { name: "I64", size: 1, bytes: 8 }],
]);

/** The values from one place of a row of blocks to another, as float32. */
export function readBlocks(source, { type, begin }, first, last, floats) {
  const { size, bytes, read } = type, from = Math.floor(first / size), until = Math.ceil(last / size);
  const raw = source.read(begin + from * bytes, begin + until * bytes), out = floats((until - from) * size);
  for (let block = 0; block < until - from; block += 1) read(raw, block * bytes, out, block * size);
  return out.subarray(first - from * size, last - from * size);
}
