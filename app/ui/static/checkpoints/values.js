// The values of tensors as float32, a stretch at a time. A stretch shares memory with the next one.

import { readBlocks } from "./blocks.js";
import { HALVES } from "./halves.js";
import { FLOATS } from "./safetensors.js";

/** Room for values that is used again, as floats and as their bits. */
export class Room {
  #buffer = new ArrayBuffer(0);

  floats(size) {
    if (this.#buffer.byteLength < 4 * size) this.#buffer = new ArrayBuffer(4 * size);
    return new Float32Array(this.#buffer, 0, size);
  }
}

/** Plain numbers as float32. */
function numbersOf(source, tensor, begin, end, room) {
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

const stored = (source, tensor, begin, end, room) =>
  tensor.type?.read ? readBlocks(source, tensor, begin, end, (size) => room.floats(size)) : numbersOf(source, tensor, begin, end, room);

/** Values of whole heads, whose rows the file interleaves, two halves of a head by turns. */
function ofHeads(source, tensor, begin, end, room) {
  const width = tensor.size / tensor.shape[0], head = 2 * tensor.half * width;
  const first = Math.floor(begin / head) * head, last = Math.ceil(end / head) * head;
  const held = stored(source, tensor, first, last, new Room()), floats = room.floats(last - first);
  for (let row = 0; row < (last - first) / width; row += 1) {
    const within = row % (2 * tensor.half), place = row - within + 2 * (within % tensor.half) + Math.floor(within / tensor.half);
    floats.set(held.subarray(place * width, (place + 1) * width), row * width);
  }
  return floats.subarray(begin - first, end - first);
}

/**
 * The values of a tensor from one element to another.
 * @param source has the bytes: `read(begin, end)`.
 * @returns {Float32Array} what is beyond a float32 is infinite.
 */
export function valuesOf(source, tensor, begin, end, room) {
  const values = tensor.half ? ofHeads(source, tensor, begin, end, room) : stored(source, tensor, begin, end, room);
  if (tensor.shift) for (let at = 0; at < values.length; at += 1) values[at] -= tensor.shift;
  return values;
}
