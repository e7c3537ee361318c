// What a dropped file is: by its name, or by its first bytes. Of a checkpoint the header alone is read.

const SUPPORT = "application/vnd.modelkin.support";
const MAX_JSON_BYTES = 1 << 20;
const MAX_HEADER_BYTES = 16 << 20;

export const KINDS = {
  origin: { type: "origin" },
  checkpoint: { type: "checkpoint", text: "It stays where it is. Run this in its folder, where modelkin is installed." },
};

const sent = (where, type, text) => ({ type: where, text, send: { where, type } });
const refused = (text) => ({ type: "refused", refused: text });

/** What begins with these bytes, by the kind of space. */
const MAGIC = {
  MKSP: sent("supports", SUPPORT, "A support: it is sent as it is."),
  MKSG: sent("signatures", "application/vnd.modelkin.signature", "A signature: it is sent as it is."),
  MKSB: sent("subspaces", "application/vnd.modelkin.subspace", "A fingerprint of data: it is sent as it is."),
  "\x93NUM": sent("subspaces", "application/x-npy", "A basis of data: it is sent as it is."),
};
const ROARING = sent("supports", "application/vnd.roaring", "A Roaring bitmap of indices: it is sent as it is.");

const OF_SUPPORTS = {
  MKSB: "This is a fingerprint of data, and this space has supports of models: choose a space of fingerprints.",
  "\x93NUM": "The service takes no indices as .npy. Save them with modelkin.Support.from_indices(indices, num_parameters).to_bytes() as .mksp.",
};
const OF_SUBSPACES = "This is of a model's parameters, and this space has fingerprints of data: choose a space of supports.";

const BY_NAME = [
  [/-\d{5}-of-\d{5}\.safetensors$/i, () => refused("This is a shard of a checkpoint. Choose model.safetensors.index.json instead: the command reads all shards beside it.")],
  [/-(?!0*1-of)\d{5}-of-\d{5}\.gguf$/i, () => refused("This is a part of a model. Choose its first part instead, which ends in -00001-of-...: the command reads all parts beside it.")],
  [/\.safetensors(\.index\.json)?$|\.gguf$/i, checkpoint],
  [/\.origin\.json$/i, () => KINDS.origin],
  [/\.(bin|pt|pth|ckpt|pkl|pickle|joblib)$/i, () => refused("A pickle may run whatever its maker wants, so nothing here opens one. Save the model as .safetensors.")],
  [/\.(onnx|h5|keras|msgpack|tflite)$/i, () => refused("This format is not read. Save the model as .safetensors.")],
];

function checkpoint(about) {
  if (about.kind !== "supports") return refused(OF_SUBSPACES);
  if ([null, "weight", "delta"].includes(about.importance)) return KINDS.checkpoint;
  return refused(`The supports of this space are selected by ${about.importance}, which a checkpoint does not have: compute the support where the model is trained, and drop the file of its to_bytes().`);
}

/** What a file is, and how it is sent, or why not. */
export async function classify(file, about) {
  if (!file.size) return refused("It is empty, or a folder.");
  for (const [pattern, kind] of BY_NAME) {
    if (!pattern.test(file.name)) continue;
    const found = kind(about);
    const fault = found === KINDS.checkpoint && /\.safetensors$/i.test(file.name) ? await faultOf(file) : null;
    return fault ? refused(fault) : found;
  }
  let first;
  try {
    first = new Uint8Array(await file.slice(0, 8).arrayBuffer());
  } catch {
    return refused("It cannot be read: is it a folder?");
  }
  const magic = String.fromCharCode(...first.slice(0, 4));
  const known = MAGIC[magic] ?? (isRoaring(first, file.name) ? ROARING : null);
  if (known) {
    if (about.kind === "subspaces") return known.send.where === "subspaces" ? known : refused(OF_SUBSPACES);
    return OF_SUPPORTS[magic] ? refused(OF_SUPPORTS[magic]) : known;
  }
  if (magic === "MKDL") return refused("A patch changes a stored support: send it with PATCH. The Python client's put_support makes its own.");
  if (magic === "MKSK") return refused("A sketch goes beside a signature: modelkin push --signature-only sends both.");
  if (/\.json$/i.test(file.name)) return ofJson(file, about);
  return refused("This is not a support: choose a file that modelkin support wrote, or a .safetensors file.");
}

/** Why a safetensors file is not whole, by its header; null where it is. */
async function faultOf(file) {
  const again = "it is truncated, or no safetensors file. Get it again.";
  try {
    const first = new DataView(await file.slice(0, 8).arrayBuffer());
    const length = first.byteLength < 8 ? Infinity : Number(first.getBigUint64(0, true));
    if (length > file.size - 8) return `Its header is longer than the file: ${again}`;
    if (length > MAX_HEADER_BYTES) return null; // the command reads it
    const header = JSON.parse(await file.slice(8, 8 + length).text());
    const end = Object.values(header).reduce((most, each) => Math.max(most, each?.data_offsets?.[1] ?? 0), 0);
    return end > file.size - 8 - length ? `Its tensors end at byte ${8 + length + end}, the file at ${file.size}: ${again}` : null;
  } catch {
    return `Its header cannot be read: ${again}`;
  }
}

function isRoaring(first, name) {
  const cookie = first[0] | (first[1] << 8);
  return cookie === 12346 || (cookie === 12347 && /\.roaring$|\.bin$/i.test(name));
}

async function ofJson(file, about) {
  if (about.kind !== "supports") return sent("subspaces", "application/json", "It is sent as it is.");
  if (file.size > MAX_JSON_BYTES) return refused("JSON is for small supports, up to 1 MiB: write it as .mksp.");
  let value;
  try {
    value = JSON.parse(await file.text());
  } catch (error) {
    return refused(`This is not JSON: ${error.message}`);
  }
  if (Array.isArray(value?.indices)) return sent("supports", "application/json", "A support as JSON: it is sent as it is.");
  if (value?.scheme) return sent("signatures", "application/json", "A signature as JSON: it is sent as it is.");
  return refused('This JSON is not a support: one is {"indices": [3, 17, 1024]}.');
}

/**
 * What the file beside a support says of it, as parameters of the upload.
 *
 * It is left out if it is of other bytes. Another order of tensors is refused here, by its first
 * difference; the kind of importance is for the service to compare.
 */
export async function originOf(file, origins, about) {
  const beside = origins.get(file.name);
  if (!beside) return [];
  let said;
  try {
    said = JSON.parse(await beside.text());
  } catch {
    return [];
  }
  const header = new Uint8Array(await file.slice(24, 56).arrayBuffer());
  const digest = `sha256:${[...header].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  if (said?.digest !== digest) return [];
  const tensors = (said.origin?.layout ?? []).map((tensor) => [tensor.name, tensor.shape]);
  if (tensors.length && about.tensors.length) {
    const place = tensors.findIndex((tensor, each) => JSON.stringify(tensor) !== JSON.stringify(about.tensors[each]));
    if (place >= 0 || tensors.length !== about.tensors.length) {
      const named = tensors[place]?.[0] ?? about.tensors[tensors.length]?.[0];
      throw new Error(`its tensors are not those of this space, or in another order: the first that differs is ${named}`);
    }
  }
  const [kind, base] = said.origin?.importance ?? [];
  return [...(kind ? [["importance", kind]] : []), ...(kind && base ? [["base", base]] : [])];
}
