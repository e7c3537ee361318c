// The matrices of a tensor, whose lines are its rows and its columns. As the SDK divides tensors:
// stacks of matrices, and kernels, of which the two longest axes are a matrix for each place.

import { sizeOf } from "./layouts.js";
import { Unreadable, quoted } from "./safetensors.js";
import { Room, valuesOf } from "./values.js";

export const MIN_SIDE = 64;
const STRETCH = 1 << 20;
const LEAST_ROWS = 16;
const MOST_OF_KERNEL = 1 << 27;

const isStack = (shape) => shape.length === 2 || (shape.length === 3 && Math.min(shape[1], shape[2]) >= MIN_SIDE);

/** Which axes are places of matrices, which is that of rows, and which are columns together. */
function axesOf(shape) {
  if (shape.length < 2 || !sizeOf(shape)) return null;
  if (isStack(shape)) return { places: shape.length === 3 ? [0] : [], rows: shape.length - 2, columns: [shape.length - 1] };
  const [longest, second, ...others] = shape.map((_, axis) => axis).sort((a, b) => shape[b] - shape[a] || a - b);
  if (shape[second] >= MIN_SIDE) {
    const [rows, columns] = [longest, second].sort((a, b) => a - b);
    return { places: others.sort((a, b) => a - b), rows, columns: [columns] };
  }
  return { places: [], rows: longest, columns: [second, ...others].sort((a, b) => shape[a] - shape[b] || a - b) };
}

/** The rows and the columns of each matrix of a tensor; 0 and 0 where it has none. */
export function sidesOf(shape) {
  const axes = axesOf(shape);
  if (!axes) return [0, 0];
  return [shape[axes.rows], axes.columns.reduce((size, axis) => size * shape[axis], 1)];
}

/** A matrix that is read by stretches of rows: `take(first row, rows, values)` has each. */
function matrixOf([rows, columns], read) {
  const step = Math.max(LEAST_ROWS, Math.floor(STRETCH / columns));
  const stretches = (take) => {
    for (let begin = 0; begin < rows; begin += step) {
      const end = Math.min(begin + step, rows);
      take(begin, end - begin, read(begin, end));
    }
  };
  return { rows, columns, stretches };
}

function* ofStack(source, tensor, room) {
  const [rows, columns] = sidesOf(tensor.shape);
  for (let first = 0; first < tensor.size; first += rows * columns) {
    yield matrixOf([rows, columns], (begin, end) => valuesOf(source, tensor, first + begin * columns, first + end * columns, room));
  }
}

/** The offsets of all places of some axes, in the order of C. */
function offsets(shape, strides, axes) {
  return axes.reduce((found, axis) => found.flatMap((at) => Array.from({ length: shape[axis] }, (_, place) => at + place * strides[axis])), [0]);
}

function* ofKernel(source, tensor, room) {
  const { shape, size, name } = tensor;
  if (size > MOST_OF_KERNEL) throw new Unreadable(`tensor ${quoted(name)} is a kernel of ${size} values, more than are read here: the command reads it`);
  const { places, rows, columns } = axesOf(shape);
  const strides = shape.map((_, axis) => sizeOf(shape.slice(axis + 1)));
  const whole = valuesOf(source, tensor, 0, size, new Room()), across = offsets(shape, strides, columns);
  for (const first of offsets(shape, strides, places)) {
    yield matrixOf(sidesOf(shape), (begin, end) => {
      const values = room.floats((end - begin) * across.length);
      let at = 0;
      for (let row = begin; row < end; row += 1) for (const offset of across) values[at++] = whole[first + row * strides[rows] + offset];
      return values;
    });
  }
}

/** The matrices of a tensor, one after another; none with a side below 64. */
export function matricesOf(source, tensor, room) {
  if (Math.min(...sidesOf(tensor.shape)) < MIN_SIDE) return [];
  return isStack(tensor.shape) ? ofStack(source, tensor, room) : ofKernel(source, tensor, room);
}
