// The stretch of emulated time that is shown, shared by the timeline and all charts over time.

import { clamp } from "./util.js";

const LEAST_S = 1e-4;

export class View extends EventTarget {
  constructor() {
    super();
    this.mode = "all"; // "all", "follow" (the last `span` seconds) or "fixed"
    this.span = 30;
    this.from = 0;
    this.to = 1;
    this.end = 0; // the latest emulated second of all runs that are shown
    this.pausedAt = null;
    this.cursor = null; // emulated seconds under the pointer
  }

  get paused() {
    return this.pausedAt !== null;
  }

  /** The end of what is shown: now, or the moment of the pause. */
  get shownEnd() {
    return this.paused ? this.pausedAt : this.end;
  }

  /** [from, to] in emulated seconds. */
  get range() {
    const end = this.shownEnd || 1;
    if (this.mode === "all") return [0, end];
    if (this.mode === "follow") return [Math.max(0, end - this.span), Math.max(end, this.span)];
    return [this.from, this.to];
  }

  setEnd(end) {
    this.end = end;
  }

  _changed() {
    this.dispatchEvent(new Event("change"));
  }

  all() {
    this.mode = "all";
    this._changed();
  }

  follow(span = null) {
    const [from, to] = this.range;
    this.span = span ?? (this.mode === "follow" ? this.span : clamp(to - from, LEAST_S, 1e9));
    if (span === null && this.mode === "all") this.span = Math.max(1, Math.min(30, this.end));
    this.mode = "follow";
    this._changed();
  }

  show(from, to) {
    if (!(to > from)) return;
    const span = Math.max(LEAST_S, to - from);
    const most = Math.max(1, this.shownEnd) * 1.25;
    const width = Math.min(span, most);
    const low = clamp(from, -0.1 * width, Math.max(0, this.shownEnd - 0.1 * width));
    this.mode = "fixed";
    [this.from, this.to] = [low, low + width];
    this._changed();
  }

  /** Zooms by a factor below (in) or above 1 (out) about a moment, the middle by default. */
  zoom(factor, about = null) {
    const [from, to] = this.range;
    if (this.mode === "follow" && about === null) {
      this.span = clamp(this.span * factor, LEAST_S, Math.max(1, this.shownEnd));
      this._changed();
      return;
    }
    const at = about ?? (from + to) / 2;
    this.show(at - (at - from) * factor, at + (to - at) * factor);
  }

  pan(byS) {
    const [from, to] = this.range;
    this.show(from + byS, to + byS);
  }

  pause(on = !this.paused) {
    this.pausedAt = on ? this.end : null;
    this._changed();
  }

  point(time) {
    if (this.cursor === time) return;
    this.cursor = time;
    this.dispatchEvent(new Event("cursor"));
  }
}
