// The page of a space's map: it draws the places, colours and finds models, and has a map drawn.
//
// The address holds what is seen: `color`, `x`, `y`, `zoom`, `hide` (groups) and `model` (marked).

import { call } from "./api.js";
import { announce, counted, debounced, element, fromAddress, nameInPath, rooted, setAddress, svg } from "./dom.js";
import { download, downloadCsv, fileName } from "./exports.js";
import { wireFinding } from "./map-finding.js";
import { wireGestures } from "./map-gestures.js";
import { MapView, markOf, trace } from "./map-view.js";

const MAX_LISTED = 12;
const POLL_MS = 400;
const [NONE, NEWER] = [-1, -2]; // Codes of models in no group, and of those that came after the clustering.
const GRAPHML = "application/graphml+xml";

const page = document.getElementById("map-page");
const byId = (id) => document.getElementById(id);

// --- having a map drawn ------------------------------------------------------------------------

async function follow(form, job) {
  const shown = form.querySelector(".drawing");
  const bar = form.querySelector("progress");
  const stage = form.querySelector(".stage");
  form.querySelector("button")?.setAttribute("hidden", "");
  shown.hidden = false;
  for (;;) {
    const { state, progress, error } = await call("GET", rooted(`/v1/jobs/${job}`));
    if (state === "succeeded") return location.reload();
    if (state !== "queued" && state !== "running") throw new Error(error?.detail ?? `the job is ${state}`);
    if (progress?.total) bar.value = progress.done / progress.total;
    else bar.removeAttribute("value");
    const said = state === "queued" ? "waiting for a worker" : progress?.stage || "starting";
    if (stage.textContent !== said) announce(`Drawing the map: ${said}`);
    stage.textContent = said;
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}

function wireDrawing() {
  const form = byId("draw");
  if (!form) return;
  const started = (job) => follow(form, job).catch((error) => {
    const shown = form.querySelector(".drawing");
    shown.replaceChildren(element("span", { class: "error", role: "alert" }, error.message));
    form.querySelector("button")?.removeAttribute("hidden");
  });
  form.addEventListener("done", (event) => started(event.detail.id));
  if (form.dataset.job) started(form.dataset.job);
}

// --- the map -----------------------------------------------------------------------------------

class MapPage {
  constructor(places) {
    this.coloring = { kind: "categories", groups: [], codes: [], others: 0 };
    this.view = new MapView(byId("map"), places);
    this.view.colorName = (group) => this.colorName(group);
    this.view.markName = (group) => (this.coloring.kind === "ranges" ? "circle" : markOf(group));
    this.listLater = debounced(() => this.list(), 150);
    this.keepLater = debounced(() => this.keep(), 250);
    this.view.onMoved = () => {
      this.listLater();
      this.keepLater();
    };
    this.restore();
    this.wire();
  }

  colorName(group) {
    if (group < 0) return this.coloring.groups.length ? "--map-none" : "--map-0";
    if (this.coloring.kind === "ranges") return `--map-range-${group}`;
    return `--map-${group % 8}`;
  }

  restore() {
    const number = (name) => (fromAddress(name) === "" ? NaN : Number(fromAddress(name)));
    const [x, y, zoom] = [number("x"), number("y"), number("zoom")];
    if (Number.isFinite(x) && Number.isFinite(y)) this.view.look({ x, y, zoom: zoom > 0 ? zoom : 1 });
    const marked = this.view.models.indexOf(fromAddress("model"));
    if (marked >= 0) this.view.marked = marked;
    this.view.redraw();
  }

  keep() {
    const { centre, zoom, marked, models, hidden } = this.view;
    const [left, bottom] = [this.view.bounds.left, this.view.bounds.bottom];
    const isWhole = zoom === 1 && Math.abs(centre.x - (left + this.view.bounds.right) / 2) < 1e-6
      && Math.abs(centre.y - (bottom + this.view.bounds.top) / 2) < 1e-6;
    setAddress({
      x: isWhole ? null : centre.x.toFixed(2),
      y: isWhole ? null : centre.y.toFixed(2),
      zoom: isWhole ? null : zoom.toPrecision(4),
      model: marked >= 0 ? models[marked] : null,
      hide: [...hidden].map((group) => this.nameOf(group)).join("\n") || null,
    });
  }

  nameOf(group) {
    if (group >= 0) return this.coloring.groups[group].name;
    if (group === NEWER) return "newer than the clustering";
    return this.coloring.others ? `${this.coloring.others} other groups, or none` : "in no group";
  }

  groupOf(each) {
    return this.coloring.groups.length ? this.nameOf(this.view.codes[each]) : "";
  }

  // Colours and their legend

  color(answer) {
    this.coloring = answer.coloring;
    this.by = answer.by;
    this.view.group(answer.coloring.codes, answer.coloring.groups.length);
    this.legend();
    this.list();
    const named = answer.by && answer.by !== "nothing" ? `, coloured by ${answer.by.replace(":", " ")}` : "";
    byId("map").setAttribute("aria-label", `Map of ${this.view.models.length.toLocaleString()} models${named}`);
    byId("in-view-group").textContent = named ? answer.by : "group";
  }

  hide(names) {
    this.coloring.groups.forEach((group, place) => {
      if (names.includes(group.name)) this.view.hidden.add(place);
    });
    for (const rest of [NONE, NEWER]) if (names.includes(this.nameOf(rest))) this.view.hidden.add(rest);
    this.view.redraw();
    this.legend();
  }

  legend() {
    const entries = this.coloring.groups.map((group, place) => [place, group.name, group.count]);
    for (const rest of entries.length ? [NONE, NEWER] : []) {
      const count = this.coloring.codes.filter((code) => code === rest).length;
      if (count) entries.push([rest, this.nameOf(rest), count]);
    }
    byId("map-legend").replaceChildren(...entries.map(([place, name, count]) => {
      const button = element("button", { type: "button", class: "small", "aria-pressed": String(!this.view.hidden.has(place)) },
        this.sign(place), element("span", {}, name), " ", element("span", { class: "quiet" }, count.toLocaleString()));
      button.addEventListener("click", () => this.toggle(place, button));
      return element("li", {}, button);
    }));
  }

  sign(place) {
    const mark = place < 0 ? "circle" : this.view.markName(place);
    const shape = {
      circle: () => svg("circle", { cx: 6, cy: 6, r: 4.6 }),
      square: () => svg("rect", { x: 1.8, y: 1.8, width: 8.4, height: 8.4 }),
      triangle: () => svg("path", { d: "M6 .8 11.4 10.6 .6 10.6z" }),
    }[mark]();
    const drawn = svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, shape);
    drawn.style.setProperty("fill", `var(${this.colorName(place)})`);
    return drawn;
  }

  toggle(place, button) {
    const { hidden } = this.view;
    if (!hidden.delete(place)) hidden.add(place);
    button.setAttribute("aria-pressed", String(!hidden.has(place)));
    this.view.redraw();
    this.listLater();
    this.keepLater();
  }

  // What is seen, in words

  list() {
    const { count, models } = this.view.inView(MAX_LISTED);
    byId("in-view-count").textContent = `${count.toLocaleString()} of ${counted(this.view.models.length, "model")}`
      + (count > models.length ? `, the ${models.length} nearest to the middle are listed` : "");
    byId("in-view").tBodies[0].replaceChildren(...models.map((each) => element("tr", {},
      element("th", { scope: "row" }, element("a", { class: "model", href: this.addressOf(each) }, this.view.models[each])),
      element("td", {}, this.groupOf(each)))));
  }

  addressOf(each) {
    return page.dataset.models + nameInPath(this.view.models[each]);
  }

  open() {
    const { marked, width, height } = this.view;
    const each = marked >= 0 ? marked : this.view.modelAt({ x: width / 2, y: height / 2 }, Infinity);
    if (each >= 0) location.assign(this.addressOf(each));
  }

  // Pointing and finding

  hover(pixel) {
    const tip = byId("map-tip");
    const each = pixel ? this.view.modelAt(pixel) : -1;
    tip.hidden = each < 0;
    this.view.canvas.classList.toggle("on-model", each >= 0);
    if (each < 0) return;
    const group = this.groupOf(each);
    tip.replaceChildren(this.view.models[each], ...(group ? [element("span", { class: "quiet" }, group)] : []));
    const { x, y } = this.view.pixelOf(each);
    tip.style.setProperty("left", `${Math.min(x + 12, Math.max(0, this.view.width - tip.offsetWidth - 4))}px`);
    tip.style.setProperty("top", `${y > this.view.height - 70 ? y - tip.offsetHeight - 10 : y + 12}px`);
  }

  tap(pixel, event) {
    const each = this.view.modelAt(pixel, event.pointerType === "mouse" ? 10 : 20);
    if (each < 0) {
      this.mark(-1);
    } else if (event.ctrlKey || event.metaKey || event.button === 1) {
      window.open(this.addressOf(each), "_blank", "noopener");
    } else if (event.pointerType === "mouse" || each === this.view.marked) {
      location.assign(this.addressOf(each));
    } else {
      this.mark(each);
      this.hover(pixel);
    }
  }

  mark(each) {
    this.view.marked = each;
    this.view.redraw();
    this.keepLater();
  }

  jump(each) {
    this.mark(each);
    const near = (6 * this.view.zoom) / this.view.scale; // at which marks do not cover each other
    this.view.look({ x: this.view.x[each], y: this.view.y[each], zoom: Math.max(this.view.zoom, near) });
    announce(`${this.view.models[each]} is in the middle of the map${this.groupOf(each) ? `, ${this.groupOf(each)}` : ""}`);
  }

  // Wiring

  wire() {
    const { view } = this;
    wireGestures(view, {
      hover: (pixel) => this.hover(pixel),
      tap: (pixel, event) => this.tap(pixel, event),
      open: () => this.open(),
    });
    const zooms = { in: () => view.zoomBy(1.6), out: () => view.zoomBy(1 / 1.6), all: () => view.lookAtAll() };
    for (const button of page.querySelectorAll("[data-zoom]")) button.addEventListener("click", zooms[button.dataset.zoom]);
    new ResizeObserver(() => {
      view.measure();
      view.drawNow();
      this.listLater();
    }).observe(view.canvas);
    new MutationObserver(() => view.redraw()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view.redraw());
    byId("map-color").addEventListener("change", (event) => {
      setAddress({ color: event.target.value || "nothing", hide: null });
      askColors(event.target.value).then((answer) => this.color(answer), (error) => this.say(error.message));
    });
    byId("map-png").addEventListener("click", () => this.png());
    byId("map-csv").addEventListener("click", () => this.csv());
    byId("map-graphml").addEventListener("click", (event) => this.graphml(event.target));
    wireFinding(view.models, byId("map-search"), (each) => this.jump(each));
  }

  say(text) {
    announce(text);
    byId("map-state").textContent = text;
    byId("map-state").hidden = false;
  }

  // To take along

  async png() {
    const { view, coloring } = this;
    const shown = coloring.groups.map((_, place) => place).filter((place) => !view.hidden.has(place));
    const [line, below] = [22, shown.length ? 22 * Math.ceil(shown.length / 3) + 16 : 0];
    const canvas = element("canvas", {});
    [canvas.width, canvas.height] = [view.width * 2, (view.height + below) * 2];
    const context = canvas.getContext("2d");
    context.setTransform(2, 0, 0, 2, 0, 0);
    const style = getComputedStyle(view.canvas);
    context.fillStyle = style.getPropertyValue("--card");
    context.fillRect(0, 0, view.width, view.height + below);
    view.draw(context);
    context.font = "13px system-ui, sans-serif";
    shown.forEach((place, at) => {
      const [x, y] = [18 + (at % 3) * (view.width / 3), view.height + 20 + Math.floor(at / 3) * line];
      context.fillStyle = style.getPropertyValue(this.colorName(place));
      context.beginPath();
      trace(context, view.markName(place), x, y - 4, 5);
      context.fill();
      context.fillStyle = style.getPropertyValue("--ink");
      context.fillText(this.nameOf(place), x + 12, y, view.width / 3 - 36);
    });
    const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
    download(blob, fileName(page.dataset.name, "png"));
  }

  csv() {
    const rows = [["model", "x", "y", this.by || "group"]];
    const { view } = this;
    view.models.forEach((name, each) => {
      if (view.isShown(each)) rows.push([name, view.x[each].toFixed(2), view.y[each].toFixed(2), this.groupOf(each)]);
    });
    downloadCsv(rows, page.dataset.name);
  }

  async graphml(button) {
    button.disabled = true;
    try {
      const answer = await fetch(page.dataset.graph, { headers: { Accept: GRAPHML }, credentials: "same-origin" });
      if (!answer.ok) throw new Error((await answer.json()).detail);
      download(await answer.blob(), fileName(page.dataset.name, "graphml"));
    } catch (error) {
      this.say(error.message);
    } finally {
      button.disabled = false;
    }
  }
}

/** The colours by a choice; null for what the service chooses, "" for none. */
function askColors(by) {
  const query = by === null ? "" : `?by=${encodeURIComponent(by || "nothing")}`;
  return call("GET", page.dataset.colors + query);
}

function fillChoices(choices, by) {
  const select = byId("map-color");
  const labels = { cluster: "cluster", base: "base model", owner: "owner", tag: "tag" };
  const known = choices.includes(by) || !by || by === "nothing" ? choices : [...choices, by];
  const groups = { "": [], tag: [], attribute: [] };
  for (const choice of known) groups[labels[choice] ? "" : choice.split(":", 1)[0]]?.push(choice);
  const option = (choice) => element("option", { value: choice }, labels[choice] ?? choice.slice(choice.indexOf(":") + 1));
  select.append(...groups[""].map(option));
  for (const [key, text] of [["tag", "with the tag"], ["attribute", "by attribute"]]) {
    if (groups[key].length) select.append(element("optgroup", { label: text }, ...groups[key].map(option)));
  }
  select.value = by === "nothing" ? "" : by;
}

async function start() {
  const state = byId("map-state");
  try {
    const chosen = new URL(location.href).searchParams.get("color");
    const choices = call("GET", page.dataset.choices);
    const colors = askColors(chosen);
    const map = new MapPage(await call("GET", page.dataset.places));
    const hidden = fromAddress("hide").split("\n");
    map.color(await colors);
    map.hide(hidden);
    map.list();
    state.hidden = true;
    page.dataset.ready = "";
    fillChoices((await choices).choices, map.by);
    page.dataset.complete = "";
  } catch (error) {
    state.textContent = error.message;
    state.classList.add("error");
  }
}

wireDrawing();
if (page) start();
