// Moving over a map: drag, wheel, two fingers, and keys.

const KEY_STEP_PX = 60;
const TAP_PX = 5;
const TAP_MS = 600;

function pixelOf(canvas, event) {
  const { left, top } = canvas.getBoundingClientRect();
  return { x: event.clientX - left, y: event.clientY - top };
}

/**
 * Lets a view be moved.
 * @param {object} on `hover(pixel)`, or null where the pointer left; `tap(pixel, event)`; `open()`.
 */
export function wireGestures(view, on) {
  const { canvas } = view;
  const pointers = new Map();
  let began = null;
  let spread = 0;

  const middle = () => {
    const all = [...pointers.values()];
    const sum = all.reduce((a, b) => ({ x: a.x + b.x, y: a.y + b.y }));
    return { x: sum.x / all.length, y: sum.y / all.length };
  };
  const distance = () => {
    const [a, b] = [...pointers.values()];
    return b ? Math.hypot(a.x - b.x, a.y - b.y) : 0;
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 1) return;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, pixelOf(canvas, event));
    began = pointers.size === 1 ? { at: pixelOf(canvas, event), time: event.timeStamp } : null;
    spread = distance();
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = pixelOf(canvas, event);
    if (!pointers.has(event.pointerId)) {
      on.hover(at);
      return;
    }
    const before = middle();
    pointers.set(event.pointerId, at);
    const after = middle();
    if (began && Math.hypot(at.x - began.at.x, at.y - began.at.y) <= TAP_PX) return;
    began = null;
    on.hover(null);
    view.move(before.x - after.x, before.y - after.y);
    const now = distance();
    if (spread && now) view.zoomBy(now / spread, after);
    spread = now;
  });
  const ended = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    spread = distance();
    if (event.type === "pointerup" && began && event.timeStamp - began.time < TAP_MS) on.tap(began.at, event);
    began = null;
  };
  canvas.addEventListener("pointerup", ended);
  canvas.addEventListener("pointercancel", ended);
  canvas.addEventListener("pointerleave", () => on.hover(null));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    view.zoomBy(Math.exp(-event.deltaY * lines * 0.0022), pixelOf(canvas, event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      ArrowLeft: () => view.move(-KEY_STEP_PX, 0),
      ArrowRight: () => view.move(KEY_STEP_PX, 0),
      ArrowUp: () => view.move(0, -KEY_STEP_PX),
      ArrowDown: () => view.move(0, KEY_STEP_PX),
      "+": () => view.zoomBy(1.4),
      "=": () => view.zoomBy(1.4),
      "-": () => view.zoomBy(1 / 1.4),
      0: () => view.lookAtAll(),
      Home: () => view.lookAtAll(),
      Enter: on.open,
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
