// A map on a canvas: its view, its drawing, and what lies under a point. It knows no page.

const MARKS = ["circle", "square", "triangle"];
const UNGROUPED = 2; // Kinds of models in no group, whose codes are below 0.
const MAX_MARKED = 8000; // Models drawn with their marks; more are drawn as squares.
const MAX_ZOOM_PX = 400; // Pixels of a unit, in which about one model lies.

/** The mark of the group in this place: eight colours, and then the next mark. */
export function markOf(group) {
  return MARKS[Math.floor(group / 8) % MARKS.length];
}

/** Draws a mark of radius `r` around a point into the current path. */
export function trace(context, mark, x, y, r) {
  if (mark === "circle") {
    context.moveTo(x + r, y);
    context.arc(x, y, r, 0, 2 * Math.PI);
  } else if (mark === "square") {
    context.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
  } else {
    context.moveTo(x, y - r * 1.15);
    context.lineTo(x + r * 1.1, y + r * 0.85);
    context.lineTo(x - r * 1.1, y + r * 0.85);
    context.closePath();
  }
}

/** Models by the square of a grid that they lie in, so that what is near a point is found at once. */
class Grid {
  constructor(x, y, bounds) {
    const area = (bounds.right - bounds.left) * (bounds.top - bounds.bottom);
    this.size = Math.max(1e-6, Math.sqrt((4 * area) / x.length));
    this.bounds = bounds;
    this.columns = Math.floor((bounds.right - bounds.left) / this.size) + 1;
    this.rows = Math.floor((bounds.top - bounds.bottom) / this.size) + 1;
    const cells = Int32Array.from(x, (_, each) => this.cell(x[each], y[each]));
    this.begin = new Int32Array(this.columns * this.rows + 1);
    for (const cell of cells) this.begin[cell + 1]++;
    for (let cell = 0; cell < this.begin.length - 1; cell++) this.begin[cell + 1] += this.begin[cell];
    const next = this.begin.slice();
    this.members = new Int32Array(x.length);
    cells.forEach((cell, each) => (this.members[next[cell]++] = each));
  }

  column(x) {
    return Math.min(this.columns - 1, Math.max(0, Math.floor((x - this.bounds.left) / this.size)));
  }

  row(y) {
    return Math.min(this.rows - 1, Math.max(0, Math.floor((y - this.bounds.bottom) / this.size)));
  }

  cell(x, y) {
    return this.row(y) * this.columns + this.column(x);
  }

  /** Calls `visit` with each model in the squares that a box touches. */
  within(left, right, bottom, top, visit) {
    for (let row = this.row(bottom); row <= this.row(top); row++) {
      const from = this.begin[row * this.columns + this.column(left)];
      const to = this.begin[row * this.columns + this.column(right) + 1];
      for (let place = from; place < to; place++) visit(this.members[place]);
    }
  }
}

/** How far the nearest other model is from a model, for half of some of them. */
function spacingOf({ models, x, y, grid }) {
  const step = Math.max(1, Math.floor(models.length / 300));
  const far = [];
  for (let each = 0; each < models.length; each += step) {
    let nearest = Infinity;
    for (let reach = grid.size / 4; nearest === Infinity && reach < 64 * grid.size; reach *= 2) {
      grid.within(x[each] - reach, x[each] + reach, y[each] - reach, y[each] + reach, (other) => {
        const apart = Math.hypot(x[other] - x[each], y[other] - y[each]);
        if (other !== each && apart <= reach) nearest = Math.min(nearest, apart);
      });
    }
    if (nearest < Infinity) far.push(nearest);
  }
  return far.sort((a, b) => a - b)[Math.floor(far.length / 2)] ?? 1;
}

function boundsOf(x, y) {
  let [left, right, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let each = 0; each < x.length; each++) {
    left = Math.min(left, x[each]);
    right = Math.max(right, x[each]);
    bottom = Math.min(bottom, y[each]);
    top = Math.max(top, y[each]);
  }
  return { left: left - 1, right: right + 1, bottom: bottom - 1, top: top + 1 };
}

/** The places of models, the groups that colour them, and what of it is seen. */
export class MapView {
  constructor(canvas, { models, x, y }) {
    this.canvas = canvas;
    this.models = models;
    this.x = Float32Array.from(x);
    this.y = Float32Array.from(y);
    this.bounds = boundsOf(this.x, this.y);
    this.grid = new Grid(this.x, this.y, this.bounds);
    this.spacing = spacingOf(this);
    this.codes = new Int16Array(models.length).fill(-1);
    this.byGroup = [new Int32Array(0), Int32Array.from(models, (_, each) => each)];
    this.hidden = new Set();
    this.marked = -1;
    this.centre = { x: (this.bounds.left + this.bounds.right) / 2, y: (this.bounds.bottom + this.bounds.top) / 2 };
    this.zoom = 1;
    this.onMoved = () => {};
    this.measure();
  }

  /** Takes the size of the canvas on the page. */
  measure() {
    this.width = Math.max(1, this.canvas.clientWidth);
    this.height = Math.max(1, this.canvas.clientHeight);
    this.sharpness = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * this.sharpness);
    this.canvas.height = Math.round(this.height * this.sharpness);
  }

  /** Pixels of a unit. */
  get scale() {
    const { left, right, bottom, top } = this.bounds;
    return this.zoom * Math.min(this.width / (right - left), this.height / (top - bottom));
  }

  get maxZoom() {
    return Math.max(1, (MAX_ZOOM_PX * this.zoom) / this.scale);
  }

  /** Colours models by groups: the place of each one's group, -1 for none, -2 for one newer than they are. */
  group(codes, groups) {
    this.codes = Int16Array.from(codes);
    const members = Array.from({ length: groups + UNGROUPED }, () => []);
    this.codes.forEach((code, each) => members[code + UNGROUPED].push(each));
    this.byGroup = members.map((some) => Int32Array.from(some));
    this.hidden.clear();
    this.redraw();
  }

  /** Sees what is around a point. */
  look({ x, y, zoom }) {
    const { left, right, bottom, top } = this.bounds;
    this.centre = { x: Math.min(right, Math.max(left, x)), y: Math.min(top, Math.max(bottom, y)) };
    this.zoom = Math.min(this.maxZoom, Math.max(0.5, zoom));
    this.redraw();
    this.onMoved();
  }

  lookAtAll() {
    const { left, right, bottom, top } = this.bounds;
    this.look({ x: (left + right) / 2, y: (bottom + top) / 2, zoom: 1 });
  }

  /** Moves by so many pixels. */
  move(dx, dy) {
    this.look({ x: this.centre.x + dx / this.scale, y: this.centre.y - dy / this.scale, zoom: this.zoom });
  }

  /** Zooms, while the point below a pixel stays where it is. */
  zoomBy(factor, at = { x: this.width / 2, y: this.height / 2 }) {
    const before = this.pointAt(at);
    const zoom = Math.min(this.maxZoom, Math.max(0.5, this.zoom * factor));
    const share = this.zoom / zoom;
    this.look({
      x: before.x + (this.centre.x - before.x) * share,
      y: before.y + (this.centre.y - before.y) * share,
      zoom,
    });
  }

  pointAt(pixel) {
    return {
      x: this.centre.x + (pixel.x - this.width / 2) / this.scale,
      y: this.centre.y - (pixel.y - this.height / 2) / this.scale,
    };
  }

  pixelOf(each) {
    return {
      x: this.width / 2 + (this.x[each] - this.centre.x) * this.scale,
      y: this.height / 2 - (this.y[each] - this.centre.y) * this.scale,
    };
  }

  isShown(each) {
    return !this.hidden.has(this.codes[each]);
  }

  /** The radius of a model's mark, in pixels. */
  get radius() {
    const least = this.models.length > 20000 ? 1 : this.models.length > 2000 ? 1.6 : 3;
    return Math.min(9, Math.max(least, 0.55 * this.spacing * this.scale));
  }

  /** The model nearest to a pixel, no more than `within` pixels away; -1 for none. */
  modelAt(pixel, within = 10) {
    const point = this.pointAt(pixel);
    const reach = Math.max(within, this.radius) / this.scale;
    let found = -1;
    let nearest = reach * reach;
    this.grid.within(point.x - reach, point.x + reach, point.y - reach, point.y + reach, (each) => {
      const far = (this.x[each] - point.x) ** 2 + (this.y[each] - point.y) ** 2;
      if (far <= nearest && this.isShown(each)) [found, nearest] = [each, far];
    });
    return found;
  }

  /** The models in view, nearest to its middle first: `most` of them, and how many there are. */
  inView(most) {
    const reach = { x: this.width / 2 / this.scale, y: this.height / 2 / this.scale };
    const { x, y } = this.centre;
    const seen = [];
    this.grid.within(x - reach.x, x + reach.x, y - reach.y, y + reach.y, (each) => {
      const inside = Math.abs(this.x[each] - x) <= reach.x && Math.abs(this.y[each] - y) <= reach.y;
      if (inside && this.isShown(each)) seen.push(each);
    });
    const far = (each) => (this.x[each] - x) ** 2 + (this.y[each] - y) ** 2;
    const count = seen.length;
    if (count > 4 * most) {
      const some = seen.map(far).sort((a, b) => a - b)[most];
      return { count, models: seen.filter((each) => far(each) < some).sort((a, b) => far(a) - far(b)) };
    }
    return { count, models: seen.sort((a, b) => far(a) - far(b)).slice(0, most) };
  }

  /** Draws once, before the next frame. */
  redraw() {
    this.pending ??= requestAnimationFrame(() => this.drawNow());
  }

  /** Draws at once: a canvas that was measured again is empty until then. */
  drawNow() {
    cancelAnimationFrame(this.pending);
    this.pending = null;
    const context = this.canvas.getContext("2d");
    context.setTransform(this.sharpness, 0, 0, this.sharpness, 0, 0);
    this.draw(context);
  }

  /** Draws what is in view; the colours are those of the page's style. */
  draw(context) {
    const style = getComputedStyle(this.canvas);
    const color = (name) => style.getPropertyValue(name).trim();
    context.fillStyle = color("--card");
    context.fillRect(0, 0, this.width, this.height);
    const r = this.radius;
    const marked = this.models.length <= MAX_MARKED || this.inView(1).count <= MAX_MARKED;
    context.globalAlpha = marked ? 0.85 : 0.8;
    // Models in no group first, and the largest groups before the small ones, which stay on top.
    this.byGroup.forEach((members, place) => {
      const group = place - UNGROUPED;
      const radius = group < 0 && this.byGroup.length > UNGROUPED ? r * 0.8 : r;
      if (this.hidden.has(group) || !members.length) return;
      context.fillStyle = color(this.colorName(group));
      if (marked) this.drawMarks(context, members, group < 0 ? "circle" : this.markName(group), radius);
      else this.drawSquares(context, members, radius);
    });
    context.globalAlpha = 1;
    if (this.marked >= 0) this.drawRing(context, color("--ink"));
  }

  /** The name of a group's colour. A page may set another rule. */
  colorName(group) {
    return group < 0 ? "--map-none" : `--map-${group % 8}`;
  }

  markName(group) {
    return markOf(group);
  }

  drawMarks(context, members, mark, r) {
    const { scale } = this;
    const [left, top] = [this.width / 2 - this.centre.x * scale, this.height / 2 + this.centre.y * scale];
    context.beginPath();
    for (const each of members) {
      const px = left + this.x[each] * scale;
      const py = top - this.y[each] * scale;
      if (px > -r && px < this.width + r && py > -r && py < this.height + r) trace(context, mark, px, py, r);
    }
    context.fill();
  }

  drawSquares(context, members, r) {
    const { scale, width, height } = this;
    const [left, top] = [width / 2 - this.centre.x * scale - r, height / 2 + this.centre.y * scale - r];
    for (let place = 0; place < members.length; place++) {
      const px = left + this.x[members[place]] * scale;
      const py = top - this.y[members[place]] * scale;
      if (px > -9 && px < width && py > -9 && py < height) context.fillRect(px, py, 2 * r, 2 * r);
    }
  }

  drawRing(context, color) {
    const { x, y } = this.pixelOf(this.marked);
    context.strokeStyle = color;
    context.lineWidth = 2.5;
    context.beginPath();
    context.arc(x, y, this.radius + 5, 0, 2 * Math.PI);
    context.stroke();
  }
}
