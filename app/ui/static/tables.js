// Tables that sort, filter and can be taken along.
//
// `<table data-sortable>`: its columns sort. A cell's `data-value` is what it sorts by and exports,
// else its text. With `data-sortable="bodies"` the rows of a `<tbody>` stay together, and its first
// row has the values. `<input data-filters="table-id">` keeps the rows that hold its text.

/** The text of a cell, or the number that it stands for. */
export function valueOf(cell) {
  if (cell.dataset.value !== undefined) return cell.dataset.value;
  return cell.querySelector("time")?.dateTime ?? cell.textContent.trim().replace(/\s+/g, " ");
}

function comparable(cell) {
  const text = valueOf(cell);
  const number = Number(text.replace(/[,%]/g, "").split(" ")[0]);
  return text !== "" && Number.isFinite(number) ? number : text.toLowerCase();
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === "number") return -1;
  if (typeof b === "number") return 1;
  return a < b ? -1 : a > b ? 1 : 0;
}

function sort(table, column, descending) {
  const whole = table.dataset.sortable === "bodies";
  const parts = whole ? [...table.tBodies] : [...table.tBodies[0].rows];
  const keyed = parts.map((part) => [comparable((whole ? part.rows[0] : part).cells[column]), part]);
  keyed.sort(([a], [b]) => compare(a, b) * (descending ? -1 : 1));
  (whole ? table : table.tBodies[0]).append(...keyed.map(([, part]) => part));
  for (const head of table.tHead.rows[0].cells) head.removeAttribute("aria-sort");
  table.tHead.rows[0].cells[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
}

/** Lets the columns of a table be sorted. */
export function makeSortable(table) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (!head.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const numeric = head.classList.contains("n");
      const sorted = head.getAttribute("aria-sort");
      sort(table, column, sorted ? sorted === "ascending" : numeric);
    });
  });
}

/** Keeps the rows of a table that hold the text of an input. */
export function makeFilter(input) {
  const table = document.getElementById(input.dataset.filters);
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    for (const row of table.tBodies[0].rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
    }
  });
}

/** The rows of a table as lists of texts, its head first; hidden rows and those of no value are left out. */
export function rowsOf(table) {
  const rows = [...table.tHead.rows, ...[...table.tBodies].flatMap((body) => [...body.rows])].filter((row) => !row.hidden);
  const values = rows.map((row) => [...row.cells].filter((cell) => cell.dataset.value !== "skip").map(valueOf));
  return values.filter((each) => each.length);
}
