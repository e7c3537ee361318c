// Digests of bytes. The browser's own SHA-256 exists beyond plain HTTP alone, and takes no stream.

import { Word } from "./words.js";

const primes = (count) => {
  const found = [];
  for (let n = 2; found.length < count; n += 1) if (found.every((prime) => n % prime)) found.push(n);
  return found;
};
const fraction = (root) => ((root - Math.floor(root)) * 2 ** 32) | 0;
const ROUNDS = Int32Array.from(primes(64), (prime) => fraction(Math.cbrt(prime)));
const START = Int32Array.from(primes(8), (prime) => fraction(Math.sqrt(prime)));
const turned = (x, count) => (x >>> count) | (x << (32 - count));

/** SHA-256 (FIPS 180-4) of bytes that come in pieces. */
export class Sha256 {
  #state = START.slice();
  #words = new Int32Array(64);
  #block = new Uint8Array(64);
  #view = new DataView(this.#block.buffer);
  #held = 0;
  #size = 0;

  add(bytes) {
    this.#size += bytes.length;
    let at = 0;
    while (at < bytes.length) {
      const taken = Math.min(64 - this.#held, bytes.length - at);
      this.#block.set(bytes.subarray(at, at + taken), this.#held);
      this.#held += taken;
      at += taken;
      if (this.#held === 64) this.#round();
    }
    return this;
  }

  /** The 32 bytes; nothing is added after it. */
  result() {
    const bits = this.#size * 8;
    this.add(Uint8Array.of(0x80));
    while (this.#held !== 56) this.add(Uint8Array.of(0));
    this.#view.setUint32(56, Math.floor(bits / 2 ** 32));
    this.#view.setUint32(60, bits % 2 ** 32);
    this.#round();
    const found = new DataView(new ArrayBuffer(32));
    this.#state.forEach((word, place) => found.setInt32(4 * place, word));
    return new Uint8Array(found.buffer);
  }

  #round() {
    const w = this.#words;
    for (let t = 0; t < 16; t += 1) w[t] = this.#view.getInt32(4 * t);
    for (let t = 16; t < 64; t += 1) {
      const x = w[t - 15], y = w[t - 2];
      const early = turned(x, 7) ^ turned(x, 18) ^ (x >>> 3);
      const late = turned(y, 17) ^ turned(y, 19) ^ (y >>> 10);
      w[t] = (w[t - 16] + early + w[t - 7] + late) | 0;
    }
    let [a, b, c, d, e, f, g, h] = this.#state;
    for (let t = 0; t < 64; t += 1) {
      const chosen = (e & f) ^ (~e & g), most = (a & b) ^ (a & c) ^ (b & c);
      const one = (h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + chosen + ROUNDS[t] + w[t]) | 0;
      const two = ((turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + most) | 0;
      h = g; g = f; f = e; e = (d + one) | 0;
      d = c; c = b; b = a; a = (one + two) | 0;
    }
    [a, b, c, d, e, f, g, h].forEach((word, place) => (this.#state[place] += word));
    this.#held = 0;
  }
}

export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

const TABLE = Int32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  for (let bit = 0; bit < 8; bit += 1) rest = rest & 1 ? (rest >>> 1) ^ 0xedb88320 : rest >>> 1;
  return rest;
});

/** The CRC-32 of zlib and gzip (RFC 1952). */
export function crc32(bytes) {
  let rest = -1;
  for (let at = 0; at < bytes.length; at += 1) rest = TABLE[(rest ^ bytes[at]) & 255] ^ (rest >>> 8);
  return ~rest >>> 0;
}

// Source: the format's description (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md).
const P1 = [0x9e3779b1, 0x85ebca87], P2 = [0xc2b2ae3d, 0x27d4eb4f], P3 = [0x165667b1, 0x9e3779f9];
const P4 = [0x85ebca77, 0xc2b2ae63], P5 = [0x27d4eb2f, 0x165667c5];

/** The lower half of XXH64 with seed 0: the checksum of a zstd frame. */
export function xxh64(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const lane = new Word(), hash = new Word(...P5), size = bytes.length;
  const taken = (at) => lane.set(view.getInt32(at + 4, true), view.getInt32(at, true)).multiply(...P2).turn(31).multiply(...P1);
  const lanes = [new Word(...P1).add(...P2), new Word(...P2), new Word(), new Word(~P1[0], -P1[1])];
  let at = 0;
  if (size >= 32) {
    for (; at + 32 <= size; at += 32) {
      for (let place = 0; place < 4; place += 1) {
        const own = lanes[place], from = at + 8 * place;
        lane.set(view.getInt32(from + 4, true), view.getInt32(from, true)).multiply(P2[0], P2[1]);
        own.add(lane.hi, lane.lo).turn(31).multiply(P1[0], P1[1]);
      }
    }
    hash.set(0, 0);
    lanes.forEach((own, place) => {
      lane.set(own.hi, own.lo).turn([1, 7, 12, 18][place]);
      hash.add(lane.hi, lane.lo);
    });
    for (const own of lanes) {
      lane.set(own.hi, own.lo).multiply(...P2).turn(31).multiply(...P1);
      hash.xor(lane.hi, lane.lo).multiply(...P1).add(...P4);
    }
  }
  hash.add(0, size);
  for (; at + 8 <= size; at += 8) {
    taken(at);
    hash.xor(lane.hi, lane.lo).turn(27).multiply(...P1).add(...P4);
  }
  if (at + 4 <= size) {
    lane.set(0, view.getInt32(at, true)).multiply(...P1);
    hash.xor(lane.hi, lane.lo).turn(23).multiply(...P2).add(...P3);
    at += 4;
  }
  for (; at < size; at += 1) {
    lane.set(0, bytes[at]).multiply(...P5);
    hash.xor(lane.hi, lane.lo).turn(11).multiply(...P1);
  }
  hash.xorShifted(33).multiply(...P2).xorShifted(29).multiply(...P3).xorShifted(32);
  return hash.lo >>> 0;
}
