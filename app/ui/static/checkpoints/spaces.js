// The spaces in which a checkpoint has a place: those of the same tensors, in whatever order.

import { call } from "../api.js";
import { nameInPath, rooted } from "../dom.js";
import { inOrder, sizeOf, without } from "./layouts.js";

const MOST_PAGES = 20;
const MOST_SPACES = 8;
const path = (name) => rooted(`/v1/spaces/${encodeURIComponent(name)}`);

/** Why supports of this page do not belong into a space; null where they do. */
function against({ importance, blinding, ordered }) {
  if (blinding) return "its supports are blinded under a key, which is not for a browser";
  if (ordered) return "its supports have the order of their indices";
  if (!["weight", "unstated"].includes(importance.kind)) return `its supports are selected by ${importance.kind}`;
  return null;
}

async function summaries(signal) {
  const found = [];
  let cursor = null;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const query = new URLSearchParams({ limit: 1000, ...(cursor && { cursor }) });
    const answer = await call("GET", rooted(`/v1/spaces?${query}`), { signal });
    found.push(...answer.items);
    cursor = answer.next_cursor;
    if (!cursor) break;
  }
  return found.sort((a, b) => Boolean(against(a)) - Boolean(against(b)) || b.models - a.models);
}

/**
 * The spaces that fit a checkpoint: first those in which it is compared, and of these the one with
 * the most models.
 * @param tensors as the worker's `open` answers, by name.
 * @param {AbortSignal} signal ends it.
 * @returns {{name: string, names: string[], digest: string, k: number | null, against: string | null}[]}
 */
export async function fittingSpaces(tensors, signal) {
  const found = [];
  for (const summary of await summaries(signal)) {
    if (summary.kind !== "supports") continue;
    const compared = without(tensors, summary.exclude);
    if (summary.num_parameters !== compared.reduce((sum, { shape }) => sum + sizeOf(shape), 0)) continue;
    const space = await call("GET", path(summary.name), { signal });
    const placed = space.layout ? inOrder(compared, space.layout) : compared;
    if (!placed) continue;
    const reason = against(space);
    const { k } = reason ? { k: null } : await call("GET", `${path(space.name)}/support-size`, { signal });
    found.push({ name: space.name, names: placed.map(({ name }) => name), digest: space.layout_digest, k, against: reason });
    if (found.length === MOST_SPACES) break;
  }
  return found;
}

/** Where the support of a model in a space is. */
export const supportPath = (space, model) => `${path(space)}/supports/${nameInPath(model)}`;

/** The nearest models of a space to a support that is not stored. */
export function neighbours({ name, digest }, bytes, signal) {
  const query = new URLSearchParams({ k: 8, importance: "weight", ...(digest && { layout: digest }) });
  return call("POST", `${path(name)}/neighbors?${query}`, { body: bytes, type: "application/vnd.modelkin.support", signal });
}
