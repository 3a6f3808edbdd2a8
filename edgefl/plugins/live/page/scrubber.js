// The strip above all charts: the whole time of all runs, and which part of it is shown.

import { fitted, paintAxis } from "./paint.js";
import { theme } from "./theme.js";
import { clamp, el } from "./util.js";

const HEIGHT_PX = 44;
const HANDLE_PX = 10;

export class Scrubber {
  constructor(view) {
    this.view = view;
    this.runs = [];
    this.canvas = el("canvas", { class: "scrubber", tabindex: "0", role: "slider",
      "data-keys": "time", "aria-label": "shown time" });
    this.root = this.canvas;
    this.canvas.addEventListener("pointerdown", (event) => this._grab(event));
    this.canvas.addEventListener("pointermove", (event) => this._drag(event));
    for (const name of ["pointerup", "pointercancel"]) {
      this.canvas.addEventListener(name, () => { this.held = null; });
    }
    this.canvas.addEventListener("dblclick", () => view.all());
  }

  get _all() {
    return this.view.shownEnd || 1;
  }

  _time(event) {
    const box = this.canvas.getBoundingClientRect();
    return clamp(((event.clientX - box.left) / box.width) * this._all, 0, this._all);
  }

  _grab(event) {
    this.canvas.setPointerCapture(event.pointerId);
    const [from, to] = this.view.range;
    const time = this._time(event);
    const near = (HANDLE_PX / this.canvas.clientWidth) * this._all;
    const narrow = to - from > 3 * near ? 1 : 0.3;
    if (this.view.mode === "all") this.held = { part: "new", time };
    else if (Math.abs(time - from) < near * narrow) this.held = { part: "from" };
    else if (Math.abs(time - to) < near * narrow) this.held = { part: "to" };
    else if (time > from && time < to) this.held = { part: "middle", time, from, to };
    else {
      this.view.show(time - (to - from) / 2, time + (to - from) / 2);
      const [low, high] = this.view.range;
      this.held = { part: "middle", time, from: low, to: high };
    }
  }

  _drag(event) {
    if (!this.held) return;
    const time = this._time(event);
    const [from, to] = this.view.range;
    const least = this._all / 5000;
    const { part } = this.held;
    if (part === "new") {
      const [low, high] = [Math.min(time, this.held.time), Math.max(time, this.held.time)];
      if (high - low > this._all / 200) this.view.show(low, high);
    } else if (part === "from") this.view.show(Math.min(time, to - least), to);
    else if (part === "to") this.view.show(from, Math.max(time, from + least));
    else {
      const by = time - this.held.time;
      this.view.show(this.held.from + by, this.held.to + by);
    }
  }

  draw(runs = this.runs) {
    this.runs = runs;
    const width = this.canvas.parentElement?.clientWidth ?? 0;
    if (!width) return;
    const context = fitted(this.canvas, width, HEIGHT_PX);
    const c = theme.colours;
    const scale = width / this._all;
    const bottom = HEIGHT_PX - 17;
    context.fillStyle = c.sunken;
    context.fillRect(0, 0, width, bottom);
    runs.forEach((run) => this._traffic(context, run, scale, bottom));
    const [from, to] = this.view.range;
    const [left, right] = [Math.max(0, from * scale), Math.min(width, to * scale)];
    if (this.view.mode !== "all") {
      context.fillStyle = c.ground;
      context.globalAlpha = 0.65;
      context.fillRect(0, 0, left, bottom);
      context.fillRect(right, 0, width - right, bottom);
      context.globalAlpha = 1;
      context.strokeStyle = c.ink;
      context.lineWidth = 1;
      context.strokeRect(left + 0.5, 0.5, Math.max(2, right - left - 1), bottom - 1);
      context.fillStyle = c.ink;
      context.fillRect(left, bottom / 2 - 6, 3, 12);
      context.fillRect(right - 3, bottom / 2 - 6, 3, 12);
    }
    const { cursor } = this.view;
    if (cursor !== null) {
      context.fillStyle = c.soft;
      context.fillRect(Math.round(cursor * scale), 0, 1, bottom);
    }
    paintAxis(context, { from: 0, to: this._all, x: 0, scale }, width, bottom);
    this.canvas.setAttribute("aria-valuemin", "0");
    this.canvas.setAttribute("aria-valuemax", this._all.toFixed(1));
    this.canvas.setAttribute("aria-valuenow", ((from + to) / 2).toFixed(1));
    this.canvas.setAttribute("aria-valuetext", `${from.toFixed(1)} to ${to.toFixed(1)} s`);
  }

  /** Goodput up and down of a run, as a line that uses the whole height. */
  _traffic(context, run, scale, bottom) {
    const { links } = run;
    if (!links?.up?.length) return;
    const sums = links.up.map((up, at) => up + (links.down[at] ?? 0));
    const most = Math.max(...sums);
    if (!(most > 0)) return;
    context.beginPath();
    sums.forEach((sum, at) => {
      const x = (links.from_s + (at + 0.5) * links.bin_s) * scale;
      const y = bottom - 1 - (sum / most) * (bottom - 5);
      if (at) context.lineTo(x, y);
      else context.moveTo(x, y);
    });
    const look = theme.look(run.place);
    context.strokeStyle = look.colour;
    context.globalAlpha = 0.85;
    context.lineWidth = 1.2;
    context.stroke();
    context.globalAlpha = 1;
  }
}
