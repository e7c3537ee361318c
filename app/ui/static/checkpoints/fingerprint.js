// The fingerprint of a checkpoint, `application/vnd.modelkin.fingerprint+zstd`.

import { ColumnKeys, groupsOfColumns, guessesOf } from "./columns.js";
import { hex, Sha256 } from "./hashes.js";
import { Keys, mixed, permutations, RowKeys } from "./lines.js";
import { matricesOf, MIN_SIDE, sidesOf } from "./matrices.js";
import { joined, packed, payload } from "./payloads.js";
import { Unreadable, quoted } from "./safetensors.js";
import { PlaceScales } from "./scales.js";
import { hasFewValues, isStructured, LineSample } from "./tables.js";
import { Room } from "./values.js";

const REASONS = [null, "short", "structured", "few_values", "no_keys"];
const MIN_KEYS = 4096;
const MAX_KEYS = 1 << 16;
const KEYS_A_TENSOR = 32;
const MOST_REPEATED = 8;
const SIGNATURE = permutations(128);

/** The MinHash of the sets of a tensor's rows, of which the lowest byte of each value stays. */
class TensorSignature {
  #least = new Uint32Array(128).fill(0xffffffff);
  #isEmpty = true;

  take = (place) => {
    const least = this.#least, { factors, offsets } = SIGNATURE, x = mixed(place | 0);
    this.#isEmpty = false;
    for (let j = 0; j < 128; j += 1) {
      const value = (Math.imul(factors[j], x) + offsets[j]) >>> 0;
      if (value < least[j]) least[j] = value;
    }
  };

  finish() {
    return this.#isEmpty ? null : Uint8Array.from(this.#least, (value) => value & 255);
  }
}

/** Keys of several parts, ascending; those of equal lines stay as many as they are. */
function sorted(parts) {
  const all = new BigUint64Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all.sort();
}

/** One of each of ascending keys, but for those that are there more than so many times. */
function distinct(keys, most = Infinity) {
  const found = new BigUint64Array(keys.length);
  let kept = 0;
  for (let begin = 0, end; begin < keys.length; begin = end) {
    for (end = begin + 1; end < keys.length && keys[end] === keys[begin]; ) end += 1;
    if (end - begin <= most) found[kept++] = keys[begin];
  }
  return found.slice(0, kept);
}

/** The keys of a matrix's rows and columns, or why it has none. */
function readMatrix(matrix, name, members, first, took) {
  const { rows, columns } = matrix, sample = new LineSample(rows, columns), scales = new PlaceScales(rows, columns);
  matrix.stretches((begin, count, values) => {
    scales.add(begin, count, values);
    sample.add(begin, count, values);
    took(values.length / 2);
  });
  if (!scales.isFinite) throw new Unreadable(`tensor ${quoted(name)} has values that are NaN or infinite: leave it out, or mend it`);
  if (isStructured(sample)) return { reason: "structured" };
  if (hasFewValues(sample)) return { reason: "few_values" };
  const { ofColumns } = scales, ofRows = new RowKeys(rows, scales.ofRows, members);
  const found = new Keys(columns), guesses = guessesOf(sample, ofColumns);
  const waiting = groupsOfColumns(Int32Array.from({ length: columns }, (_, column) => column), rows);
  for (let round = 0; round < waiting.length; round += 1) {
    const group = new ColumnKeys(waiting[round], ofColumns, guesses);
    matrix.stretches((begin, count, values) => {
      group.take(begin, count, values, columns);
      if (round) return;
      ofRows.take(begin, count, values, first);
      took(values.length / 2);
    });
    const missed = group.finish(found, guesses);
    for (const column of missed) guesses[column] = 0;
    waiting.push(...groupsOfColumns(Int32Array.from(missed), rows));
  }
  return { reason: "no_keys", rows: ofRows.keys, columns: found };
}

/** The lines of a tensor: its distinct keys by length, or a reason why it has none. */
function readTensor(source, tensor, room, took) {
  const signature = new TensorSignature(), [height, width] = sidesOf(tensor.shape), parts = { rows: [], columns: [] };
  let reason = "short", first = 0;
  for (const matrix of matricesOf(source, tensor, room)) {
    const found = readMatrix(matrix, tensor.name, signature.take, first, took);
    ({ reason } = found);
    if (found.rows) {
      parts.rows.push(found.rows);
      parts.columns.push(found.columns);
    }
    first += height * width;
  }
  const keys = new Map();
  for (const [length, held] of [[width, parts.rows], [height, parts.columns]]) {
    const some = distinct(sorted(held.map((each) => each.held)), MOST_REPEATED);
    if (some.length) keys.set(length, keys.has(length) ? distinct(sorted([keys.get(length), some])) : some);
  }
  return { shape: tensor.shape, names: [tensor.name], keys, reason: keys.size ? null : reason, signature: keys.size ? signature.finish() : null };
}

/** What equal tensors have in common: their shape and all keys. */
function identityOf({ shape, keys }) {
  const digest = new Sha256();
  for (const [length, held] of keys) digest.add(packed([8, length])).add(new Uint8Array(held.buffer));
  return `${shape} ${hex(digest.result())}`;
}

function kept(keys, scale) {
  const limit = (2n ** 64n - 1n) / scale;
  let low = 0, high = keys.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (keys[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The binary logarithm of the least scale that leaves few enough keys, and those with their tensors. */
function sampled(tensors) {
  const all = sorted(tensors.flatMap(({ keys }) => [...keys.values()]));
  const most = Math.min(Math.max(MIN_KEYS, KEYS_A_TENSOR * tensors.length), MAX_KEYS);
  let scale = 0;
  while (kept(all, 2n ** BigInt(scale)) > most) scale += 1;
  const entries = [], limit = (2n ** 64n - 1n) / 2n ** BigInt(scale);
  tensors.forEach(({ keys }, owner) => {
    for (const [length, held] of keys) for (let place = 0; place < held.length && held[place] <= limit; place += 1) entries.push({ key: held[place], owner, length });
  });
  entries.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : a.owner - b.owner));
  return { scale, entries };
}

/** How many distinct lines of each length the checkpoint has, by ascending length. */
function totals(tensors) {
  const lengths = [...new Set(tensors.flatMap(({ keys }) => [...keys.keys()]))].sort((a, b) => a - b);
  return lengths.map((length) => distinct(sorted(tensors.flatMap(({ keys }) => keys.get(length) ?? []))).length);
}

function shorterAndLonger(shape) {
  const [shorter, longer] = sidesOf(shape).sort((a, b) => a - b);
  return shorter >= MIN_SIDE ? [shorter, longer] : [0, 0];
}

/** The lowest byte of each number, then the second lowest of each, and so on. */
function planes(numbers, width) {
  const bytes = new Uint8Array(width * numbers.length);
  numbers.forEach((number, place) => {
    for (let plane = 0; plane < width; plane += 1) bytes[plane * numbers.length + place] = Number((number >> BigInt(8 * plane)) & 255n);
  });
  return bytes;
}

function columnsOf(tensors, entries, names, lines) {
  const table = tensors.map(({ names: own, shape, keys, reason, signature }) => {
    const [shorter, longer] = shorterAndLonger(shape), counted = (length) => keys.get(length)?.length ?? 0;
    const said = [[4, own.length], [1, shape.length], [1, REASONS.indexOf(reason)], [1, signature ? 1 : 0], [1, 0]];
    return packed(...said, [8, counted(shorter)], [8, longer === shorter ? 0 : counted(longer)]);
  });
  const steps = entries.map(({ key }, place) => key - (place ? entries[place - 1].key : 0n));
  const width = Math.ceil((tensors.length - 1).toString(2).length / 8);
  const longer = new Uint8Array(Math.ceil(entries.length / 8));
  entries.forEach(({ owner, length }, place) => {
    if (length !== shorterAndLonger(tensors[owner].shape)[0]) longer[place >> 3] |= 1 << (place & 7);
  });
  return [
    ...table,
    ...names.map((name) => packed([2, name.length])),
    ...names,
    ...tensors.flatMap(({ shape }) => shape.map((side) => packed([8, side]))),
    ...tensors.flatMap(({ signature }) => (signature ? [signature] : [])),
    ...lines.map((count) => packed([8, count])),
    planes(steps, 8),
    planes(entries.map(({ owner }) => BigInt(owner)), tensors.length > 1 ? width : 0),
    longer,
  ];
}

function encoded(tensors) {
  const { scale, entries } = sampled(tensors), lines = totals(tensors);
  const names = tensors.flatMap((tensor) => tensor.names.map((name) => new TextEncoder().encode(name)));
  const counts = [tensors.length, names.length, names.reduce((size, name) => size + name.length, 0), tensors.reduce((size, { shape }) => size + shape.length, 0)];
  counts.push(tensors.filter(({ signature }) => signature).length, lines.length, entries.length);
  const start = joined([Uint8Array.of(77, 75, 70, 80), packed([1, 1], [1, 1], [1, scale], [1, 0], ...counts.map((count) => [4, count]))]);
  const content = joined(columnsOf(tensors, entries, names, lines));
  const digest = new Sha256().add(start).add(content).result();
  return { bytes: payload(joined([start, digest]), content), digest: `sha256:${hex(digest)}`, keys: entries.length, scale: 2 ** scale };
}

/**
 * The fingerprint of tensors in their order.
 * @param source as of `valuesOf`.
 * @param {(values: number) => void} took is called with the values that are read, each counted once.
 */
export function fingerprintOf(source, tensors, took) {
  const room = new Room(), found = [], known = new Map();
  for (const tensor of tensors) {
    const lines = readTensor(source, tensor, room, took);
    if (lines.reason === "short") took(tensor.size);
    const identity = lines.keys.size ? identityOf(lines) : null;
    const same = identity && known.get(identity);
    if (same) same.names.push(tensor.name);
    else {
      if (identity) known.set(identity, lines);
      found.push(lines);
    }
  }
  return encoded(found);
}
