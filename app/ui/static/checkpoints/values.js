// The values of tensors as float32, a stretch at a time. A stretch shares memory with the next one.

import { FLOATS } from "./safetensors.js";

/** The bits of each half as those of a float32. */
const HALVES = (() => {
  const bits = new Uint32Array(1 << 16), floats = new Float32Array(bits.buffer);
  for (let code = 0; code < 1 << 16; code += 1) {
    const exponent = (code >> 10) & 31, fraction = code & 1023;
    if (exponent === 31) bits[code] = 0x7f800000 | (fraction << 13);
    else floats[code] = exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24;
    bits[code] = (bits[code] & 0x7fffffff) | ((code & 0x8000) << 16);
  }
  return bits;
})();

/** Room for values that is used again, as floats and as their bits. */
export class Room {
  #buffer = new ArrayBuffer(0);

  floats(size) {
    if (this.#buffer.byteLength < 4 * size) this.#buffer = new ArrayBuffer(4 * size);
    return new Float32Array(this.#buffer, 0, size);
  }
}

/**
 * The values of a tensor from one element to another.
 * @param source has the bytes: `read(begin, end)`.
 * @returns {Float32Array} what is beyond a float32 is infinite.
 */
export function valuesOf(source, tensor, begin, end, room) {
  const width = FLOATS[tensor.dtype];
  const raw = source.read(tensor.begin + begin * width, tensor.begin + end * width);
  if (tensor.dtype === "F32") return new Float32Array(raw.buffer, raw.byteOffset, end - begin);
  const floats = room.floats(end - begin);
  if (tensor.dtype === "F64") {
    floats.set(new Float64Array(raw.buffer, raw.byteOffset, end - begin));
    return floats;
  }
  const codes = new Uint16Array(raw.buffer, raw.byteOffset, end - begin);
  const bits = new Uint32Array(floats.buffer, 0, codes.length);
  if (tensor.dtype === "BF16") for (let at = 0; at < codes.length; at += 1) bits[at] = codes[at] << 16;
  else for (let at = 0; at < codes.length; at += 1) bits[at] = HALVES[codes[at]];
  return floats;
}
