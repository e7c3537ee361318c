// Forms that change something through the JSON API.
//
// `<form data-method="PATCH" data-action="/v1/..." data-then="/spaces/x" data-confirm="Delete it?">`
// Each named field is a member of the body, `filters.owners` one of its member `filters`; `data-as`
// says how its text is read: "lines" (a list of texts), "json", "number", "optional" and
// "optional-number" (null if empty). Checkboxes with `data-as="list"` and one name make a list of what
// is checked. A field with `data-as="secret"` is left out if it is empty. A field with `data-query`
// goes into the query of the address instead. Rows of attributes become `merge_attributes` (see
// attributes.js). `data-confirm-name="x"` has `x` typed before something large is deleted. After it the page `data-then` opens, or `data-open`
// followed by the id of what was made, or this one again. A form with `data-secret` first shows that
// member of the answer, once. What the service refuses stands in the form's `.outcome`.

import { call } from "./api.js";
import { changedAttributes } from "./attributes.js";
import { announce, element } from "./dom.js";
import { shownOnce } from "./secrets.js";

const READ = {
  text: (text) => text,
  lines: (text) => text.split("\n").map((line) => line.trim()).filter(Boolean),
  number: (text) => (text.trim() === "" ? undefined : Number(text)),
  optional: (text) => (text.trim() === "" ? null : text.trim()),
  "optional-number": (text) => (text.trim() === "" ? null : Number(text)),
  secret: (text) => (text === "" ? undefined : text),
  json: (text) => JSON.parse(text.trim() || "{}"),
};

function put(body, name, value) {
  const [first, rest] = name.split(".", 2);
  if (rest === undefined) body[first] = value;
  else put((body[first] ??= {}), rest, value);
}

function bodyOf(form) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.dataset.query !== undefined || field.disabled) continue;
    if (field.type === "radio" && !field.checked) continue;
    if (field.dataset.as === "list") {
      body[field.name] ??= [];
      if (field.checked) body[field.name].push(field.value);
      continue;
    }
    const value = field.type === "checkbox" ? field.checked : READ[field.dataset.as ?? "text"](field.value);
    if (value !== undefined) put(body, field.name, value);
  }
  for (const fields of form.querySelectorAll("[data-attributes]")) {
    const changes = changedAttributes(fields);
    if (Object.keys(changes).length) body.merge_attributes = changes;
  }
  return body;
}

function addressOf(form) {
  const url = new URL(form.dataset.action, location.href);
  for (const field of form.elements) {
    if (field.dataset.query !== undefined && field.value) url.searchParams.append(field.name, field.value);
  }
  return url.pathname + url.search;
}

/** Where a name is typed before one may go on. */
function typedName(name, yes) {
  const field = element("input", { id: "typed-name", autocomplete: "off", spellcheck: "false", autofocus: true });
  yes.disabled = true;
  field.addEventListener("input", () => (yes.disabled = field.value.trim() !== name));
  return [element("label", { for: field.id }, "Type its name: ", element("strong", {}, name)), field];
}

/**
 * Asks before something that cannot be undone; resolves to whether to go on.
 * @param {string} [name] has to be typed first.
 */
export function confirmed(question, act = "Go on", name = "") {
  return new Promise((resolve) => {
    const yes = element("button", { value: "yes", class: "danger" }, act);
    const typed = name ? typedName(name, yes) : [];
    // Enter in a field presses the first button that submits, which must be the one that goes on.
    const no = element("button", name ? { type: "button" } : { value: "no", autofocus: true }, "Cancel");
    const asked = element("form", { method: "dialog" }, element("p", { id: "asked" }, question), ...typed,
      element("div", { class: "buttons" }, no, yes));
    const dialog = element("dialog", { "aria-labelledby": "asked" }, asked);
    if (name) no.addEventListener("click", () => dialog.close("no"));
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

const inSentence = (text) => text[0].toUpperCase() + text.slice(1);

async function submit(form) {
  const outcome = form.querySelector(".outcome") ?? form.appendChild(element("p", { class: "outcome", role: "alert" }));
  outcome.textContent = "";
  let body;
  try {
    body = bodyOf(form);
  } catch (error) {
    outcome.textContent = error instanceof SyntaxError ? `This is not JSON: ${error.message}` : inSentence(error.message);
    outcome.classList.add("error");
    return;
  }
  const { confirm, confirmAct, confirmName } = form.dataset;
  if (confirm && !(await confirmed(confirm, confirmAct, confirmName))) return;
  const method = form.dataset.method;
  const empty = method === "DELETE" || form.dataset.empty !== undefined;
  form.querySelectorAll("button").forEach((button) => (button.disabled = true));
  try {
    const answer = await call(method, addressOf(form), empty ? {} : { json: body });
    announce("Done");
    form.dispatchEvent(new CustomEvent("done", { detail: answer, bubbles: true }));
    if (form.dataset.secret) await shownOnce(answer[form.dataset.secret] ?? body.secret, form.dataset.note);
    if (form.dataset.stay === undefined) {
      if (form.dataset.then) location.assign(form.dataset.then);
      else if (form.dataset.open) location.assign(form.dataset.open + encodeURIComponent(answer.id));
      else location.reload();
    }
  } catch (error) {
    outcome.textContent = error.message;
    outcome.classList.add("error");
  } finally {
    form.querySelectorAll("button").forEach((button) => (button.disabled = false));
  }
}

/** Wires the forms below `root`. Without scripts they are not shown. */
export function wireActions(root = document) {
  for (const form of root.querySelectorAll("form[data-action]")) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      submit(form);
    });
  }
}
