// The root mean square of each place over all lines, of exact sums: their order decides nothing.

const DIGITS = 34;
const CARRIED = 1 << 14;
const LARGEST = 2 ** 128 - 2 ** 104; // of all float32
const WEIGHTS = Float64Array.from({ length: 8 }, (_, exponent) => 4 ** exponent);

/** Moves what is beyond 16 bits of each digit to the next one. */
function carry(sums, lines) {
  for (let digit = 0; digit + 1 < DIGITS; digit += 1) {
    for (let line = 0; line < lines; line += 1) {
      const at = digit * lines + line, carried = Math.floor(sums[at] / 65536);
      sums[at] -= carried * 65536;
      sums[at + lines] += carried;
    }
  }
}

/** What magnitudes are multiplied by at each place, from the sums of squares of `count` lines. */
function reciprocals(sums, lines, count) {
  const scales = new Float32Array(lines);
  for (let line = 0; line < lines; line += 1) {
    let total = 0;
    for (let digit = DIGITS - 2; digit >= 0; digit -= 2) { // two digits are one window of the SDK's
      total += (sums[digit * lines + line] + 65536 * sums[(digit + 1) * lines + line]) * 2 ** (16 * digit);
    }
    const rms = Math.sqrt(total / count) * 2 ** -138;
    scales[line] = rms > 0 ? Math.min(1 / rms, LARGEST) : 0;
  }
  return scales;
}

/** Sums of the squares of a matrix's rows and of its columns, as integers of 2^-276. */
export class PlaceScales {
  constructor(rows, columns) {
    Object.assign(this, { rows, columns, isFinite: true });
    this.ofColumn = new Float64Array(DIGITS * columns);
    this.ofRow = new Float64Array(DIGITS * rows);
    this.own = new Float64Array(DIGITS);
    this.since = 0;
  }

  /** Takes some rows; each is taken once. */
  add(first, count, values) {
    const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
    for (let row = 0; row < count; row += 1) this.#addRow(first + row, bits, row * this.columns);
  }

  #addRow(row, bits, from) {
    const { columns, ofColumn, own } = this;
    own.fill(0);
    for (let begin = 0; begin < columns; begin += CARRIED) {
      const end = Math.min(begin + CARRIED, columns);
      for (let column = begin; column < end; column += 1) {
        const each = bits[from + column], exponent = (each >>> 23) & 255;
        if (exponent === 0) continue;
        const mantissa = (((each & 0x7fffff) | 0x800000) + 0x800) >>> 12;
        const term = mantissa * mantissa * WEIGHTS[exponent & 7], digit = exponent >>> 3;
        own[digit] += term;
        ofColumn[digit * columns + column] += term;
      }
      carry(own, 1);
    }
    if (own[31] || own[32] || own[33]) this.#requireFinite(bits.subarray(from, from + columns));
    for (let digit = 0; digit < DIGITS; digit += 1) this.ofRow[digit * this.rows + row] = own[digit];
    this.since += 1;
    if (this.since === CARRIED) this.#carry();
  }

  #requireFinite(bits) {
    if (bits.some((each) => ((each >>> 23) & 255) === 255)) this.isFinite = false;
  }

  #carry() {
    carry(this.ofColumn, this.columns);
    this.since = 0;
  }

  /** The scale of each place of a row: one for each column. */
  get ofRows() {
    this.#carry();
    return reciprocals(this.ofColumn, this.columns, this.rows);
  }

  /** The scale of each place of a column: one for each row. */
  get ofColumns() {
    return reciprocals(this.ofRow, this.rows, this.columns);
  }
}
