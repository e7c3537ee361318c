// The spaces in which a checkpoint has a place: those of the same tensors, in whatever order.

import { call } from "../api.js";
import { nameInPath } from "../dom.js";
import { inOrder, sizeOf, without } from "./layouts.js";

const MOST_PAGES = 20;
const MOST_SPACES = 8;
const path = (name) => `/v1/spaces/${encodeURIComponent(name)}`;

/** Why supports of this page do not belong into a space; null where they do. */
function against({ importance, blinding, ordered }) {
  if (blinding) return "its supports are blinded under a key, which is not for a browser";
  if (ordered) return "its supports have the order of their indices";
  if (!["weight", "unstated"].includes(importance.kind)) return `its supports are selected by ${importance.kind}`;
  return null;
}

async function* summaries() {
  let cursor = null;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const query = new URLSearchParams({ limit: 1000, ...(cursor && { cursor }) });
    const found = await call("GET", `/v1/spaces?${query}`);
    yield* found.items;
    cursor = found.next_cursor;
    if (!cursor) return;
  }
}

/**
 * The spaces that fit a checkpoint, those with the most models first.
 * @param tensors as the worker's `open` answers, by name.
 * @returns {{name: string, names: string[], digest: string, k: number | null, against: string | null}[]}
 */
export async function fittingSpaces(tensors) {
  const found = [];
  for await (const summary of summaries()) {
    if (summary.kind !== "supports") continue;
    const compared = without(tensors, summary.exclude ?? []);
    if (summary.num_parameters !== compared.reduce((sum, { shape }) => sum + sizeOf(shape), 0)) continue;
    const space = await call("GET", path(summary.name));
    const placed = space.layout ? inOrder(compared, space.layout) : compared;
    if (!placed) continue;
    const { k } = await call("GET", `${path(space.name)}/support-size`);
    found.push({ name: space.name, models: space.models, names: placed.map(({ name }) => name), digest: space.layout_digest, k, against: against(space) });
    if (found.length === MOST_SPACES) break;
  }
  return found.sort((a, b) => Boolean(a.against) - Boolean(b.against) || b.models - a.models);
}

/** Where the support of a model in a space is. */
export const supportPath = (space, model) => `${path(space)}/supports/${nameInPath(model)}`;

/** The nearest models of a space to a support that is not stored. */
export function neighbours({ name, digest }, bytes) {
  const query = new URLSearchParams({ k: 8, importance: "weight", ...(digest && { layout: digest }) });
  return call("POST", `${path(name)}/neighbors?${query}`, { body: bytes, type: "application/vnd.modelkin.support" });
}
