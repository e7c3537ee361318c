// Integers of 64 bits as two of 32: a BigInt would take ten times as long.

/** The upper half of the product of two unsigned integers of 32 bits. */
function upperHalf(a, b) {
  const a0 = a & 0xffff, a1 = a >>> 16, b0 = b & 0xffff, b1 = b >>> 16;
  const middle = a1 * b0 + ((a0 * b0) >>> 16);
  return (a1 * b1 + (middle >>> 16) + ((a0 * b1 + (middle & 0xffff)) >>> 16)) | 0;
}

/** An unsigned integer modulo 2^64 that changes in place; each step returns it. */
export class Word {
  constructor(hi = 0, lo = 0) {
    [this.hi, this.lo] = [hi | 0, lo | 0];
  }

  set(hi, lo) {
    this.hi = hi | 0;
    this.lo = lo | 0;
    return this;
  }

  add(hi, lo) {
    const sum = (this.lo >>> 0) + (lo >>> 0);
    this.lo = sum | 0;
    this.hi = (this.hi + hi + (sum > 0xffffffff ? 1 : 0)) | 0;
    return this;
  }

  multiply(hi, lo) {
    const own = this.lo;
    this.hi = (upperHalf(own, lo) + Math.imul(this.hi, lo) + Math.imul(own, hi)) | 0;
    this.lo = Math.imul(own, lo);
    return this;
  }

  xor(hi, lo) {
    this.hi ^= hi;
    this.lo ^= lo;
    return this;
  }

  /** Itself, exclusive or itself shifted right by 1 to 63. */
  xorShifted(count) {
    if (count < 32) return this.xor(this.hi >>> count, (this.lo >>> count) | (this.hi << (32 - count)));
    return this.xor(0, this.hi >>> (count - 32));
  }

  /** Turned left by 1 to 63, but 32. */
  turn(count) {
    let { hi, lo } = this;
    if (count > 32) [hi, lo, count] = [lo, hi, count - 32];
    return this.set((hi << count) | (lo >>> (32 - count)), (lo << count) | (hi >>> (32 - count)));
  }
}
