// The frame and the checksums around the content of modelkin's native formats.

import { crc32, xxh64 } from "./hashes.js";

const BLOCK = 128 << 10;
const WINDOW = 13 << 3; // 8 MiB, the most that a reader has to take

/** Bytes one after another. */
export function joined(parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Numbers as little-endian bytes: `fields` are pairs of a width in bytes and a number. */
export function packed(...fields) {
  const bytes = new Uint8Array(fields.reduce((size, [width]) => size + width, 0));
  let at = 0;
  for (const [width, number] of fields) {
    let rest = number;
    for (let place = 0; place < width; place += 1) {
      bytes[at + place] = rest % 256;
      rest = Math.floor(rest / 256);
    }
    at += width;
  }
  return bytes;
}

/** A zstd frame (RFC 8878) whose blocks are as they are: readers see the same content. */
function frame(content) {
  const parts = [packed([4, 0xfd2fb528], [1, 0x84], [1, WINDOW], [4, content.length])];
  for (let at = 0; at < content.length || at === 0; at += BLOCK) {
    const block = content.subarray(at, at + BLOCK);
    const isLast = at + BLOCK >= content.length;
    parts.push(packed([3, block.length * 8 + (isLast ? 1 : 0)]), block);
  }
  parts.push(packed([4, xxh64(content)]));
  return joined(parts);
}

/** A whole payload: the header, the content in a frame, and a checksum of both. */
export function payload(header, content) {
  const body = joined([header, frame(content)]);
  return joined([body, packed([4, crc32(body)])]);
}
