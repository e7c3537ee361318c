// The map's own search: a combobox (WAI-ARIA 1.2) over the names of its models.

import { element } from "./dom.js";

const MAX_FOUND = 10;

/** Finds the places of names that begin with a text, then of those that hold it. */
function finder(models) {
  let lowered = null;
  return (text) => {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return [];
    lowered ??= models.map((name) => name.toLowerCase());
    const [first, others] = [[], []];
    for (let each = 0; each < lowered.length && first.length < MAX_FOUND; each++) {
      const at = lowered[each].indexOf(wanted);
      if (at === 0) first.push(each);
      else if (at > 0 && others.length < MAX_FOUND) others.push(each);
    }
    return [...first, ...others].slice(0, MAX_FOUND);
  };
}

/**
 * Lets an input find names, by any part of them.
 *
 * @param models the names.
 * @param jump takes the place of the name that was chosen.
 */
export function wireFinding(models, input, jump) {
  const find = finder(models);
  const list = element("ul", { class: "options", role: "listbox", id: "map-found", "aria-label": "Models on the map", hidden: true });
  input.after(list);
  for (const [name, value] of Object.entries({
    role: "combobox", "aria-autocomplete": "list", "aria-controls": list.id, "aria-expanded": "false",
  })) input.setAttribute(name, value);
  let active = 0;
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const choose = (option) => {
    input.value = option.textContent;
    close();
    jump(Number(option.dataset.model));
  };
  const highlight = (place) => {
    active = (place + list.children.length) % list.children.length;
    [...list.children].forEach((option, each) => option.setAttribute("aria-selected", String(each === active)));
    input.setAttribute("aria-activedescendant", list.children[active].id);
    list.children[active].scrollIntoView({ block: "nearest" });
  };
  const show = () => {
    const found = find(input.value);
    list.replaceChildren(...found.map((each, place) => element("li", {
      role: "option", id: `map-found-${place}`, "aria-selected": "false", "data-model": each,
    }, models[each])));
    if (!found.length) return close();
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    highlight(0);
  };
  input.addEventListener("input", show);
  input.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    if (event.key === "ArrowDown") highlight(active + 1);
    else if (event.key === "ArrowUp") highlight(active - 1);
    else if (event.key === "Enter") choose(list.children[active]);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
  list.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    const option = event.target.closest("li");
    if (option) choose(option);
  });
  input.addEventListener("blur", close);
}
