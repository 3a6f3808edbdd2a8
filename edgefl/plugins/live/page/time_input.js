// Pointer, wheel and touch on a canvas over time: pan, zoom, select a stretch.

const DRAG_PX = 4;
const ZOOM_PER_PX = 0.0022;

/**
 * `frame()`: {from, to, x, scale}. `on`: hover(time, y, event), leave(), pick(y).
 * Drag moves; Shift and drag selects; Ctrl or Alt and the wheel, or two fingers, zoom; Shift and
 * the wheel moves; a double click shows all. The plain wheel scrolls the page, as elsewhere.
 */
export function attachTimeInput(canvas, view, frame, on) {
  const fingers = new Map();
  let drag = null;
  let pinch = null;
  const timeAt = (clientX) => {
    const { from, x, scale } = frame();
    return from + (clientX - canvas.getBoundingClientRect().left - x) / scale;
  };
  const yOf = (event) => event.clientY - canvas.getBoundingClientRect().top;

  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) {
      event.preventDefault();
      view.zoom(Math.exp((event.deltaY || event.deltaX) * ZOOM_PER_PX), timeAt(event.clientX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      view.pan((event.deltaX || event.deltaY) / frame().scale);
    }
  }, { passive: false });

  const band = document.createElement("div");
  band.className = "band";
  band.hidden = true;
  canvas.after(band);

  const showBand = (event) => {
    const parent = band.offsetParent?.getBoundingClientRect() ?? { left: 0 };
    const low = Math.min(drag.startX, event.clientX);
    const high = Math.max(drag.startX, event.clientX);
    band.hidden = false;
    band.style.left = `${low - parent.left}px`;
    band.style.width = `${high - low}px`;
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event.clientX);
    if (fingers.size === 2) {
      const [a, b] = [...fingers.values()];
      pinch = { gap: Math.max(8, Math.abs(a - b)), range: view.range, about: timeAt((a + b) / 2) };
      drag = null;
    } else {
      drag = { startX: event.clientX, range: view.range, scale: frame().scale,
        select: event.shiftKey, moved: false };
    }
  });
  canvas.addEventListener("pointermove", (event) => {
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, event.clientX);
    if (pinch && fingers.size === 2) {
      const [a, b] = [...fingers.values()];
      const factor = pinch.gap / Math.max(8, Math.abs(a - b));
      const [from, to] = pinch.range;
      view.show(pinch.about - (pinch.about - from) * factor,
        pinch.about + (to - pinch.about) * factor);
      return;
    }
    if (!drag) {
      on.hover?.(timeAt(event.clientX), yOf(event), event);
      return;
    }
    const by = event.clientX - drag.startX;
    if (!drag.moved && Math.abs(by) < DRAG_PX) return;
    drag.moved = true;
    on.leave?.();
    if (drag.select) showBand(event);
    else {
      const [from, to] = drag.range;
      view.show(from - by / drag.scale, to - by / drag.scale);
    }
  });
  const release = (event) => {
    if (drag?.moved && drag.select && event.type === "pointerup") {
      const [one, other] = [timeAt(drag.startX), timeAt(event.clientX)];
      view.show(Math.min(one, other), Math.max(one, other));
    } else if (drag && !drag.moved && event.type === "pointerup") {
      on.pick?.(yOf(event));
    }
    band.hidden = true;
    fingers.delete(event.pointerId);
    drag = null;
    if (fingers.size < 2) pinch = null;
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => {
    if (!drag) {
      on.leave?.();
      view.point(null);
    }
  });
  canvas.addEventListener("dblclick", () => view.all());
}
