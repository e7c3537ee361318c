// Small helpers that all modules share. Nothing here, or anywhere, sets HTML from text.

/** An element with attributes and children; text children become text, whatever they hold. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** The same for SVG. */
export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Says something to screen readers, without moving the focus. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Puts a text into the clipboard; beyond https browsers know only the older way. */
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = element("textarea", { readonly: true, class: "hidden" });
  const before = document.activeElement;
  field.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  before?.focus();
}

/** A path of the service as the browser asks for it: a proxy may show the service below a path. */
export function rooted(path) {
  return document.body.dataset.root + path.replace(/^\//, "");
}

/** Bytes as a person reads them. */
export function sizeText(bytes) {
  for (const [unit, of] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (bytes >= of) return `${(bytes / of).toFixed(1)} ${unit}`;
  return `${bytes} bytes`;
}

/** A similarity, or another figure near 1; what rounds to zero has no sign. */
export const figureText = (value) => value.toFixed(3).replace(/^-(0\.0+)$/, "$1");

/** How many there are of something: 1 tensor, 1,200 tensors. */
export const counted = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

/** The name of a model or a space within a path: slashes stay. */
export function nameInPath(name) {
  return name.split("/").map(encodeURIComponent).join("/");
}

/** The data that the page holds for a script: `<script type="application/json" id="...">`. */
export function pageData(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

/** Calls `run` once no call came for a while. */
export function debounced(run, milliseconds) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...values), milliseconds);
  };
}

/** Puts values into the address without a new page: null and "" leave one out. */
export function setAddress(values) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === "") url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  history.replaceState(null, "", url);
}

/** A value of the address, or what to take without it. */
export function fromAddress(name, otherwise = "") {
  return new URL(location.href).searchParams.get(name) ?? otherwise;
}
