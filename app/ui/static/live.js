// Parts of a page that stay up to date: `<div id="jobs" data-live="3000">`.
//
// The page itself is asked for again, and its parts with the same ids take the places of these, as
// long as they say `data-live`. A hidden page asks nothing. What has the focus keeps it,
// and what was opened stays open.

const seen = new WeakMap();

/** A selector of what has the focus, if what comes in its place can be known by one. */
function nameOf(focused) {
  if (focused.id) return `#${CSS.escape(focused.id)}`;
  const href = focused.getAttribute("href");
  if (href) return `a[href="${CSS.escape(href)}"]`;
  const action = focused.closest("form")?.dataset.action;
  if (action && focused.localName === "button") return `form[data-action="${CSS.escape(action)}"] button`;
  return focused.localName === "summary" && focused.parentElement.id ? `#${CSS.escape(focused.parentElement.id)} > summary` : null;
}

/** The page as it is now; null while the service is away. */
async function asked() {
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
    return answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
  } catch {
    return null;
  }
}

/** Puts the part of a page in the place of `part`, unless it is the same. Returns what is there now. */
function replaced(part, page, wire) {
  const found = page.getElementById(part.id);
  if (!found || seen.get(part) === found.outerHTML) return part;
  const text = found.outerHTML;
  const fresh = document.adoptNode(found);
  seen.set(fresh, text);
  for (const opened of part.querySelectorAll("details[open][id]")) {
    fresh.querySelector(`#${CSS.escape(opened.id)}`)?.setAttribute("open", "");
  }
  const focused = part.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  part.replaceWith(fresh);
  wire(fresh);
  if (focused) fresh.querySelector(focused)?.focus({ preventScroll: true });
  return fresh;
}

/** Asks for a part of the page again. Returns the part that stands there now. */
export async function refreshed(part, wire) {
  const page = await asked();
  return page ? replaced(part, page, wire) : part;
}

/** Keeps parts up to date for as long as they ask to be. `wire` gives life to what is new. */
export function keepLive(parts, wire) {
  let timer = null;

  async function ask() {
    timer = null;
    // An open dialog belongs to a button of a part: it waits.
    if (!document.querySelector("dialog[open]")) {
      const page = await asked();
      if (page) parts = parts.map((part) => (part.dataset.live ? replaced(part, page, wire) : part));
    }
    plan();
  }
  function plan() {
    const every = Math.min(...parts.map((part) => Number(part.dataset.live) || Infinity));
    if (timer === null && every < Infinity && !document.hidden) timer = setTimeout(ask, every);
  }
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    timer = null;
    if (!document.hidden && parts.some((part) => part.dataset.live)) ask();
  });
  plan();
}
