// Forms that change something through the JSON API.
//
// `<form data-method="PATCH" data-action="/v1/..." data-then="/spaces/x" data-confirm="Delete it?">`
// Each named field is a member of the body; `data-as` says how its text is read: "lines" (a list of
// texts), "json", "number", "optional" (null if empty). A field with `data-query` goes into the query
// of the address instead. After it the page `data-then` opens, or this one anew. What the service
// refuses stands in the form's `.outcome`.

import { call } from "./api.js";
import { announce, element } from "./dom.js";

const READ = {
  text: (text) => text,
  lines: (text) => text.split("\n").map((line) => line.trim()).filter(Boolean),
  number: (text) => (text.trim() === "" ? undefined : Number(text)),
  optional: (text) => (text.trim() === "" ? null : text.trim()),
  json: (text) => JSON.parse(text.trim() || "{}"),
};

function bodyOf(form) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.dataset.query !== undefined || field.disabled) continue;
    if (field.type === "radio" && !field.checked) continue;
    const value = field.type === "checkbox" ? field.checked : READ[field.dataset.as ?? "text"](field.value);
    if (value !== undefined) body[field.name] = value;
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

/** Asks before something that cannot be undone; resolves to whether to go on. */
export function confirmed(question, act = "Go on") {
  return new Promise((resolve) => {
    const no = element("button", { value: "no", autofocus: true }, "Cancel");
    const yes = element("button", { value: "yes", class: "danger" }, act);
    const asked = element("form", { method: "dialog" }, element("p", { id: "asked" }, question),
      element("div", { class: "buttons" }, no, yes));
    const dialog = element("dialog", { "aria-labelledby": "asked" }, asked);
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

async function submit(form) {
  const outcome = form.querySelector(".outcome") ?? form.appendChild(element("p", { class: "outcome", role: "alert" }));
  outcome.textContent = "";
  let body;
  try {
    body = bodyOf(form);
  } catch (error) {
    outcome.textContent = `This is not JSON: ${error.message}`;
    outcome.classList.add("error");
    return;
  }
  if (form.dataset.confirm && !(await confirmed(form.dataset.confirm, form.dataset.confirmAct))) return;
  const method = form.dataset.method;
  const empty = method === "DELETE" || form.dataset.empty !== undefined;
  form.querySelectorAll("button").forEach((button) => (button.disabled = true));
  try {
    const answer = await call(method, addressOf(form), empty ? {} : { json: body });
    announce("Done");
    form.dispatchEvent(new CustomEvent("done", { detail: answer, bubbles: true }));
    if (form.dataset.stay === undefined) {
      if (form.dataset.then) location.assign(form.dataset.then);
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
