// What the service says of a checkpoint, as tables.

import { counted, element, figureText, nameInPath, rooted } from "../dom.js";

const percent = (share) => `${(100 * share).toFixed(1)}%`;
export const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

/** A table below the heading of its section, which names both it and its scrolling place. */
function table(id, heads, rows) {
  const named = { "aria-labelledby": `${id}-title` };
  const head = element("tr", {}, ...heads.map((text, column) => element("th", { scope: "col", class: column && column < 3 ? "n" : null }, text)));
  const body = rows.map(([link, ...cells]) => element("tr", {}, element("th", { scope: "row" }, link), ...cells));
  const whole = element("table", { id: `${id}-table`, ...named }, element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabindex: "0", role: "group", ...named }, whole);
}

const figure = (text) => element("td", { class: "n" }, text);

function section(id, title, ...parts) {
  return element("section", { "aria-labelledby": `${id}-title` }, element("h3", { id: `${id}-title` }, title), ...parts);
}

/** The nearest models of a space by the overlap of supports. */
export function neighboursTable(id, space, { items, note }) {
  const title = `Nearest in ${space.name}`;
  if (!items.length) return section(id, title, element("p", { class: "empty" }, "This space has no model yet."));
  const rows = items.map((each) => {
    const link = element("a", { class: "model", href: rooted(`/spaces/${encodeURIComponent(space.name)}/models/${nameInPath(each.model)}`) }, each.model);
    return [link, figure(figureText(each.similarity)), figure(each.kappa === null ? "–" : figureText(each.kappa))];
  });
  const parts = [table(id, ["model", "similarity", "beyond chance"], rows)];
  if (note) parts.push(element("p", { class: "quiet small" }, note));
  return section(id, title, ...parts);
}

/** What it comes from by its lines, and its relatives of any layout. */
export function linesTable(id, anatomy, { items }) {
  const said = anatomy.sentences.map((text) => element("p", {}, sentence(text)));
  const title = "Models with lines in common";
  if (!items.length) return section(`${id}-lines`, title, ...said, element("p", { class: "quiet small" }, `${counted(anatomy.compared, "stored model")} ${anatomy.compared === 1 ? "was" : "were"} asked.`));
  const rows = items.map((each) => {
    const link = element("a", { class: "model", href: rooted(`/anatomies/${nameInPath(each.model)}`) }, each.model);
    const what = each.relations.map((relation) => sentence(relation.sentence)).join(" ");
    return [link, figure(percent(each.share_of_lines)), figure(percent(each.share_of_model)), element("td", { class: "small long" }, what)];
  });
  return section(`${id}-lines`, title, ...said, table(`${id}-lines`, ["model", "of its lines", "of the other's", "what that is to it"], rows));
}

/** What was compared, and with what it could not be. */
export function comparison({ spaces, supports, fingerprint }) {
  const digests = [...supports.values()].map(({ k, digest }) => element("li", {}, `support of ${k.toLocaleString("en")} ${k === 1 ? "index" : "indices"} `, element("code", {}, digest)));
  const others = spaces.filter(({ against }) => against).map(({ name, against }) => element("li", {}, `Not compared in space ${name}: ${against}. The command does.`));
  const none = spaces.length ? [] : [element("li", {}, "No space has these tensors by name and shape. The command finds those of other names, too, and makes one: ", element("code", {}, "modelkin push FILE --space auto"))];
  const print = element("li", {}, `fingerprint of ${counted(fingerprint.keys, "line")} `, element("code", {}, fingerprint.digest));
  return element("ul", { class: "plain quiet small digests" }, ...none, ...others, ...digests, print);
}
