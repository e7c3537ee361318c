// The graph of a model: it grows by the neighbours of each model that is expanded.
//
// What is shown follows from the address: the models that are expanded (`of`), those that were
// removed (`without`), and how many neighbours each has (`k`).

import { call } from "./api.js";
import { announce, element, figureText, nameInPath, pageData, svg } from "./dom.js";
import { downloadCsv, downloadGraphml } from "./exports.js";
import { beside, settle } from "./layout.js";

const source = document.getElementById("graph-data");
const data = pageData("graph-data");
const space = source.dataset.space;
const drawing = document.getElementById("graph");
const panel = document.getElementById("node");

const around = new Map(Object.entries(data.around));
const places = new Map();
let { expanded, removed } = data;
let shown = { nodes: [], edges: [], bases: [] };
let chosen = expanded[0];
let view = { x: 0, y: 0, width: 600 };

const modelPath = (name) => `${space}/models/${nameInPath(name)}`;
const pairPath = (a, b) => `${space}/pairs?${new URLSearchParams({ a, b })}`;

function addressOf(of, without) {
  const query = new URLSearchParams([...of.map((name) => ["of", name]), ...without.map((name) => ["without", name])]);
  if (data.k !== data.usual_k) query.set("k", data.k);
  return `${space}/graph?${query}`;
}

/** What is to be seen: the union of what is around the expanded models. */
function union() {
  const gone = new Set(removed);
  const [nodes, edges] = [new Map(), new Map()];
  for (const name of expanded) {
    for (const node of around.get(name).nodes) if (!gone.has(node.id)) nodes.set(node.id, node);
    for (const edge of around.get(name).edges) {
      if (!gone.has(edge.source) && !gone.has(edge.target)) edges.set(JSON.stringify([edge.source, edge.target]), edge);
    }
  }
  const sorted = [...edges.values()].sort((a, b) => b.similarity - a.similarity);
  const contradicted = Object.assign({}, ...expanded.map((name) => around.get(name).contradicted));
  const bases = [...nodes.values()].flatMap(({ id, base_models: declared }) =>
    declared.filter((base) => base !== id && nodes.has(base)).map((base) => ({ id, base, contradicted: contradicted[id] === base })));
  return { nodes: [...nodes.values()], edges: sorted, bases };
}

const range = () => {
  const values = shown.edges.map((edge) => edge.similarity);
  const low = Math.min(...values);
  return [low, Math.max(...values, low + 0.01)];
};

function arrange() {
  const isFirst = places.size === 0;
  shown.nodes.forEach(({ id }, turn) => {
    if (places.has(id)) return;
    const edge = shown.edges.find(({ source: a, target: b }) => (a === id && places.has(b)) || (b === id && places.has(a)));
    const near = edge ? places.get(edge.source === id ? edge.target : edge.source) : [0, 0];
    places.set(id, beside(near, turn + 1));
  });
  const at = new Map(shown.nodes.map(({ id }, place) => [id, place]));
  const [low, high] = range();
  const { width, height } = box();
  const aspect = Math.min(Math.max(width / Math.max(height, 1), 0.5), 2);
  const edges = shown.edges.map((edge) => [at.get(edge.source), at.get(edge.target), 0.25 + (0.75 * (edge.similarity - low)) / (high - low)]);
  // A declared base may be near no model: it stays beside the one that declares it.
  const alone = shown.bases.filter(({ base }) => !nearestOf(base));
  edges.push(...alone.map(({ id, base }) => [at.get(id), at.get(base), 0.25]));
  settle(shown.nodes.map(({ id }) => places.get(id)), edges, { warmth: isFirst ? 80 : 30, aspect });
}

// --- drawing -------------------------------------------------------------------------------------

const box = () => drawing.getBoundingClientRect();
const unit = () => view.width / Math.max(box().width, 1);

function setView() {
  const { width, height } = box();
  const tall = (view.width * height) / Math.max(width, 1);
  drawing.setAttribute("viewBox", `${view.x - view.width / 2} ${view.y - tall / 2} ${view.width} ${tall}`);
}

function fit() {
  const points = shown.nodes.map(({ id }) => places.get(id));
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const { width, height } = box();
  const [wide, tall] = [(right - left) * 1.12 + 120, (bottom - top) * 1.12 + 90];
  view = { x: (left + right) / 2, y: (top + bottom) / 2, width: Math.max(wide, (tall * width) / Math.max(height, 1), 200) };
}

function drawnEdges(u) {
  const [low, high] = range();
  return shown.edges.map((edge) => {
    const [[x1, y1], [x2, y2]] = [places.get(edge.source), places.get(edge.target)];
    const near = edge.source === chosen || edge.target === chosen;
    const wide = 1 + (6 * (edge.similarity - low)) / (high - low);
    const kind = `edge${near ? " near" : ""}${edge.unrelated ? " chance" : ""}`;
    return svg("line", { class: kind, x1, y1, x2, y2, "stroke-width": (wide * u).toFixed(3) },
      svg("title", {}, `${edge.source} and ${edge.target}: S = ${edge.similarity.toFixed(3)}${edge.unrelated ? ", as chance gives" : ""}`));
  });
}

function drawnBases(u) {
  return shown.bases.map(({ id, base, contradicted }) => {
    const [[x1, y1], [x2, y2]] = [places.get(id), places.get(base)];
    const [mx, my] = [(x1 + x2) / 2 - (y2 - y1) * 0.15, (y1 + y2) / 2 + (x2 - x1) * 0.15];
    const path = svg("path", { class: contradicted ? "base contradicted" : "base", d: `M${x1},${y1}Q${mx},${my} ${x2},${y2}` }, svg("title", {}, `${id} declares ${base} as its base${contradicted ? ", which is contradicted" : ""}`));
    path.style.strokeWidth = 2 * u;
    return path;
  });
}

const short = (name) => {
  if (name.length <= 22) return name;
  const last = name.slice(name.lastIndexOf("/") + 1);
  return last.length > 22 ? `${last.slice(0, 9)}…${last.slice(-12)}` : last;
};

const nearestOf = (name) => shown.edges.find(({ source: a, target: b }) => a === name || b === name);

function spoken(name) {
  const edge = nearestOf(name);
  const other = edge && (edge.source === name ? edge.target : edge.source);
  const words = edge ? `, S = ${edge.similarity.toFixed(3)} to ${other}` : "";
  return `${name}${words}${expanded.includes(name) ? ", expanded" : ""}`;
}

function drawnNode({ id }, u) {
  const [x, y] = places.get(id);
  const open = expanded.includes(id);
  const radius = (open ? 9 : 7) * u;
  const dot = svg("circle", { class: open ? "dot expanded" : "dot", cx: x, cy: y, r: radius });
  dot.style.strokeWidth = 2 * u;
  const ring = svg("circle", { class: "ring", cx: x, cy: y, r: radius + 4 * u });
  ring.style.strokeWidth = 3 * u;
  const label = svg("text", { x, y: y + radius + 13 * u, "text-anchor": "middle" }, short(id));
  label.style.fontSize = `${12 * u}px`;
  label.style.strokeWidth = 3 * u;
  return svg("g", {
    class: id === chosen ? "node chosen" : "node", role: "button", "data-id": id,
    tabindex: id === chosen ? 0 : -1, "aria-label": spoken(id),
  }, ring, dot, label, svg("title", {}, id));
}

/** Draws all again; what has the focus keeps it. */
function draw() {
  const focused = drawing.contains(document.activeElement);
  setView();
  const u = unit();
  drawing.replaceChildren(...drawnEdges(u), ...drawnBases(u), ...shown.nodes.map((node) => drawnNode(node, u)));
  if (focused) nodeOf(chosen)?.focus({ preventScroll: true });
}

const nodeOf = (id) => [...drawing.querySelectorAll(".node")].find((node) => node.dataset.id === id);

// --- the list ------------------------------------------------------------------------------------

function endOf(name) {
  const parts = [element("a", { class: "model", href: modelPath(name) }, name), " "];
  if (expanded.includes(name)) parts.push(element("span", { class: "note" }, "expanded"));
  else parts.push(element("a", { class: "act", href: addressOf([...expanded, name], removed), "data-expand": name, "aria-label": `Expand ${name}` }, "expand"));
  if (name !== expanded[0]) {
    const rest = expanded.filter((each) => each !== name);
    parts.push(" ", element("a", { class: "act", href: addressOf(rest, [...removed, name]), "data-remove": name, "aria-label": `Remove ${name}` }, "remove"));
  }
  return element("td", {}, ...parts);
}

function rowOf(edge) {
  const error = edge.estimate === "exact" ? [] : [" ", element("span", { class: "quiet" }, `± ${edge.standard_error.toFixed(3)}`)];
  return element("tr", {}, endOf(edge.source), endOf(edge.target),
    element("td", { class: "n" }, edge.similarity.toFixed(3), ...error),
    element("td", { class: "n" }, edge.kappa === null ? "" : figureText(edge.kappa), ...(edge.unrelated ? [" ", element("span", { class: "note" }, "unrelated")] : [])),
    element("td", {}, element("a", { href: pairPath(edge.source, edge.target), "aria-label": `Compare ${edge.source} with ${edge.target}` }, "compare")));
}

function list() {
  const body = document.querySelector("#edges tbody");
  const focused = body.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  if (shown.edges.length) body.replaceChildren(...shown.edges.map(rowOf));
  if (focused === null) return;
  const same = [...body.querySelectorAll("a")].find((link) => link.getAttribute("aria-label") === focused);
  (same ?? body.querySelector("a")).focus({ preventScroll: true });
}

// --- the chosen model ----------------------------------------------------------------------------

async function showLineage(name, room) {
  room.textContent = "One moment…";
  try {
    const { verdict, summary } = await call("GET", `${source.dataset.lineage}?${new URLSearchParams({ model: name })}`);
    room.replaceChildren(element("span", { class: "verdict" }, verdict.replaceAll("_", " ")), " ", summary);
  } catch (error) {
    room.replaceChildren(element("span", { class: "error" }, error.message));
  }
}

function actions(name) {
  const button = (text, act) => {
    const made = element("button", { type: "button", class: "small" }, text);
    made.addEventListener("click", () => act(made));
    return made;
  };
  const open = expanded.includes(name);
  const found = open ? [] : [button("Expand", () => expand(name))];
  if (name !== expanded[0]) found.push(button("Remove", () => remove(name)), button("Begin here", () => go([name], [])));
  return found;
}

function describe() {
  const node = shown.nodes.find(({ id }) => id === chosen);
  if (!node) return;
  const near = shown.edges.filter(({ source: a, target: b }) => a === chosen || b === chosen).slice(0, 6);
  const facts = near.flatMap((edge) => {
    const other = edge.source === chosen ? edge.target : edge.source;
    return [element("dt", {}, `S = ${edge.similarity.toFixed(3)}`), element("dd", {}, element("a", { href: pairPath(chosen, other) }, other))];
  });
  if (node.base_models.length) facts.push(element("dt", {}, "declares"), element("dd", {}, node.base_models.join(", "), ...(shown.bases.some(({ id, contradicted }) => id === chosen && contradicted) ? [" ", element("span", { class: "verdict bad" }, "contradicted")] : [])));
  if (node.tags.length) facts.push(element("dt", {}, "tags"), element("dd", {}, node.tags.join(", ")));
  const verdict = element("p", { class: "small", role: "status" });
  const buttons = actions(chosen);
  if (source.dataset.lineage) {
    const ask = element("button", { type: "button", class: "small" }, "Lineage");
    const name = chosen;
    ask.addEventListener("click", () => showLineage(name, verdict));
    buttons.push(ask);
  }
  panel.replaceChildren(
    element("h2", { id: "node-title" }, element("a", { href: modelPath(chosen) }, chosen)),
    element("dl", { class: "pairs" }, ...facts), verdict, element("div", { class: "buttons" }, ...buttons));
}

function choose(name, { focus = false } = {}) {
  chosen = name;
  draw();
  describe();
  if (focus) nodeOf(name)?.focus({ preventScroll: true });
}

// --- what a visitor does -------------------------------------------------------------------------

const refused = document.getElementById("refused");

/** Shows these models: what is around those that are new is asked for first. */
async function go(of, without, { remember = true } = {}) {
  refused.textContent = "";
  if (of.length > data.most) {
    refused.textContent = `A graph has ${data.most} expanded models at most: remove some, or begin at another one.`;
    return false;
  }
  try {
    await Promise.all(of.filter((name) => !around.has(name)).map(async (name) => {
      around.set(name, await call("GET", `${space}/graph/around?${new URLSearchParams({ of: name, k: data.k })}`));
    }));
  } catch (error) {
    refused.textContent = error.message;
    return false;
  }
  [expanded, removed] = [of, without];
  if (remember) history.pushState(null, "", addressOf(of, without));
  update();
  return true;
}

function update() {
  shown = union();
  if (!shown.nodes.some(({ id }) => id === chosen)) chosen = expanded[0];
  arrange();
  fit();
  draw();
  list();
  describe();
}

async function expand(name) {
  if (expanded.includes(name)) return;
  chosen = name;
  const before = shown.nodes.length;
  if (await go([...expanded, name], removed)) announce(`${name} expanded, ${shown.nodes.length - before} more models`);
}

async function remove(name) {
  if (name === expanded[0]) {
    announce("The first model stays");
    return;
  }
  if (await go(expanded.filter((each) => each !== name), [...removed, name])) announce(`${name} removed`);
}

addEventListener("popstate", () => {
  const query = new URLSearchParams(location.search);
  const of = query.getAll("of");
  // An address that names no model is the page's own beginning.
  go(of.length ? of : data.expanded, query.getAll("without"), { remember: false });
});

function zoom(by) {
  if (by === "fit") fit();
  else view = { ...view, width: view.width / Number(by) };
  draw();
}
document.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => zoom(button.dataset.zoom)));
document.getElementById("reset").addEventListener("click", () => go([expanded[0]], []));
document.getElementById("edges").addEventListener("click", (event) => {
  const link = event.target.closest("[data-expand], [data-remove]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if (link.dataset.expand) expand(link.dataset.expand);
  else remove(link.dataset.remove);
});

const DIRECTIONS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

/** The nearest node that lies in a direction. */
function towards([dx, dy]) {
  const [x, y] = places.get(chosen);
  let [best, least] = [null, Infinity];
  for (const { id } of shown.nodes) {
    const [ox, oy] = [places.get(id)[0] - x, places.get(id)[1] - y];
    const [along, across] = [ox * dx + oy * dy, Math.abs(ox * dy - oy * dx)];
    const cost = along + 2 * across;
    if (id !== chosen && along > 0 && cost < least) [best, least] = [id, cost];
  }
  return best;
}

drawing.addEventListener("keydown", (event) => {
  if (DIRECTIONS[event.key]) {
    const next = towards(DIRECTIONS[event.key]);
    if (next) choose(next, { focus: true });
  } else if (event.key === "Enter" || event.key === " ") expand(chosen);
  else if (event.key === "Delete" || event.key === "Backspace") remove(chosen);
  else if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.3 : 0.77);
  else return;
  event.preventDefault();
});

let grip = null;
drawing.addEventListener("pointerdown", (event) => {
  grip = { x: event.clientX, y: event.clientY, view, node: event.target.closest(".node")?.dataset.id, moved: false };
});
drawing.addEventListener("pointermove", (event) => {
  if (!grip) return;
  const [dx, dy] = [event.clientX - grip.x, event.clientY - grip.y];
  if (!grip.moved && Math.hypot(dx, dy) < 5) return;
  if (!grip.moved) drawing.setPointerCapture(event.pointerId);
  grip.moved = true;
  view = { ...grip.view, x: grip.view.x - dx * unit(), y: grip.view.y - dy * unit() };
  setView();
});
drawing.addEventListener("pointerup", () => {
  const held = grip;
  grip = null;
  if (!held || held.moved || !held.node) return;
  choose(held.node);
  expand(held.node);
});
drawing.addEventListener("pointercancel", () => (grip = null));
addEventListener("resize", () => {
  fit();
  draw();
});

// --- files ---------------------------------------------------------------------------------------

const COLUMNS = ["source", "target", "similarity", "standard_error", "estimate", "expected", "kappa", "covered", "log10_p", "unrelated"];
document.getElementById("csv").addEventListener("click", (event) =>
  downloadCsv([COLUMNS, ...shown.edges.map((edge) => COLUMNS.map((column) => edge[column]))], event.target.dataset.name));
document.getElementById("graphml").addEventListener("click", (event) => {
  const { graph } = around.get(expanded[0]);
  downloadGraphml({ graph, nodes: shown.nodes, edges: shown.edges }, event.target.dataset.name);
});

update();
