// A support as the service takes it, `application/vnd.modelkin.support`.

import { hex, Sha256 } from "./hashes.js";
import { joined, packed, payload } from "./payloads.js";
import { selectLargest } from "./selection.js";

const MAGIC = [77, 75, 83, 80];

/** The support of |w|: its payload, K, M and digest. Arguments are those of `selectLargest`. */
export function supportOf(source, tensors, k, took) {
  const found = selectLargest(source, tensors, k, took);
  const content = joined(found.stream);
  const digest = new Sha256().add(packed([8, found.parameters], [8, found.k])).add(content).result();
  const header = joined([Uint8Array.from(MAGIC), packed([1, 1], [1, 1], [2, 0], [8, found.parameters], [8, found.k]), digest]);
  return { bytes: payload(header, content), k: found.k, parameters: found.parameters, digest: `sha256:${hex(digest)}` };
}
