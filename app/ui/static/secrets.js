// Secrets: made by the browser where the visitor chooses one, and shown once.

import { announce, copyText, element } from "./dom.js";

const CHARACTERS = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const LENGTH = 40;

/** A secret text: 40 characters of 57, by the browser's own generator. */
export function madeSecret() {
  let text = "";
  while (text.length < LENGTH) {
    for (const byte of crypto.getRandomValues(new Uint8Array(64))) {
      // 228 is the largest multiple of 57 that a byte holds: above it some would be likelier.
      if (byte < 228 && text.length < LENGTH) text += CHARACTERS[byte % CHARACTERS.length];
    }
  }
  return text;
}

/** Shows a secret with a button to copy it; resolves once the visitor has it. */
export function shownOnce(secret, note) {
  return new Promise((resolve) => {
    const value = element("input", { id: "secret-shown", readonly: true, value: secret, autocomplete: "off", spellcheck: "false" });
    const copy = element("button", { type: "button", class: "primary", autofocus: true }, "Copy");
    const done = element("button", { value: "done" }, "I have it");
    const form = element("form", { method: "dialog" },
      element("h2", { id: "secret-title" }, "Keep this now"),
      element("p", {}, note ?? "It is shown this once: the service keeps no copy that it could show again."),
      element("label", { for: "secret-shown", class: "hidden" }, "Secret"), value,
      element("div", { class: "buttons" }, copy, done));
    const dialog = element("dialog", { class: "secret", "aria-labelledby": "secret-title" }, form);
    copy.addEventListener("click", async () => {
      value.select();
      await copyText(secret);
      copy.textContent = "Copied";
      announce("Copied");
    });
    // Escape would lose it: a visitor says that it is kept.
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
    copy.focus();
  });
}

/** Wires the buttons `data-makes="id"`, which put a new secret into the field of this id. */
export function wireSecrets(root = document) {
  for (const button of root.querySelectorAll("[data-makes]")) {
    const field = document.getElementById(button.dataset.makes);
    button.addEventListener("click", () => {
      field.value = madeSecret();
      announce("A secret was made");
    });
  }
}
