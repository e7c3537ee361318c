// What every page has: the theme switch, times, tables, copying, exports, forms, completion.

import { wireActions } from "./actions.js";
import { makeCompletion } from "./completion.js";
import { announce } from "./dom.js";
import { wireExports } from "./exports.js";
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
  await navigator.clipboard.writeText(button.dataset.copy);
  const before = button.textContent;
  button.textContent = "Copied";
  announce("Copied");
  setTimeout(() => (button.textContent = before), 1500);
}

document.querySelector("[data-theme-switch]")?.addEventListener("click", switchTheme);
document.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", () => copy(button)));
document.querySelectorAll("table[data-sortable]").forEach(makeSortable);
document.querySelectorAll("[data-filters]").forEach(makeFilter);
document.querySelectorAll("[data-completions]").forEach(makeCompletion);
wireExports();
wireActions();
showTimes();
setInterval(() => showTimes(), 30000);
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    document.getElementById("search")?.focus();
  }
});
