// The matrix of a space: its tree, its heat map, and the groups at a cut.

import { announce, element, fromAddress, pageData, setAddress, svg } from "./dom.js";
import { downloadCsv } from "./exports.js";
import { GROUPS, heat, heatLegend, ticks } from "./scales.js";

const data = pageData("matrix-data");
const names = data.models;
const n = names.length;
const pairs = document.getElementById("matrix-data").dataset.pairs;
const estimated = new Set(data.estimated);
const drawing = document.getElementById("matrix");
const cells = document.getElementById("cells");
const readout = document.getElementById("cell");

const LABELLED = n <= 60;
const SIZE = 620;
const [TREE, STRIP, LEFT, TOP] = [210, 12, 236, 34];
const WIDTH = LEFT + SIZE + (LABELLED ? 190 : 20);
const HEIGHT = TOP + SIZE + 64;
const CELL = SIZE / n;
const ROUNDING = 1e-6;

const similarity = (a, b) => (a >= b ? data.values[a][b] : data.values[b][a]);
const least = Math.min(...data.joins.map(([, , , height]) => 1 - height));
// The line of chance is in the picture, unless the tree would lose half of its room to it.
const isChanceNear = data.chance !== null && 2 * (1 - least) >= 1 - data.chance;
const low = Math.max(0, Math.floor((isChanceNear ? Math.min(least, data.chance) : least) * 20 - 0.5) / 20);
const xOf = (value) => TREE * ((value - low) / (1 - low));

function range() {
  let [small, large] = [Infinity, -Infinity];
  for (let a = 1; a < n; a += 1) {
    for (let b = 0; b < a; b += 1) {
      small = Math.min(small, data.values[a][b]);
      large = Math.max(large, data.values[a][b]);
    }
  }
  return [small, large > small ? large : small + 0.01];
}
const [coldest, hottest] = range();

/** The heat map as a picture, so that many cells are one element. */
function picture() {
  const scale = Math.max(1, Math.floor(1200 / n));
  const canvas = element("canvas", { width: n * scale, height: n * scale });
  const context = canvas.getContext("2d");
  for (let a = 0; a < n; a += 1) {
    for (let b = 0; b < n; b += 1) {
      context.fillStyle = `rgb(${heat((similarity(a, b) - coldest) / (hottest - coldest))})`;
      context.fillRect(b * scale, a * scale, scale, scale);
    }
  }
  return canvas.toDataURL("image/png");
}

/** For each place but the first: the S at which it is joined with the place before it. */
const joinedAt = new Map(data.joins.map(([, middle, , height]) => [middle, 1 - height]));

/** The places of each group where joins below `cut` are undone. */
function groupsAt(cut) {
  const found = [[0]];
  for (let place = 1; place < n; place += 1) {
    if (joinedAt.get(place) >= cut - ROUNDING) found.at(-1).push(place);
    else found.push([place]);
  }
  return found;
}

/** The colour of each place: groups of two or more take turns. */
function coloursOf(groups) {
  const colours = new Array(n).fill(null);
  let turn = 0;
  for (const group of groups) {
    if (group.length < 2) continue;
    for (const place of group) colours[place] = GROUPS[turn % GROUPS.length];
    turn += 1;
  }
  return colours;
}

function branches(cut, colours) {
  const at = new Map(names.map((_, place) => [place, [TREE, TOP + (place + 0.5) * CELL]]));
  return data.joins.map(([begin, middle, , height, byChance]) => {
    const [[x0, y0], [x1, y1]] = [at.get(begin), at.get(middle)];
    const x = xOf(1 - height);
    at.set(begin, [x, (y0 + y1) / 2]);
    const below = 1 - height >= cut - ROUNDING;
    const path = svg("path", { class: byChance ? "branch by-chance" : "branch", d: `M${x0},${y0}H${x}V${y1}H${x1}` });
    if (below) path.style.stroke = colours[begin];
    path.style.strokeWidth = Math.min(1.4, CELL / 2);
    return path;
  });
}

const changing = svg("g");
const here = svg("rect", { class: "here", visibility: "hidden", width: CELL, height: CELL });

function axis() {
  const marks = ticks(low, 1, 5).map((value) => svg("text", { x: xOf(value), y: TOP - 10, "text-anchor": "middle" }, value.toFixed(2).replace(/0$/, "")));
  return svg("g", {}, ...marks, svg("line", { class: "axis", x1: 0, x2: TREE, y1: TOP - 4, y2: TOP - 4 }));
}

function labels() {
  if (!LABELLED) return svg("g");
  return svg("g", {}, ...names.map((name, place) => {
    const shown = name.length > 26 ? `${name.slice(0, 11)}…${name.slice(-14)}` : name;
    return svg("text", { x: LEFT + SIZE + 8, y: TOP + (place + 0.5) * CELL + 4 }, shown);
  }));
}

function drawOnce() {
  drawing.setAttribute("viewBox", `-14 0 ${WIDTH + 14} ${HEIGHT}`);
  drawing.append(
    svg("image", { href: picture(), x: LEFT, y: TOP, width: SIZE, height: SIZE, preserveAspectRatio: "none" }),
    axis(), chanceLine(), labels(), changing, here,
    heatLegend({ x: LEFT, y: TOP + SIZE + 26, width: 220, low: coldest, high: hottest, title: "similarity S" }),
  );
}

function strip(groups, colours) {
  return groups.filter((group) => group.length > 1).map((group) => svg("rect", {
    x: LEFT - STRIP - 3, y: TOP + group[0] * CELL, width: STRIP, height: group.length * CELL, fill: colours[group[0]],
  }));
}

function edges(groups) {
  return groups.slice(1).flatMap(([place]) => [
    svg("line", { class: "edge", x1: LEFT, x2: LEFT + SIZE, y1: TOP + place * CELL, y2: TOP + place * CELL }),
    svg("line", { class: "edge", y1: TOP, y2: TOP + SIZE, x1: LEFT + place * CELL, x2: LEFT + place * CELL }),
  ]);
}

/** Whether a group at a cut has a join without a pair that is nearer than unrelated models are. */
function isByChance(group, cut) {
  return data.joins.some(([begin, , end, height, byChance]) =>
    byChance && group[0] <= begin && end - 1 <= group.at(-1) && 1 - height >= cut - ROUNDING);
}

function inWords(groups, cut) {
  const several = groups.filter((group) => group.length > 1);
  const alone = groups.length - several.length;
  const first = several.length === 1 ? "1 group of several models" : `${several.length} groups of several models`;
  const chance = several.filter((group) => isByChance(group, cut)).length;
  const part = chance === several.length ? "" : `${chance} of them `;
  return `${first}${alone ? `, ${alone} alone` : ""}${chance ? `: ${part}held together by no more than chance` : ""}`;
}

/** Where two unrelated models are joined, on average. */
function chanceLine() {
  if (!isChanceNear) return svg("g");
  const x = xOf(data.chance);
  return svg("g", {},
    svg("line", { class: "chance-line", x1: x, x2: x, y1: TOP - 4, y2: TOP + SIZE + 10 }),
    svg("text", { class: "chance-text", x: Math.max(x, 22), y: TOP + SIZE + 24, "text-anchor": "middle" }, "chance"));
}

function show(cut) {
  const groups = groupsAt(cut);
  const colours = coloursOf(groups);
  const x = xOf(Math.max(cut, low));
  const line = svg("line", { class: "cut-line", x1: x, x2: x, y1: TOP - 4, y2: TOP + SIZE });
  changing.replaceChildren(...branches(cut, colours), ...strip(groups, colours), ...(groups.length < 80 ? edges(groups) : []), line);
  const numbers = new Map(groups.flatMap((group, number) => group.map((place) => [place, number + 1])));
  for (const row of document.querySelectorAll("#groups tbody tr")) {
    row.querySelector(".group").textContent = numbers.get(Number(row.dataset.place));
  }
  document.getElementById("cut-says").textContent = inWords(groups, cut);
  slider.setAttribute("aria-valuetext", `S ${cut.toFixed(3)}: ${inWords(groups, cut)}`);
}

const slider = document.getElementById("cut");
const number = document.getElementById("cut-number");

function cutAt(value) {
  const cut = Math.min(Math.max(Number(value) || 0, 0), 1);
  slider.value = cut;
  if (document.activeElement !== number) number.value = cut;
  setAddress({ cut: cut === data.suggested ? null : cut });
  show(cut);
}
slider.addEventListener("input", () => cutAt(slider.value));
number.addEventListener("input", () => number.value !== "" && cutAt(number.value));
document.getElementById("cut-suggested").addEventListener("click", () => cutAt(data.suggested));

// --- cells ---------------------------------------------------------------------------------------

let [row, column] = [0, n > 1 ? 1 : 0];

/** Lays the focusable area over the heat map, whatever size that has. */
function place() {
  const [box, room] = [drawing.getBoundingClientRect(), drawing.parentElement.getBoundingClientRect()];
  const scale = box.width / (WIDTH + 14);
  Object.assign(cells.style, {
    left: `${box.left - room.left + drawing.parentElement.scrollLeft + (LEFT + 14) * scale}px`,
    top: `${box.top - room.top + TOP * scale}px`,
    width: `${SIZE * scale}px`, height: `${SIZE * scale}px`,
  });
}

const addressOf = () => `${pairs}?${new URLSearchParams({ a: names[row], b: names[column] })}`;

function point(a, b, { aloud = false } = {}) {
  [row, column] = [a, b];
  here.setAttribute("x", LEFT + b * CELL);
  here.setAttribute("y", TOP + a * CELL);
  here.setAttribute("visibility", "visible");
  const guess = estimated.has(a) || estimated.has(b) ? ", estimated" : "";
  const words = a === b ? names[a] : `${names[a]} and ${names[b]}: S = ${similarity(a, b).toFixed(3)}${guess}`;
  readout.replaceChildren(words, " ", ...(a === b ? [] : [element("a", { href: addressOf() }, "compare")]));
  if (aloud) announce(words);
}

cells.addEventListener("pointermove", (event) => {
  const box = cells.getBoundingClientRect();
  const within = (share) => Math.min(Math.max(Math.floor(share * n), 0), n - 1);
  point(within((event.clientY - box.top) / box.height), within((event.clientX - box.left) / box.width));
});
cells.addEventListener("focus", () => point(row, column, { aloud: true }));
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -n], End: [0, n] };
cells.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && row !== column) return location.assign(addressOf());
  const step = STEPS[event.key];
  if (!step) return undefined;
  event.preventDefault();
  const within = (value) => Math.min(Math.max(value, 0), n - 1);
  return point(within(row + step[0]), within(column + step[1]), { aloud: true });
});
cells.addEventListener("click", () => row !== column && location.assign(addressOf()));

// --- tables and files ----------------------------------------------------------------------------

const rowsOfAll = () => [["model", ...names], ...names.map((name, a) => [name, ...names.map((_, b) => similarity(a, b))])];

document.getElementById("csv").addEventListener("click", (event) => downloadCsv(rowsOfAll(), event.target.dataset.name));

document.getElementById("all").addEventListener("toggle", (event) => {
  const room = event.target.querySelector("div");
  if (!event.target.open || room.firstChild) return;
  const [head, ...rows] = rowsOfAll();
  const heads = head.map((name) => element("th", { scope: "col" }, name));
  const body = rows.map(([name, ...values]) => element("tr", {}, element("th", { scope: "row" }, name),
    ...values.map((value) => element("td", { class: "n" }, value.toFixed(3)))));
  room.append(element("table", {}, element("caption", { class: "hidden" }, "S of every two models"),
    element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body)));
});

drawOnce();
place();
addEventListener("resize", place);
show(Number(fromAddress("cut") || slider.value));
