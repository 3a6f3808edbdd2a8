// The keyboard: the same keys everywhere, and a dialog that lists them.

import { el } from "./util.js";

const KEYS = [
  ["Space", "pause or go on"],
  ["+ and −", "zoom in and out"],
  ["← and →", "move in time (Shift: by a whole window)"],
  ["0", "show all of the time"],
  ["F", "follow the latest seconds"],
  ["↑ and ↓", "in a timeline: choose an edge"],
  ["[ and ]", "in a timeline: lower or higher rows"],
  ["Escape", "choose no edge"],
  ["A", "show another run"],
  ["T", "light or dark"],
  ["?", "this list"],
  ["Drag", "move; with Shift: show the stretch; in a chart: show the stretch"],
  ["Ctrl or Alt and wheel, two fingers", "zoom; Shift and wheel: move"],
  ["Double click", "show all of the time"],
];

export function helpDialog() {
  const dialog = el("dialog", { class: "help", "aria-labelledby": "help-title" },
    el("h2", { id: "help-title", tabindex: "-1", autofocus: true }, "Keys"),
    el("dl", {}, ...KEYS.flatMap(([keys, what]) => [el("dt", {}, keys), el("dd", {}, what)])),
    el("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Close"));
  return dialog;
}

/** `act`: pause, add, theme, help; `timelineOf(node)`: the timeline that holds a node, or none. */
export function attachKeys(view, act, timelineOf) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
    if (event.target.closest("input, select, textarea, dialog")) return;
    const timeline = timelineOf(event.target);
    const [from, to] = view.range;
    const step = (to - from) * (event.shiftKey ? 1 : 0.15);
    const uses = {
      "+": () => view.zoom(0.6), "=": () => view.zoom(0.6),
      "-": () => view.zoom(1 / 0.6), "_": () => view.zoom(1 / 0.6),
      ArrowLeft: () => view.pan(-step), ArrowRight: () => view.pan(step),
      0: () => view.all(), Home: () => view.all(),
      f: () => view.follow(), a: act.add, t: act.theme, "?": act.help,
      ...(timeline ? {
        ArrowUp: () => timeline.move(-1), ArrowDown: () => timeline.move(1),
        "[": () => timeline.resize(-1), "]": () => timeline.resize(1),
        Escape: () => timeline.select(null),
      } : {}),
    };
    if (!event.target.closest("button, a, summary")) uses[" "] = act.pause;
    const use = uses[event.key] ?? uses[event.key.toLowerCase()];
    if (!use) return;
    event.preventDefault();
    use();
  });
}
