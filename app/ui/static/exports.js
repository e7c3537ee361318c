// Plots and tables to take along: PNG, CSV, GraphML and any other text.

import { svg } from "./dom.js";
import { rowsOf } from "./tables.js";

/** Gives the visitor a file. */
export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** A file name of any text. */
export function fileName(text, suffix) {
  return `${text.replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^[-.]+|-+$/g, "") || "modelkin"}.${suffix}`;
}

/**
 * Rows as CSV (RFC 4180). What a spreadsheet would take for a formula begins with an apostrophe:
 * names come from strangers.
 */
export function csv(rows) {
  const cell = (value) => {
    let text = String(value ?? "");
    if (/^[=+\-@\t\r]/.test(text) && !Number.isFinite(Number(text))) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** Gives rows as a CSV file. */
export function downloadCsv(rows, name) {
  download(new Blob(["\ufeff", csv(rows)], { type: "text/csv" }), fileName(name, "csv"));
}

// Types of the values of a graph; those of other names are texts. JSON does not distinguish 1 from 1.0.
const GRAPHML_TYPES = {
  k: "long", version: "long", threshold: "double", truncated: "boolean", support_size: "long",
  similarity: "double", standard_error: "double", expected: "double", kappa: "double", covered: "double", log10_p: "double", unrelated: "boolean",
};

/** XML holds no control characters: they are written as JSON writes them. */
const inXml = (text) => String(text)
  .replace(/[\x00-\x1f\x7f\u2028\u2029\ufffe\uffff]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`)
  .replace(/[&<>"]/g, (each) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[each]);

/** Node-link data as GraphML, in the form of `Graph.to_graphml` of the Python client. */
export function graphml({ graph, nodes, edges }) {
  const ends = new Set(["id", "source", "target"]);
  const valuesOf = (row) => Object.entries(row).filter(([name, value]) => !ends.has(name) && value !== null);
  const keysOf = (kind, rows) => [...new Set(rows.flatMap((row) => valuesOf(row).map(([name]) => name)))].map((name) =>
    `<key id="${kind}-${name}" for="${kind}" attr.name="${name}" attr.type="${GRAPHML_TYPES[name] ?? "string"}"/>`);
  const dataOf = (kind, row) => valuesOf(row).map(([name, value]) => `<data key="${kind}-${name}">${inXml(value)}</data>`);
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
    ...keysOf("graph", [graph]), ...keysOf("node", nodes), ...keysOf("edge", edges),
    '<graph edgedefault="undirected">',
    ...dataOf("graph", graph),
    ...nodes.map((node) => `<node id="${inXml(node.id)}">${dataOf("node", node).join("")}</node>`),
    ...edges.map((edge) => `<edge source="${inXml(edge.source)}" target="${inXml(edge.target)}">${dataOf("edge", edge).join("")}</edge>`),
    "</graph></graphml>",
    "",
  ].join("\n");
}

/** Gives a graph as a GraphML file. */
export function downloadGraphml(linked, name) {
  download(new Blob([graphml(linked)], { type: "application/graphml+xml" }), fileName(name, "graphml"));
}

const DRAWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linejoin", "paint-order", "opacity", "font-family", "font-size", "font-weight", "text-anchor"];

/** An SVG that looks by itself as it does on the page: its styles become attributes. */
function standalone(drawing) {
  const copy = drawing.cloneNode(true);
  const originals = [drawing, ...drawing.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((each, place) => {
    const style = getComputedStyle(originals[place]);
    for (const name of DRAWN) each.setAttribute(name, style.getPropertyValue(name));
    each.removeAttribute("class");
  });
  return copy;
}

/** An SVG, a canvas or the bars of a table as a PNG, twice as sharp as a screen shows it. */
export async function downloadPng(drawing, name) {
  const canvas = drawing instanceof HTMLCanvasElement ? drawing : await rasterised(pictureOf(drawing));
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  download(blob, fileName(name, "png"));
}

function pictureOf(drawing) {
  if (drawing instanceof HTMLTableElement) return barsOf(drawing);
  const { width, height } = drawing.getBoundingClientRect();
  return sized(standalone(drawing), { width, height });
}

function sized(drawing, sizes) {
  for (const [name, value] of Object.entries(sizes)) drawing.setAttribute(name, value);
  return drawing;
}

const [BARS_WIDTH, BAR_WIDTH, LINE, MARGIN] = [720, 260, 24, 14];

/** The rows of a table that have a bar: name, bar, and the figure beside it, the second cell or `data-figure`. */
function barsOf(table) {
  const rows = [...table.tBodies[0].rows].filter((row) => row.querySelector("svg.meter"));
  const style = getComputedStyle(table);
  const text = (content, x, y, anchor) => {
    const drawn = svg("text", { x, y, "text-anchor": anchor, fill: style.color, "font-family": style.fontFamily, "font-size": 13 });
    drawn.textContent = content;
    return drawn;
  };
  const left = BARS_WIDTH - BAR_WIDTH - 130;
  const parts = rows.flatMap((row, place) => {
    const y = MARGIN + place * LINE;
    const bar = sized(standalone(row.querySelector("svg.meter")), { x: left, y: y + 4, width: BAR_WIDTH, height: 12 });
    const name = (row.cells[0].querySelector("a") ?? row.cells[0]).textContent.trim();
    const figure = row.querySelector("[data-figure]")?.dataset.figure ?? row.cells[1].textContent.trim();
    const short = name.length > 46 ? `…${name.slice(-45)}` : name;
    return [text(short, left - 10, y + 15, "end"), bar, text(figure, BARS_WIDTH - MARGIN, y + 15, "end")];
  });
  return svg("svg", { width: BARS_WIDTH, height: 2 * MARGIN + rows.length * LINE }, ...parts);
}

async function rasterised(copy) {
  const [width, height] = ["width", "height"].map((name) => Number(copy.getAttribute(name)));
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.ceil(width * 2), Math.ceil(height * 2)];
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

/** Wires the buttons of `ui.exports`. */
export function wireExports(root = document) {
  for (const button of root.querySelectorAll("[data-csv]")) {
    button.addEventListener("click", () =>
      downloadCsv(rowsOf(document.getElementById(button.dataset.csv)), button.dataset.name));
  }
  for (const button of root.querySelectorAll("[data-png]")) {
    button.addEventListener("click", () =>
      downloadPng(document.getElementById(button.dataset.png), button.dataset.name));
  }
}
