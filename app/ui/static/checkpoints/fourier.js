// Discrete Fourier transforms of any length: Stockham's algorithm over the prime factors, and 4.

function factorsOf(size) {
  const factors = [];
  let rest = size;
  while (rest % 4 === 0) {
    factors.push(4);
    rest /= 4;
  }
  for (let factor = 2; rest > 1; factor += 1) {
    while (rest % factor === 0) {
      factors.push(factor);
      rest /= factor;
    }
  }
  return factors;
}

/** The power of each frequency of real lines of one length. */
export class Spectrum {
  constructor(length) {
    Object.assign(this, { length, factors: factorsOf(length) });
    const angle = (_, place) => (-2 * Math.PI * place) / length;
    this.cos = Float64Array.from({ length }, (_, place) => Math.cos(angle(_, place)));
    this.sin = Float64Array.from({ length }, (_, place) => Math.sin(angle(_, place)));
    [this.re, this.im, this.re2, this.im2] = Array.from({ length: 4 }, () => new Float64Array(length));
  }

  /** The power of the frequencies from 1 to half the length. */
  of(line) {
    const { length } = this;
    this.re.set(line);
    this.im.fill(0);
    let size = length, stride = 1;
    for (const factor of this.factors) {
      this.#stage(size, stride, factor);
      [this.re, this.re2, this.im, this.im2] = [this.re2, this.re, this.im2, this.im];
      size /= factor;
      stride *= factor;
    }
    return Float64Array.from({ length: length >> 1 }, (_, at) => this.re[at + 1] ** 2 + this.im[at + 1] ** 2);
  }

  #stage(size, stride, factor) {
    const { length, cos, sin, re, im, re2, im2 } = this;
    const part = size / factor, turn = length / factor;
    for (let p = 0; p < part; p += 1) {
      for (let u = 0; u < factor; u += 1) {
        const twist = (p * u * stride) % length;
        for (let q = 0; q < stride; q += 1) {
          let a = 0, b = 0;
          for (let t = 0; t < factor; t += 1) {
            const from = q + stride * (p + part * t), at = ((t * u) % factor) * turn;
            a += re[from] * cos[at] - im[from] * sin[at];
            b += re[from] * sin[at] + im[from] * cos[at];
          }
          const to = q + stride * (factor * p + u);
          re2[to] = a * cos[twist] - b * sin[twist];
          im2[to] = a * sin[twist] + b * cos[twist];
        }
      }
    }
  }
}
