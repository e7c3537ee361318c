// Layouts: the tensors of a checkpoint in the order of its parameters, and their digest.

import { hex, Sha256 } from "./hashes.js";

/** The place of a unit of UTF-16 in the order of code points: pairs come behind all single ones. */
const placed = (unit) => (unit >= 0xe000 ? unit - 0x800 : unit >= 0xd800 ? unit + 0x2000 : unit);

/** Compares texts by their code points, as Python does. */
export function byCodePoint(a, b) {
  const size = Math.min(a.length, b.length);
  let at = 0;
  while (at < size && a[at] === b[at]) at += 1;
  return at < size ? placed(a.charCodeAt(at)) - placed(b.charCodeAt(at)) : a.length - b.length;
}

export const sizeOf = (shape) => shape.reduce((size, side) => size * side, 1);

const escaped = (text) => text.replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** `sha256:` and a digest of names and shapes in order, as `modelkin.Layout.digest` has it. */
export function layoutDigest(tensors) {
  const text = JSON.stringify(tensors.map(({ name, shape }) => [name, shape]));
  return `sha256:${hex(new Sha256().add(new TextEncoder().encode(escaped(text))).result())}`;
}

const special = /[.+^${}()|\\\]]/g;

/** A shell pattern as Python's `fnmatch` reads it. */
function expression(pattern) {
  const parts = pattern.split(/(\*|\?|\[!?\]?[^\]]*\])/);
  const spelled = parts.map((part, place) => {
    if (part === "*") return ".*";
    if (part === "?") return ".";
    if (place % 2) return part.replace(/\\/g, "\\\\").replace(/^\[!/, "[^").replace(/^(\[\^?)\]/, "$1\\]");
    return part.replace(special, "\\$&").replaceAll("[", "\\[");
  });
  return new RegExp(`^(?:${spelled.join("")})$`, "su");
}

/** The tensors without those whose names match a pattern. */
export function without(tensors, patterns) {
  const excluded = patterns.map(expression);
  return tensors.filter(({ name }) => !excluded.some((each) => each.test(name)));
}

/** The tensors in the order of a layout of the same ones; null where it has others. */
export function inOrder(tensors, layout) {
  const named = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  if (named.size !== layout.length) return null;
  const found = layout.map(({ name, shape }) => {
    const own = named.get(name);
    return own && own.shape.length === shape.length && own.shape.every((side, axis) => side === shape[axis]) ? own : null;
  });
  return found.includes(null) ? null : found;
}
