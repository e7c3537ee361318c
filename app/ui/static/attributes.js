// Attributes of a model as rows of name, type and value.
//
// `<fieldset data-attributes>` holds rows `<div role="group" data-row>` and a button `[data-add]`.
// Only what was changed is sent, as `merge_attributes`. So other values stay to the last digit, and
// so does what a program changed meanwhile.

import { element } from "./dom.js";

/** How the text of a value is read, by its type. */
const READ = {
  text: (text) => text,
  number: (text) => {
    const number = Number(text);
    if (text.trim() === "" || !Number.isFinite(number)) throw new Error(`“${text}” is not a number`);
    if (/^\s*[+-]?\d+\s*$/.test(text) && !Number.isSafeInteger(number)) {
      throw new Error(`“${text}” has more digits than a browser keeps: change it by the API`);
    }
    return number;
  },
  boolean: (text) => text === "true",
  json: (text) => {
    let value;
    try {
      value = JSON.parse(text);
    } catch (error) {
      throw new Error(`this is not JSON: ${error.message}`);
    }
    if (value === null) throw new Error("null is no value: remove the attribute instead");
    return value;
  },
};

const WORDS = { text: "text", number: "number", boolean: "true or false", json: "JSON" };

function valueField(type, text) {
  const common = { "aria-label": "Value", "data-part": "value", spellcheck: "false" };
  if (type === "boolean") {
    const options = ["true", "false"].map((each) => element("option", { selected: text === each }, each));
    return element("select", common, ...options);
  }
  if (type === "number") return element("input", { ...common, inputmode: "decimal", value: text });
  const field = element("textarea", { ...common, rows: "1" });
  field.value = text;
  return field;
}

const part = (row, name) => row.querySelector(`[data-part=${name}]`);
const typeOf = (row) => part(row, "type").value;
const nameOf = (row) => part(row, "name").value.trim();
const stateOf = (row) => `${typeOf(row)} ${part(row, "value").value}`;

function newRow() {
  const types = Object.entries(WORDS).map(([value, words]) => element("option", { value }, words));
  return element("div", { role: "group", "data-row": true, class: "attribute-row" },
    element("input", { "aria-label": "Name", "data-part": "name", spellcheck: "false" }),
    element("select", { "aria-label": "Type", "data-part": "type" }, ...types),
    valueField("text", ""),
    element("button", { type: "button", class: "small", "data-remove": true }, "Remove"));
}

/** Names the group of a row, and what removes it, after its attribute. */
function label(row) {
  const name = nameOf(row);
  row.setAttribute("aria-label", name ? `Attribute ${name}` : "New attribute");
  row.querySelector("[data-remove]").setAttribute("aria-label", name ? `Remove ${name}` : "Remove the new attribute");
}

function wireRow(row, add) {
  label(row);
  part(row, "name").addEventListener("input", () => label(row));
  part(row, "type").addEventListener("change", () => {
    const before = part(row, "value");
    before.replaceWith(valueField(typeOf(row), before.value));
  });
  row.querySelector("[data-remove]").addEventListener("click", () => {
    const near = row.nextElementSibling ?? row.previousElementSibling;
    row.remove();
    (near?.querySelector("[data-remove]") ?? add).focus();
  });
}

const initial = new WeakMap();

/** What was changed: new values by name, and null for what was removed. Refuses what is no value. */
export function changedAttributes(fields) {
  const before = initial.get(fields);
  const changes = {};
  const names = new Set();
  for (const row of fields.querySelectorAll("[data-row]")) {
    const name = nameOf(row);
    if (!name && part(row, "value").value === "") continue;
    if (!name) throw new Error("an attribute has no name");
    if (names.has(name)) throw new Error(`two attributes have the name “${name}”`);
    names.add(name);
    if (before.get(name) === stateOf(row)) continue;
    try {
      changes[name] = READ[typeOf(row)](part(row, "value").value);
    } catch (error) {
      throw new Error(`attribute “${name}”: ${error.message}`);
    }
  }
  for (const name of before.keys()) if (!names.has(name)) changes[name] = null;
  return changes;
}

/** Gives life to the rows below `root`. */
export function wireAttributes(root = document) {
  for (const fields of root.querySelectorAll("[data-attributes]")) {
    const add = fields.querySelector("[data-add]");
    const rows = [...fields.querySelectorAll("[data-row]")];
    rows.forEach((row) => wireRow(row, add));
    initial.set(fields, new Map(rows.map((row) => [nameOf(row), stateOf(row)])));
    add.addEventListener("click", () => {
      const row = newRow();
      fields.querySelector("[data-rows]").append(row);
      wireRow(row, add);
      part(row, "name").focus();
    });
  }
}
