// Layouts: the tensors of a checkpoint in the order of its parameters.

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

const special = /[.+^${}()|\\\]]/g;

/** A class of characters; a range from behind to the front has none of them. */
function characters(part) {
  const spelled = part.replace(/\\/g, "\\\\").replace(/^\[\^/, "[\\^").replace(/^\[!/, "[^").replace(/^(\[\^?)\]/, "$1\\]");
  try {
    return new RegExp(spelled, "su").source;
  } catch {
    return part.startsWith("[!") ? "." : "(?!)";
  }
}

/** A shell pattern as Python's `fnmatch` reads it. */
function expression(pattern) {
  const parts = pattern.split(/(\*|\?|\[!?\]?[^\]]*\])/);
  const spelled = parts.map((part, place) => {
    if (part === "*") return ".*";
    if (part === "?") return ".";
    if (place % 2) return characters(part);
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
