// GGUF files: their header, read as strictly as by the SDK, and their tensors under the names and in
// the order of Hugging Face's files.
//
// Source: the format's description (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

import { TYPES } from "./blocks.js";
import { sizeOf } from "./layouts.js";
import { FLOATS, Unreadable, quoted } from "./safetensors.js";

const MAX_HEADER_BYTES = 1 << 26;
const MAX_KEYS = 1 << 13;
const MAX_TENSORS = 1 << 16;
const MAX_TEXT = 1 << 10;
const MAX_NUMBERS = 512;
const PIECE = 1 << 20;
const STRING = 8, ARRAY = 9;
const WIDTHS = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
const COMMAND = "the command reads it";
const ROPE = /^(?:.*\.)?rope_(?:freqs|factors_long|factors_short)\.weight$/;
const QUERIES = /^blk\.(\d{1,9})\.attn_(q|k|qkv)\.(?:weight|bias)$/;

/** Reads a header from its beginning on: it takes no more memory than a piece of the file. */
class Header {
  #piece = new DataView(new ArrayBuffer(0));
  #from = 0;

  constructor(source) {
    Object.assign(this, { source, at: 0 });
  }

  /** A view of the next bytes, which are passed. */
  take(count) {
    this.skip(count);
    const begin = this.at - count;
    if (begin < this.#from || this.at > this.#from + this.#piece.byteLength) {
      const bytes = this.source.read(begin, Math.min(this.source.size, begin + Math.max(PIECE, count)));
      [this.#piece, this.#from] = [new DataView(bytes.buffer), begin];
    }
    return new DataView(this.#piece.buffer, begin - this.#from, count);
  }

  skip(count) {
    this.at += count;
    if (this.at > this.source.size) throw new Unreadable("it ends within its header: it is truncated, get it again");
    if (this.at > MAX_HEADER_BYTES) throw new Unreadable(`its header has more than ${MAX_HEADER_BYTES} bytes, the most that are read`);
  }

  small() {
    return this.take(4).getUint32(0, true);
  }

  large() {
    const view = this.take(8);
    return view.getUint32(0, true) + 2 ** 32 * view.getUint32(4, true);
  }

  text(most, what) {
    const length = this.large();
    if (length > most) throw new Unreadable(`${what} has ${length} bytes, at most ${most} are read`);
    return this.#decoded(length);
  }

  #decoded(length) {
    const view = this.take(length);
    return new TextDecoder().decode(new Uint8Array(view.buffer, view.byteOffset, length));
  }

  #numbers(kind, count) {
    const width = WIDTHS[kind], view = this.take(count * width);
    return Array.from({ length: count }, (_, place) => {
      const at = place * width;
      if (width === 1) return view.getUint8(at);
      if (kind === 4) return view.getUint32(at, true);
      if (kind === 5) return view.getInt32(at, true);
      return kind === 10 ? view.getUint32(at, true) + 2 ** 32 * view.getUint32(at + 4, true) : null;
    });
  }

  /** The value of a key: a number, a short text, a short list; else it is passed over. */
  value(kind, key) {
    if (kind === STRING) {
      const length = this.large();
      if (length <= MAX_TEXT) return this.#decoded(length);
      return this.skip(length);
    }
    const isList = kind === ARRAY, of = isList ? this.small() : kind, count = isList ? this.large() : 1;
    if (of === ARRAY) throw new Unreadable(`${quoted(key)} is an array of arrays, which no reader of GGUF takes`);
    if (of === STRING) {
      for (let each = 0; each < count; each += 1) this.skip(this.large());
      return null;
    }
    if (!WIDTHS[of]) throw new Unreadable(`${quoted(key)} is of type ${of}, which GGUF does not have`);
    if (count > MAX_NUMBERS) return this.skip(count * WIDTHS[of]);
    const found = this.#numbers(of, count);
    return isList ? found : found[0];
  }

  tensor() {
    const name = this.text(256, "the name of a tensor"), dimensions = this.small();
    if (dimensions > 4) throw new Unreadable(`tensor ${quoted(name)} has ${dimensions} dimensions, GGUF has at most 4`);
    const sides = Array.from({ length: dimensions }, () => this.large());
    const number = this.small(), type = TYPES.get(number), offset = this.large(), size = sizeOf(sides);
    if (!type) throw new Unreadable(`tensor ${quoted(name)} is of type ${number} of GGUF, which is not read here: ${COMMAND}`);
    if (!Number.isSafeInteger(size) || !Number.isSafeInteger(offset)) throw new Unreadable(`tensor ${quoted(name)} has more elements than a file can hold`);
    if (sides.length && sides[0] % type.size) throw new Unreadable(`tensor ${quoted(name)} has rows that blocks of ${type.size} do not fill`);
    return { name, shape: sides.reverse(), size, type, offset };
  }
}

function place(tensors, after, alignment, fileSize) {
  if (!(alignment > 0 && alignment <= 65536) || alignment & (alignment - 1)) throw new Unreadable("its general.alignment has to be a power of two");
  const aligned = (at) => Math.ceil(at / alignment) * alignment, start = aligned(after), names = new Set();
  let at = start, last = "the header", end = after;
  for (const each of tensors.sort((a, b) => a.offset - b.offset || a.size - b.size)) {
    each.begin = start + each.offset;
    if (names.has(each.name)) throw new Unreadable(`it has tensor ${quoted(each.name)} twice`);
    if (each.begin !== at) throw new Unreadable(`tensor ${quoted(each.name)} ${each.begin < at ? "overlaps" : "leaves a gap after"} ${last}`);
    names.add(each.name);
    each.end = end = each.begin + (each.size / each.type.size) * each.type.bytes;
    [at, last] = [aligned(end), quoted(each.name)];
  }
  if (end > fileSize || fileSize > Math.max(at, end)) {
    throw new Unreadable(`its tensors end at byte ${end}, the file at ${fileSize}: it is ${end > fileSize ? "truncated: get it again" : "followed by other bytes"}`);
  }
}

function readHeader(source) {
  const header = new Header(source);
  if (source.size < 24 || header.small() !== 0x46554747) throw new Unreadable("it is not a GGUF file");
  const version = header.small();
  if (version !== 2 && version !== 3) throw new Unreadable(`it is GGUF of version ${version}, and versions 2 and 3 are read: convert the model again`);
  const count = header.large(), keys = header.large(), metadata = new Map();
  if (count > MAX_TENSORS || keys > MAX_KEYS) throw new Unreadable(`it declares ${count} tensors and ${keys} keys, more than are read`);
  for (let each = 0; each < keys; each += 1) {
    const key = header.text(512, "a key of its metadata");
    if (metadata.has(key)) throw new Unreadable(`its metadata has ${quoted(key)} twice`);
    metadata.set(key, header.value(header.small(), key));
  }
  const tensors = Array.from({ length: count }, () => header.tensor());
  place(tensors, header.at, metadata.get("general.alignment") ?? 32, source.size);
  return { metadata, tensors };
}

/** The name in Hugging Face's files, `{expert}` in the place of a number; null where none is known. */
function nameOf(name, form) {
  if (form.left.some((ending) => name.endsWith(ending))) return null;
  const [, whole, suffix = ""] = /^(.+?)(\.weight|\.bias|\.scale)?$/s.exec(name) ?? [null, name];
  const block = /^(.*\bblk\.)(\d{1,9})(\..*)$/s.exec(name);
  const behind = block && (suffix && block[3].endsWith(suffix) ? block[3].slice(0, -suffix.length) : block[3]);
  const template = form.names[block ? `${block[1]}{bid}${behind}` : whole];
  if (template === undefined) return null;
  const full = (template + suffix).replace(/e_score_correction\.bias$/, "e_score_correction_bias").replaceAll(".experts.", ".experts.{expert}.");
  return block ? full.replaceAll("{bid}", block[2]) : full;
}

/** The rows of half a head of q or k, which the file interleaves; null for other tensors. */
function halfOf(tensor, model) {
  const found = QUERIES.exec(tensor.name);
  if (!found || !(found[2] === "qkv" ? model.form.grouped : model.form.rotary)) return null;
  if (found[2] === "qkv") throw new Unreadable(`the rows of ${quoted(tensor.name)} are in an order of its architecture that is not read here: ${COMMAND}`);
  const said = (kind) => {
    const value = model.metadata.get(`${model.name}.attention.${kind}`);
    return Array.isArray(value) ? value[found[1]] : value;
  };
  const heads = (found[2] === "k" ? said("head_count_kv") : null) ?? said("head_count"), rows = tensor.shape[0];
  if (!(heads >= 1)) throw new Unreadable(`it has no usable ${model.name}.attention.head_count, which says in which order its rows of q and k are`);
  if (rows % (2 * heads) || rows / heads / 2 < 8) throw new Unreadable(`tensor ${quoted(tensor.name)} has ${rows} rows, which are not those of ${heads} heads`);
  return rows / heads / 2;
}

function* named(tensor, model) {
  const name = model.form ? nameOf(tensor.name, model.form) : null;
  if (name === null) {
    yield { ...tensor, dtype: tensor.type.name };
    return;
  }
  if (tensor.shape.length === 2 && model.form.transposed.some((ending) => tensor.name.endsWith(ending))) throw new Unreadable(`tensor ${quoted(tensor.name)} is transposed, which is not read here: ${COMMAND}`);
  const shift = model.form.shifted.some((ending) => tensor.name.endsWith(ending)) ? 1 : 0, half = halfOf(tensor, model);
  const changed = { dtype: tensor.type.name, shift, half };
  if (!name.includes("{expert}")) {
    yield { ...tensor, ...changed, name };
    return;
  }
  const [experts, ...shape] = tensor.shape, bytes = (tensor.end - tensor.begin) / experts;
  if (!shape.length || !experts) throw new Unreadable(`tensor ${quoted(tensor.name)} holds no stack of experts`);
  for (let expert = 0; expert < experts; expert += 1) {
    const begin = tensor.begin + expert * bytes;
    yield { ...tensor, ...changed, name: name.replace("{expert}", expert), shape, size: sizeOf(shape), begin, end: begin + bytes };
  }
}

/**
 * The tensors of floats of a file.
 * @param forms what is known of each architecture, as `modelkin.checkpoints.gguf.forms` tells it.
 */
export function readGguf(source, forms) {
  const { metadata, tensors } = readHeader(source), name = metadata.get("general.architecture"), kind = metadata.get("general.type");
  if ((metadata.get("split.count") ?? 1) > 1) throw new Unreadable("it is a part of a model: the command reads all parts");
  for (const said of [kind, name]) if (["imatrix", "adapter", "controlvector"].includes(said)) throw new Unreadable(`it is no model: it says that it is ${quoted(said)}`);
  if (typeof name !== "string") throw new Unreadable("its metadata has no general.architecture");
  const model = { name, metadata, form: Object.hasOwn(forms, name) ? forms[name] : null }, names = new Set();
  const found = tensors.filter((each) => !ROPE.test(each.name)).flatMap((each) => [...named(each, model)]);
  for (const each of found) {
    if (names.has(each.name)) throw new Unreadable(`it has tensor ${quoted(each.name)} twice`);
    names.add(each.name);
  }
  const floats = found.filter(({ dtype, type }) => dtype in FLOATS || type.read);
  if (!floats.some(({ size }) => size)) throw new Unreadable("it holds no tensor of floats, and so no parameters");
  return floats;
}
