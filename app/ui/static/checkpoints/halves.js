// Floats of 16 bits.

/** The bits of each half as those of a float32. */
export const HALVES = (() => {
  const bits = new Uint32Array(1 << 16), floats = new Float32Array(bits.buffer);
  for (let code = 0; code < 1 << 16; code += 1) {
    const exponent = (code >> 10) & 31, fraction = code & 1023;
    if (exponent === 31) bits[code] = 0x7f800000 | (fraction << 13);
    else floats[code] = exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24;
    bits[code] = (bits[code] & 0x7fffffff) | ((code & 0x8000) << 16);
  }
  return bits;
})();
