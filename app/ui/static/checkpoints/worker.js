// Reads one checkpoint, beside the page: {task, ...} comes in, and {done} or {failed} goes out, with
// {share} on the way. The file never leaves this thread, and this thread asks nothing of a network.

import { fingerprintOf } from "./fingerprint.js";
import { readGguf } from "./gguf.js";
import { byCodePoint } from "./layouts.js";
import { parametersOf, readSafetensors, Unreadable } from "./safetensors.js";
import { defaultK } from "./selection.js";
import { supportOf } from "./support.js";

const MAX_FILE_BYTES = 2 ** 31;
const SAID_EVERY_MS = 100;

const reader = new FileReaderSync();
let source = null, tensors = [];

function sourceOf(file) {
  const read = (begin, end) => {
    try {
      return new Uint8Array(reader.readAsArrayBuffer(file.slice(begin, end)));
    } catch {
      throw new Unreadable("it can no longer be read: was it moved or changed meanwhile?");
    }
  };
  return { size: file.size, read };
}

const count = (some) => some.reduce((sum, { size }) => sum + size, 0);

/** What counts values, and tells the page which share of all is read. */
function progress(total) {
  let read = 0, said = 0;
  return (values) => {
    read += values;
    if (performance.now() - said < SAID_EVERY_MS) return;
    said = performance.now();
    postMessage({ share: Math.min(1, read / total) });
  };
}

const TASKS = {
  /** `forms` of the architectures of GGUF. */
  open({ file, forms }) {
    if (file.size > MAX_FILE_BYTES) throw new Unreadable("it has more than 2 GiB, the most that is read in a browser: the command reads it");
    source = sourceOf(file);
    const isGguf = /\.gguf$/i.test(file.name);
    tensors = (isGguf ? readGguf(source, forms) : parametersOf(readSafetensors(source))).sort((a, b) => byCodePoint(a.name, b.name));
    const dtypes = [...new Set(tensors.map(({ dtype }) => dtype))];
    return { tensors: tensors.map(({ name, shape }) => ({ name, shape })), parameters: count(tensors), dtypes };
  },

  /** `names` of the tensors in the order of a space. */
  support({ names, k }) {
    const named = new Map(tensors.map((tensor) => [tensor.name, tensor]));
    const chosen = names.map((name) => named.get(name));
    const parameters = count(chosen);
    return supportOf(source, chosen, Math.min(k ?? defaultK(parameters), parameters), progress(3 * parameters));
  },

  fingerprint() {
    return fingerprintOf(source, tensors, progress(count(tensors)));
  },
};

onmessage = ({ data }) => {
  try {
    postMessage({ done: TASKS[data.task](data) });
  } catch (error) {
    postMessage({ failed: error instanceof Unreadable ? error.message : `it cannot be read here: ${error.message}` });
  }
};
