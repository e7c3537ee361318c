// Tables that no training made, and matrices of few values: they have no lines to compare.
//
// Means and spectra are sums of doubles, whose last bits depend on their order. They decide only by
// a limit from which tables and weights are far.

import { sizeOfSet } from "./lines.js";
import { Spectrum } from "./fourier.js";
import { median, nthLargest } from "./order.js";

const LEAST_LINES = 16;
const MOST_LINES = 64;
const MOST_PLACES = 4096;
const MOST_ORDER = 0.6;

function spread(side) {
  const count = Math.min(MOST_LINES, Math.max(LEAST_LINES, Math.floor(side / 16))), step = (side - 1) / (count - 1);
  return Int32Array.from({ length: count }, (_, place) => (place === count - 1 ? side - 1 : place * step));
}

/** Some rows and some columns of a matrix, at equal distances, taken as its rows are read. */
export class LineSample {
  constructor(rows, columns) {
    Object.assign(this, { columns, rowNumbers: spread(rows), columnNumbers: spread(columns), height: Math.min(rows, MOST_PLACES) });
    this.rows = new Float32Array(this.rowNumbers.length * columns);
    this.ofColumns = new Float32Array(this.columnNumbers.length * this.height);
  }

  add(first, count, values) {
    const { columns, rowNumbers, columnNumbers, height } = this;
    rowNumbers.forEach((row, place) => {
      if (row >= first && row < first + count) this.rows.set(values.subarray((row - first) * columns, (row - first + 1) * columns), place * columns);
    });
    for (let row = first; row < Math.min(first + count, height); row += 1) {
      for (let place = 0; place < columnNumbers.length; place += 1) this.ofColumns[place * height + row] = values[(row - first) * columns + columnNumbers[place]];
    }
  }

  /** The first places of the rows, and of the columns. */
  get lines() {
    const width = Math.min(this.columns, MOST_PLACES), { height } = this;
    return [
      Array.from(this.rowNumbers, (_, place) => this.rows.subarray(place * this.columns, place * this.columns + width)),
      Array.from(this.columnNumbers, (_, place) => this.ofColumns.subarray(place * height, (place + 1) * height)),
    ];
  }
}

function total(line) {
  let sum = 0;
  for (let at = 0; at < line.length; at += 1) sum += line[at];
  return sum;
}

function centred(line) {
  const mean = total(line) / line.length, found = new Float64Array(line.length);
  for (let at = 0; at < line.length; at += 1) found[at] = line[at] - mean;
  return found;
}

/** The correlation of adjacent values. */
function neighbours(line) {
  let products = 0, squares = 0;
  for (let at = 0; at < line.length; at += 1) {
    squares += line[at] * line[at];
    if (at) products += line[at - 1] * line[at];
  }
  return squares > 0 ? products / (line.length - 1) / (squares / line.length) : null;
}

/** The share of the power that the strongest 2% of the frequencies hold. */
function strongest(spectrum, line) {
  const power = spectrum.of(line), count = Math.max(2, Math.floor(power.length / 50)), whole = total(power);
  if (!(whole > 0)) return null;
  nthLargest(power, power.length, count); // moves the strongest to the front
  return total(power.subarray(0, count)) / whole;
}

/** Whether the median of what is told of lines is above the limit; lines that are constant tell nothing. */
function isMostly(lines, tell) {
  const told = [];
  let low = 0;
  for (const line of lines) {
    const share = tell(line);
    if (share === null) continue;
    told.push(share);
    if (share <= MOST_ORDER) low += 1;
    if (2 * low > lines.length + 1) return false; // whatever the others say
  }
  return told.length > 0 && median(told) > MOST_ORDER;
}

/** Whether neighbours of a matrix are alike, or few frequencies hold the power of its lines. */
export function isStructured(sample) {
  return sample.lines.map((lines) => lines.map(centred)).some((lines) => {
    const spectrum = new Spectrum(lines[0].length);
    return isMostly(lines, neighbours) || isMostly(lines, (line) => strongest(spectrum, line));
  });
}

/** Whether so many magnitudes of most lines are equal that the largest cannot be told apart. */
export function hasFewValues(sample) {
  return sample.lines.some((lines) => {
    const magnitudes = lines.map((line) => line.map(Math.abs)).filter((line) => line.some((value) => value > 0));
    if (!magnitudes.length) return true;
    const size = sizeOfSet(magnitudes[0].length);
    const counts = magnitudes.map((line) => {
      const least = nthLargest(line.slice(), line.length, size);
      return line.reduce((count, value) => count + (value >= least), 0);
    });
    return median(counts) > 2 * size;
  });
}
