// What every page has: the theme switch, times, tables, copying, exports, forms, completion.

import { wireActions } from "./actions.js";
import { wireAttributes } from "./attributes.js";
import { makeCompletion } from "./completion.js";
import { announce, copyText } from "./dom.js";
import { wireExports } from "./exports.js";
import { keepLive } from "./live.js";
import { wireSecrets } from "./secrets.js";
import { makeFilter, makeSortable } from "./tables.js";
import { showTimes } from "./times.js";

function switchTheme() {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const current = root.dataset.theme ?? (dark ? "dark" : "light");
  root.dataset.theme = current === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("modelkin-theme", root.dataset.theme);
  } catch {
    // It lasts as long as the page, then.
  }
  announce(`${root.dataset.theme} theme`);
}

async function copy(button) {
  await copyText(button.dataset.copy);
  const before = button.textContent;
  button.textContent = "Copied";
  announce("Copied");
  setTimeout(() => (button.textContent = before), 1500);
}

/** Scrolls the row of tabs or the tree alone: scrollIntoView would have Tab begin behind it, not at the top. */
function showCurrent(item, row) {
  const [place, view] = [item, item?.closest(row)].map((each) => each?.getBoundingClientRect());
  if (view) item.closest(row).scrollLeft += place.left - view.left - (view.width - place.width) / 2;
}

/** Gives life to what stands below `root`: the page, or a part of it that came later. */
export function wire(root) {
  root.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", () => copy(button)));
  root.querySelectorAll("table[data-sortable]").forEach(makeSortable);
  root.querySelectorAll("[data-filters]").forEach(makeFilter);
  root.querySelectorAll("[data-completions]").forEach(makeCompletion);
  wireExports(root);
  wireActions(root);
  wireAttributes(root);
  wireSecrets(root);
  showTimes(root);
}

document.querySelector("[data-theme-switch]")?.addEventListener("click", switchTheme);
wire(document);
showCurrent(document.querySelector(".tabs [aria-current]"), "ul");
showCurrent(document.querySelector(".family [aria-current]"), ".scroll");
keepLive([...document.querySelectorAll("[data-live]")], wire);
setInterval(() => showTimes(), 30000);
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    document.getElementById("search")?.focus();
  }
});
