// Completion of a search box: a combobox (WAI-ARIA 1.2) over what the service suggests.

import { call } from "./api.js";
import { announce, counted, debounced, element, rooted } from "./dom.js";

const DELAY_MS = 60;

/** The last term of a query, as it is typed, and what stands before it. */
function split(text) {
  const match = /(?:[a-z]+:)?(?:"(?:[^"]|"")*|[^\s"]*)$/.exec(text);
  return [text.slice(0, match.index), match[0]];
}

/** A text as suggestions are found by it: in any case, without its field and quotes. */
function plain(term) {
  return term.replace(/^[a-z]+:/, "").replaceAll('"', "").toLowerCase();
}

/**
 * Lets an input suggest; `data-completions` is the address that it asks, with its last term, or with
 * all of its text if it says `data-whole`.
 */
export function makeCompletion(input) {
  const list = element("ul", { class: "options", role: "listbox", id: `${input.id}-options`, hidden: true });
  list.setAttribute("aria-label", "Suggestions");
  input.after(list);
  for (const [name, value] of Object.entries({
    role: "combobox", "aria-autocomplete": "list", "aria-controls": list.id, "aria-expanded": "false",
  })) input.setAttribute(name, value);
  let pending = null;
  let active = -1;

  function close() {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  /** The term to complete. */
  function typed() {
    return input.dataset.whole === undefined ? split(input.value)[1] : input.value.trim();
  }

  function mark(place) {
    const options = [...list.children];
    active = (place + options.length) % options.length;
    options.forEach((option, each) => option.setAttribute("aria-selected", String(each === active)));
    input.setAttribute("aria-activedescendant", options[active].id);
    options[active].scrollIntoView({ block: "nearest" });
  }

  function take(option) {
    if (option.dataset.address) {
      location.assign(rooted(option.dataset.address));
      return;
    }
    const [before] = split(input.value);
    input.value = before + option.dataset.text + (option.dataset.text.endsWith(":") ? "" : " ");
    close();
    input.focus();
    if (!option.dataset.text.endsWith(":")) input.form.requestSubmit();
    else ask();
  }

  /** Takes away at once what the text no longer leads to: the next key may come before the service's answer. */
  function narrow() {
    pending?.abort();
    const marked = list.children[active];
    const wanted = plain(typed());
    for (const option of [...list.children]) {
      if (!option.firstChild.textContent.toLowerCase().includes(wanted)) option.remove();
    }
    active = [...list.children].indexOf(marked);
    if (active < 0) input.removeAttribute("aria-activedescendant");
    if (!list.children.length) close();
  }

  function show(items) {
    const { text, address } = list.children[active]?.dataset ?? {};
    list.replaceChildren(...items.map((item, place) =>
      element("li", {
        role: "option", id: `${list.id}-${place}`, "aria-selected": "false",
        "data-text": item.text, "data-address": item.address ?? null,
      }, element("span", {}, item.shown), element("small", {}, item.kind))));
    if (!items.length) return close();
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    announce(counted(items.length, "suggestion"));
    active = -1;
    const place = items.findIndex((item) => item.text === text && item.address === address);
    if (place >= 0) mark(place);
  }

  async function ask() {
    pending?.abort();
    const term = typed();
    if (!term) return close();
    pending = new AbortController();
    const address = `${input.dataset.completions}?q=${encodeURIComponent(term)}`;
    try {
      show((await call("GET", address, { signal: pending.signal })).items);
    } catch (error) {
      if (error.name !== "AbortError") close();
    }
  }

  input.addEventListener("input", narrow);
  input.addEventListener("input", debounced(ask, DELAY_MS));
  input.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    if (event.key === "ArrowDown") mark(active + 1);
    else if (event.key === "ArrowUp") mark(active < 0 ? -1 : active - 1);
    else if (event.key === "Escape") close();
    else if (event.key === "Enter" && active >= 0) take(list.children[active]);
    else return;
    event.preventDefault();
  });
  list.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    const option = event.target.closest("li");
    if (option) take(option);
  });
  input.addEventListener("blur", close);
}
