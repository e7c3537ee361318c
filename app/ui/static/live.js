// Parts of a page that stay up to date: `<div id="jobs" data-live="3000">`.
//
// The page itself is asked for again, and its part with the same id takes the place of this one, as
// long as that says `data-live`. Nobody is asked while the page is hidden. What has the focus keeps
// it, and what was opened stays open.

function nameOf(focused) {
  if (focused.id) return `#${CSS.escape(focused.id)}`;
  const href = focused.getAttribute("href");
  if (href) return `a[href="${CSS.escape(href)}"]`;
  const action = focused.closest("form")?.dataset.action;
  if (action && focused.localName === "button") return `form[data-action="${CSS.escape(action)}"] button`;
  return focused.localName === "summary" && focused.parentElement.id ? `#${CSS.escape(focused.parentElement.id)} > summary` : null;
}

/** Asks for a part of the page anew. Returns the part that stands there now. */
export async function refreshed(part, wire) {
  let answer;
  try {
    answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
  } catch {
    return part; // the service is away; the next time it may be back
  }
  if (!answer.ok) return part;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const found = page.getElementById(part.id);
  if (!found) return part;
  const fresh = document.adoptNode(found);
  if (part.dataset.seen === fresh.innerHTML && fresh.dataset.live === part.dataset.live) return part;
  fresh.dataset.seen = fresh.innerHTML;
  for (const opened of part.querySelectorAll("details[open][id]")) {
    fresh.querySelector(`#${CSS.escape(opened.id)}`)?.setAttribute("open", "");
  }
  const focused = part.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  part.replaceWith(fresh);
  wire(fresh);
  if (focused) fresh.querySelector(focused)?.focus({ preventScroll: true });
  return fresh;
}

/** Keeps a part up to date for as long as it asks to be. `wire` gives life to what is new. */
export function keepLive(part, wire) {
  part.dataset.seen = "";
  let timer = null;

  async function ask() {
    timer = null;
    // An open dialog belongs to a button of the part: it waits.
    if (!document.querySelector("dialog[open]")) part = await refreshed(part, wire);
    plan();
  }
  function plan() {
    const every = Number(part.dataset.live);
    if (timer === null && every && !document.hidden) timer = setTimeout(ask, every);
  }
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    timer = null;
    if (!document.hidden && part.dataset.live) ask();
  });
  plan();
}
