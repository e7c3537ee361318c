// The header of a safetensors file, read as strictly as by the SDK. No tensor is read here.
//
// Source: the format's description (https://github.com/huggingface/safetensors#format).

import { sizeOf } from "./layouts.js";

/** The bytes of a value of each type of floats that is read here. */
export const FLOATS = { F64: 8, F32: 4, F16: 2, BF16: 2 };
const OTHERS = { BOOL: 1, U8: 1, I8: 1, I16: 2, U16: 2, I32: 4, U32: 4, I64: 8, U64: 8 };
const MAX_HEADER_BYTES = 16 << 20;
const MAX_INTEGER_SHARE = 0.1;
const SAID = 80;

/** What is wrong with a file, in a sentence for people. */
export class Unreadable extends Error {}

export const quoted = (text) => JSON.stringify(text.length > SAID ? `${text.slice(0, SAID)}…` : text);
const COMMAND = "the command reads it";

/** The words for a file that begins as none of weights, by its first bytes. */
const BEGINNINGS = [
  [/^PK\x03\x04/, "it is a zip archive, as torch.save writes it around a pickle, and a pickle may run whatever its maker wants: save the model as .safetensors"],
  [/^\x80[\x02-\x05]/, "it is a pickle, which may run whatever its maker wants: save the model as .safetensors"],
  [/^version https:\/\/git-lfs/, "it is a pointer of Git LFS in place of the file: git lfs pull gets the file itself"],
  [/^\s*<(!doctype|html)/i, "it is a web page in place of the file: get it again"],
  [/^GGUF/, "it is a GGUF file: its name has to end in .gguf"],
  [/^\x89HDF/, "it is an HDF5 file: save the model as .safetensors"],
];

function beginningOf(source) {
  const bytes = source.read(0, Math.min(source.size, 64));
  return String.fromCharCode(...bytes);
}

function lengthOf(source) {
  const beginning = beginningOf(source);
  for (const [pattern, words] of BEGINNINGS) if (pattern.test(beginning)) throw new Unreadable(words);
  if (source.size < 10) throw new Unreadable(`it has ${source.size} bytes, a safetensors file has at least 10`);
  const view = new DataView(source.read(0, 8).buffer);
  const length = view.getUint32(0, true) + 2 ** 32 * view.getUint32(4, true);
  if (length < 2 || length > 100e6) throw new Unreadable("its first 8 bytes are no length of a header: it is not a safetensors file");
  if (length > source.size - 8) {
    throw new Unreadable(`its first 8 bytes declare a header of ${length} bytes, ${source.size - 8} follow: it is truncated, or not a safetensors file`);
  }
  if (length > MAX_HEADER_BYTES) throw new Unreadable(`its header has ${length} bytes, at most ${MAX_HEADER_BYTES} are read here: ${COMMAND}`);
  return length;
}

const isCount = (value) => Number.isSafeInteger(value) && value >= 0;

function entry(name, said, begin) {
  // eslint-disable-next-line no-control-regex
  if (/[\x00-\x1f\x7f-\x9f]/.test(name)) throw new Unreadable(`the name of tensor ${quoted(name)} has a control character`);
  const { dtype, shape, data_offsets: offsets } = said ?? {};
  if (!Array.isArray(shape) || !Array.isArray(offsets) || offsets.length !== 2 || Object.keys(said).length !== 3) {
    throw new Unreadable(`tensor ${quoted(name)} is not described by dtype, shape, data_offsets`);
  }
  const width = FLOATS[dtype] ?? OTHERS[dtype];
  if (width === undefined) throw new Unreadable(`tensor ${quoted(name)} has the type ${quoted(String(dtype))}, which is not read here: ${COMMAND}`);
  if (!shape.every(isCount)) throw new Unreadable(`tensor ${quoted(name)} has no list of counts as its shape`);
  const [first, last] = offsets;
  if (!isCount(first) || !isCount(last) || first > last) throw new Unreadable(`tensor ${quoted(name)} has no ascending pair as data_offsets`);
  const size = sizeOf(shape);
  if (size * width !== last - first) {
    throw new Unreadable(`tensor ${quoted(name)}, ${dtype} of shape [${shape}], takes ${size * width} bytes, its data_offsets span ${last - first}`);
  }
  return { name, dtype, shape, size, begin: begin + first, end: begin + last };
}

function requireNoGaps(entries, begin, size) {
  let at = begin, last = "the header";
  for (const each of entries.toSorted((a, b) => a.begin - b.begin || a.end - b.end)) {
    if (each.begin !== at) throw new Unreadable(`tensor ${quoted(each.name)} ${each.begin < at ? "overlaps" : "leaves a gap after"} ${last}`);
    [at, last] = [each.end, quoted(each.name)];
  }
  if (at !== size) {
    throw new Unreadable(`its tensors end at byte ${at}, the file at ${size}: it is ${at > size ? "truncated: get it again" : "followed by other bytes"}`);
  }
}

/** The tensors of a file in no order of meaning, with the places of their bytes. */
export function readSafetensors(source) {
  const length = lengthOf(source);
  const begin = 8 + length;
  let header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(source.read(8, begin)));
  } catch {
    throw new Unreadable("its header is not valid JSON: it is not a safetensors file, or damaged");
  }
  if (typeof header !== "object" || header === null || Array.isArray(header)) throw new Unreadable("its header is no map of tensors: it is not a safetensors file");
  delete header.__metadata__;
  const entries = Object.entries(header).map(([name, said]) => entry(name, said, begin));
  requireNoGaps(entries, begin, source.size);
  return entries;
}

// What is in the name of a tensor of an adapter, or of a scheme of quantisation, and of no other.
const ADAPTER = /(^|\.)(lora_(A|B|a|b|E|down|up|mid|embedding_[AB]|magnitude_vector|linear_layer)(\.|$)|hada_[wt]|lokr_[wt]|dora_scale|boft_|oft_|ia3_l|vera_lambda_|hra_u|fourierft_|randlora_|vblora_|gralora_|delora_|tinylora_|waveft_)|[._]lora\d?\.(down|up)\.|^(module\.)?(lora_(unet|transformer|prior|te[123]?)|lycoris)_|^lora_controlnet$/;
const QUANTISED = /(\.|_)(qweight|qzeros|qscale_weight|scales|SCB|codebooks|centroids|W_q|Qidxs|q_weight|trellis|quant_map|absmax|comfy_quant|bitmask|pre_quant_scale|wscales|weight_scales?|scale_weight|weight_scale_inv|scale_inv|weight_packed|weight_shape)$/;

/** The tensors of floats, where the file is a plain checkpoint: others need what lies beside it. */
export function parametersOf(entries) {
  for (const { name } of entries) {
    if (ADAPTER.test(name)) throw new Unreadable(`it is an adapter, by its tensor ${quoted(name)}, which counts beside its base: ${COMMAND}`);
    if (QUANTISED.test(name)) throw new Unreadable(`it is quantised, by its tensor ${quoted(name)}: ${COMMAND}`);
  }
  const floats = entries.filter(({ dtype }) => dtype in FLOATS);
  const bytes = floats.reduce((sum, { begin, end }) => sum + end - begin, 0);
  if (!bytes) throw new Unreadable("it holds no tensor of floats, and so no parameters");
  const isList = ({ dtype, shape }) => /64$/.test(dtype) && shape.length < 2;
  const codes = entries.filter((each) => !(each.dtype in FLOATS) && each.dtype !== "BOOL" && !isList(each));
  const packed = codes.reduce((sum, { begin, end }) => sum + end - begin, 0);
  if (packed > MAX_INTEGER_SHARE * (packed + bytes)) throw new Unreadable(`${Math.round((100 * packed) / (packed + bytes))}% of its bytes are integers: it looks quantised; ${COMMAND}`);
  return floats;
}
