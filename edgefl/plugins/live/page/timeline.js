// The timeline of one run: a row per edge with lanes for computing, uplink and downlink.

import { DRAWN_FIRST } from "./lanes.js";
import { fills, fitted, laneBoxes, paintAxis, paintLane, paintMark, paintShares } from "./paint.js";
import { attachTimeInput } from "./time_input.js";
import { useInWords } from "./time_use.js";
import { theme } from "./theme.js";
import { byName, bytes, clamp, el, seconds, setText } from "./util.js";

const ROWS_PX = [6, 9, 14, 20, 26, 34, 52];
const [USUAL_ROW_PX, USUAL_HEIGHT_PX] = [26, 340];
const SORTS = { group: "by group", name: "by name", slowest: "slowest first", state: "by state" };
const MARKS = [["merge", "merged", ""], ["fresh", "fresher model", ""],
  ["cross", "discarded or failed", "\u2715"]];
const MOST_HEIGHT_PX = 460;
const AXIS_PX = 22;
const RULER_PX = 16; // versions
const MARK_PX = 40; // for each mark of a row, else they are drawn as ticks
const WORDS = { training: "computes", wait: "waits", idle: "has no task", send: "sends",
  receive: "receives", lost: "lost" };
const NAMES = ["", "uplink: ", "downlink: ", "fault: ", ""];
const ORDER = [...DRAWN_FIRST, 0, 1, 2];
const STATES = ["lost", "sending", "receiving", "training", "joined", "awaited", "idle"];
const GLYPHS = { training: "▶", sending: "▲", receiving: "▼", idle: "·", lost: "✕",
  joined: "○", awaited: "…" };
const MARK_WORDS = { merge: "its update is merged", fresh: "a fresher model arrived",
  discard: "its update is discarded", failed: "training failed", timeout: "its task timed out" };

export class Timeline {
  /** `ask(run, from, to)` asks the server for an older window; `tip` shows and hides a note. */
  constructor(view, tip, ask) {
    Object.assign(this, { view, tip, ask });
    this.run = null;
    this.level = null; // index into ROWS_PX; null: by the number of edges
    this.selected = null;
    this.filter = "";
    this.group = ""; // the group whose edges are shown; "": all
    this.rows = []; // edges in the order in which they are shown
    this.pool = [];
    this._build();
  }

  /** Shows the edges of a run, or of one of its groups. */
  show(run, group = "") {
    if (this.run !== run) this.selected = this.held = null;
    Object.assign(this, { run, group });
    this.scroller.setAttribute("aria-label", `timeline of ${run.name}: arrow keys move in time and`
      + " between edges, plus and minus zoom");
    this.order();
  }

  _build() {
    this.canvas = el("canvas", { class: "tl-canvas" });
    this.gutter = el("div", { class: "tl-gutter", role: "list", "aria-label": "edges" });
    this.sticky = el("div", { class: "tl-sticky" }, this.gutter, this.canvas);
    this.space = el("div", { class: "tl-space" }, this.sticky);
    this.scroller = el("div", {
      class: "tl-scroll", tabindex: "0", role: "group", "data-keys": "timeline",
    }, this.space);
    this.axis = el("canvas", { class: "tl-axis", "aria-hidden": "true" });
    this.ruler = el("canvas", { class: "tl-ruler", "aria-hidden": "true" });
    this.status = el("p", { class: "tl-status", "aria-live": "polite" });
    this.search = el("input", {
      type: "search", class: "tl-filter", placeholder: "filter edges",
      "aria-label": "filter the edges",
      oninput: () => { this.filter = this.search.value.trim().toLowerCase(); this.order(); },
    });
    const button = (text, label, step) => el("button", {
      type: "button", class: "small", "aria-label": label, title: label,
      onclick: () => this.resize(step),
    }, text);
    this.counts = el("span", { class: "tl-counts" });
    this.sort = el("select", { "aria-label": "order of the edges", onchange: () => {
      this.sorted = true; // by the user
      this.order();
    } }, ...Object.entries(SORTS).map(([value, text]) => el("option", { value }, text)));
    this.root = el("div", { class: "timeline" },
      el("div", { class: "tl-tools" }, this.counts,
        el("span", { class: "marks" }, ...MARKS.map(([mark, text, sign]) => el("span", {},
          el("i", { class: `mark ${mark}` }, sign), text))), this.sort, this.search,
        el("span", { class: "group" }, button("–", "lower rows", -1),
          button("+", "higher rows", 1))),
      this.ruler, this.scroller, this.axis, this.status);
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    attachTimeInput(this.canvas, this.view, () => this.frame(), {
      hover: (time, y, event) => this._hover(time, y, event),
      leave: () => this.tip.hide(),
      pick: (y) => this.select(this.rows[this._rowAt(y)] ?? null),
    });
    this.gutter.addEventListener("click", (event) => {
      const row = event.target.closest("[data-edge]");
      if (row) this.select(Number(row.dataset.edge));
    });
  }

  get rowPx() {
    if (this.level !== null) return ROWS_PX[this.level];
    const fit = USUAL_HEIGHT_PX / Math.max(1, this.rows.length);
    return ROWS_PX.findLast((px) => px <= Math.min(USUAL_ROW_PX, fit)) ?? 14;
  }

  resize(step) {
    const at = this.level ?? ROWS_PX.indexOf(this.rowPx);
    this.level = clamp(at + step, 0, ROWS_PX.length - 1);
    this.order();
  }

  /** Sorts and filters the rows anew: after edges were added, or another filter. */
  order() {
    const { edges, groups } = this.run;
    this.groupOf = new Map(groups.flatMap((each, at) => each.edges.map((edge) => [edge, at])));
    this.groupNames = groups.map(({ name }) => name);
    const wanted = this.groupNames.indexOf(this.group);
    this.rows = edges.map((_, at) => at)
      .filter((at) => edges[at].toLowerCase().includes(this.filter)
        && (wanted < 0 || this.groupOf.get(at) === wanted))
      .sort((one, other) => byName(edges[one], edges[other]));
    this.sort.firstChild.hidden = !groups.length;
    if (!this.sorted || (this.sort.value === "group" && !groups.length)) {
      this.sort.value = groups.length ? "group" : "name";
    }
    const keys = {
      group: (edge) => this.groupOf.get(edge) ?? groups.length,
      slowest: (edge) => -this.run.lanes.meanCompute(edge),
      state: (edge) => STATES.indexOf(this.run.states[edge]?.state),
    };
    const key = keys[this.sort.value];
    if (key) {
      const values = new Map(this.rows.map((edge) => [edge, key(edge)]));
      this.rows.sort((one, other) => values.get(one) - values.get(other)); // stable: then by name
    }
    this.width = 0; // lay out again
    this.draw();
  }

  select(edge, scroll = false) {
    this.selected = edge;
    if (scroll && edge !== null) {
      const top = this.rows.indexOf(edge) * this.rowPx;
      const { scrollTop, clientHeight } = this.scroller;
      if (top < scrollTop) this.scroller.scrollTop = top;
      if (top + this.rowPx > scrollTop + clientHeight) {
        this.scroller.scrollTop = top + this.rowPx - clientHeight;
      }
    }
    this.draw();
  }

  move(step) {
    const at = this.rows.indexOf(this.selected);
    const next = at < 0 ? (step > 0 ? 0 : this.rows.length - 1)
      : clamp(at + step, 0, this.rows.length - 1);
    this.select(this.rows[next] ?? null, true);
  }

  _layout() {
    const width = this.scroller.clientWidth;
    const row = this.rowPx;
    this.gutter.classList.toggle("ended", !this.run.going);
    if (width === this.width && row === this.laidRow) return;
    this.width = width;
    this.laidRow = row;
    const whole = Math.max(1, this.rows.length) * row;
    this.height = Math.min(MOST_HEIGHT_PX, whole);
    this.scroller.style.height = `${this.height}px`;
    this.space.style.height = `${whole}px`;
    this.sticky.style.height = `${this.height}px`;
    this.gutterPx = width < 480 ? 74 : this.groupNames.length ? 190 : 118;
    this.gutter.style.width = `${this.gutterPx}px`;
    this.gutter.classList.toggle("tiny", row < 14);
    this.canvasPx = Math.max(50, width - this.gutterPx);
  }

  /** How emulated seconds map to pixels of the canvas. */
  frame(run = this.run) {
    const [from, to] = this.view.range;
    const now = Math.min(run.now(), this.view.shownEnd || Infinity);
    return { from, to, x: 0, scale: this.canvasPx / (to - from), now };
  }

  draw() {
    if (!this.run) return;
    this._layout();
    if (!(this.canvasPx > 0)) return;
    const frame = this.frame();
    this._drawRuler(frame);
    const context = fitted(this.canvas, this.canvasPx, this.height);
    const all = fills(context);
    const row = this.rowPx;
    const boxes = laneBoxes(row);
    const offset = this.scroller.scrollTop;
    const first = Math.floor(offset / row);
    const last = Math.min(this.rows.length, Math.ceil((offset + this.height) / row));
    const tops = new Map();
    for (let at = first; at < last; at += 1) tops.set(this.rows[at], at * row - offset);
    this._drawBack(context, frame, tops, row);
    const old = this.run.older(frame, this.ask);
    if (old?.bins) {
      paintShares(context, old, (edge) => tops.get(edge) ?? null, boxes, frame, all);
    }
    for (const [edge, top] of tops) {
      if (old?.lanes) this._drawEdge(context, old.lanes.edges[edge], top, boxes, frame, all);
      this._drawEdge(context, this.run.lanes.edges[edge], top, boxes, frame, all);
    }
    this._drawMarks(context, frame, tops, row);
    this._drawCursor(context, frame);
    this._drawAxis(frame);
    this._drawGutter(first, last, offset, row);
    this._tell(frame);
  }

  _drawEdge(context, lanes, top, boxes, frame, all) {
    if (!lanes) return;
    for (const at of ORDER) {
      const [offset, height] = boxes[at];
      if (lanes[at].count || lanes[at].open.length) {
        context.globalAlpha = 1;
        paintLane(context, lanes[at], top + offset, height, frame, all);
      }
    }
  }

  _drawBack(context, frame, tops, row) {
    const c = theme.colours;
    let above;
    for (const [edge, top] of tops) {
      if (edge === this.selected) {
        context.fillStyle = c.sunken;
        context.fillRect(0, top, this.canvasPx, row);
      }
      const other = this.sort.value === "group" && above !== undefined
        && this.groupOf.get(above) !== this.groupOf.get(edge);
      if (other || row >= 14) { // a line above a group, a hairline between edges
        context.fillStyle = other ? c.soft : c.line;
        context.fillRect(0, top - 0.5, this.canvasPx, other ? 1 : 0.5);
      }
      above = edge;
    }
    const slot = this.run.config.slot_s;
    if (slot > 0 && slot * frame.scale >= 7) { // slots of a TDMA channel
      context.fillStyle = c.line;
      for (let at = Math.ceil(frame.from / slot); at * slot <= frame.to; at += 1) {
        context.fillRect((at * slot - frame.from) * frame.scale, 0, 0.5, this.height);
      }
    }
    const complete = this.run.lanes.completeFrom;
    if (complete > frame.from && !this.run.archive) {
      context.fillStyle = c.sunken;
      const end = Math.min(complete, frame.to);
      context.fillRect(0, 0, (end - frame.from) * frame.scale, this.height);
    }
  }

  _drawMarks(context, frame, tops, row) {
    if (row < 9) return;
    const shown = this._marks().filter(([, t, edge]) => (
      t >= frame.from && t <= Math.min(frame.to, frame.now) && tops.has(edge)));
    const counts = new Map();
    for (const [, , edge] of shown) counts.set(edge, (counts.get(edge) ?? 0) + 1);
    for (const [kind, t, edge] of shown) {
      const crowded = counts.get(edge) * MARK_PX > this.canvasPx;
      paintMark(context, kind, (t - frame.from) * frame.scale, tops.get(edge), row, crowded);
    }
  }

  /** All marks that are here: those of the older window, then the newest ones. */
  _marks() {
    const { archive, marks } = this.run;
    const first = marks.items[0]?.[1] ?? Infinity;
    const older = (archive?.marks ?? []).filter(([, t]) => t < first);
    return older.length ? [...older, ...marks.items] : marks.items;
  }

  _drawCursor(context, frame) {
    const c = theme.colours;
    if (frame.now < frame.to && this.run.state === "running") {
      context.fillStyle = c.accent;
      context.fillRect((frame.now - frame.from) * frame.scale, 0, 1, this.height);
    }
    const { cursor } = this.view;
    if (cursor !== null && cursor >= frame.from && cursor <= frame.to) {
      context.fillStyle = c.soft;
      context.fillRect(Math.round((cursor - frame.from) * frame.scale), 0, 1, this.height);
    }
  }

  /** Published versions above the rows: ticks, with numbers where there is room. */
  _drawRuler(frame) {
    const context = fitted(this.ruler, this.width, RULER_PX);
    const c = theme.colours;
    context.font = `10px ${c.font}`;
    context.fillStyle = c.soft;
    context.textBaseline = "top";
    context.fillText("version", 6, 2);
    let [lastTick, lastText] = [-Infinity, -Infinity];
    for (const [kind, t, , text] of this._marks()) {
      if (kind !== "publish" || t < frame.from || t > Math.min(frame.to, frame.now)) continue;
      const x = this.gutterPx + (t - frame.from) * frame.scale;
      if (x - lastTick >= 1) {
        context.fillStyle = c.merge;
        context.fillRect(x, RULER_PX - 5, 1, 5);
        lastTick = x;
      }
      const number = String(text ?? "").replace(/\D/g, "");
      if (number && x - lastText > 9 + 6 * number.length && x < this.width - 20) {
        context.fillStyle = c.soft;
        context.fillText(number, x + 2, 1);
        lastText = x;
      }
    }
  }

  _drawAxis(frame) {
    const context = fitted(this.axis, this.width, AXIS_PX);
    const moved = { ...frame, x: this.gutterPx };
    paintAxis(context, moved, this.width, 4);
    context.textAlign = "left";
    context.fillStyle = theme.colours.soft;
    context.fillText("emulated s", 6, 15);
  }

  /** The states of all edges; while the page is paused, those of the pause. */
  get states() {
    if (!this.view.paused) this.held = null;
    else this.held ??= this.run.states.slice();
    return this.held ?? this.run.states;
  }

  _drawGutter(first, last, offset, row) {
    const needed = last - first;
    while (this.pool.length < needed) {
      const glyph = el("span", { class: "glyph", "aria-hidden": "true" });
      const item = el("div", { class: "tl-edge", role: "listitem" }, glyph,
        el("span", { class: "who" }), el("span", { class: "of" }), el("span", { class: "doing" }));
      this.pool.push(item);
      this.gutter.append(item);
    }
    const stateOf = (edge) => this.run.stateOf(edge, this.states);
    this.pool.forEach((item, at) => {
      if ((item.hidden = at >= needed)) return;
      const edge = this.rows[first + at];
      const state = stateOf(edge);
      const [glyph, who, of, doing] = item.children;
      item.style.transform = `translateY(${(first + at) * row - offset}px)`;
      item.style.height = `${row}px`;
      if (item.dataset.edge !== String(edge)) item.dataset.edge = edge;
      const group = this.groupNames[this.groupOf.get(edge)] ?? "";
      const title = [this.run.edges[edge], group, state].filter(Boolean).join(", ");
      if (item.title !== title) {
        item.dataset.state = state;
        item.title = title;
      }
      item.classList.toggle("selected", edge === this.selected);
      setText(glyph, state ? GLYPHS[state] ?? "?" : "");
      setText(who, this.run.edges[edge]);
      setText(of, group);
      setText(doing, state);
    });
    const counts = new Map();
    this.rows.forEach((edge) => {
      const state = stateOf(edge) || "edges";
      counts.set(state, (counts.get(state) ?? 0) + 1);
    });
    setText(this.counts, [...counts].map(([state, n]) => `${n} ${state}`).join(" · ")
      || (this.run.edges.length ? "no such edge" : "no edges yet"));
  }

  _rowAt(y) {
    return Math.floor((y + this.scroller.scrollTop) / this.rowPx);
  }

  _describe(edge, time, slack) {
    const lanes = this.run.lanes.edges[edge];
    const old = this.run.archive?.lanes?.edges[edge];
    const lines = [];
    NAMES.forEach((name, at) => {
      const [found, kinds] = lanes?.[at].at(time, slack)
        ? [lanes[at].at(time, slack), this.run.lanes.kinds]
        : [old?.[at].at(time, slack), this.run.archive?.lanes?.kinds];
      if (!found) return;
      const task = found.task >= 0 && found.task !== null ? `, task ${found.task}` : "";
      const size = found.size > 0 ? `, ${bytes(found.size)}` : "";
      const length = found.end === null ? `since ${seconds(found.begin, 2)}`
        : `${seconds(found.begin, 3)} to ${seconds(found.end, 3)}`
          + ` (${seconds(found.end - found.begin, 3)})`;
      const doing = WORDS[kinds[found.kind]] ?? kinds[found.kind];
      lines.push(`${name}${doing}${task}${size}, ${length}`);
    });
    for (const [kind, t, who, text] of this._marks()) {
      if (who === edge && Math.abs(t - time) <= slack) {
        lines.push(`◆ ${[MARK_WORDS[kind] ?? kind, text].filter(Boolean).join(", ")}`);
      }
    }
    return lines.slice(0, 8);
  }

  _hover(time, y, event) {
    this.view.point(time);
    const edge = this.rows[this._rowAt(y)];
    const lines = edge === undefined ? [] : this._describe(edge, time, 3 / this.frame().scale);
    if (edge === undefined) this.tip.hide();
    else this.tip.show(event, [`${this.run.edges[edge]} at ${seconds(time, 3)}`, ...lines]);
  }

  /** The selected edge in words, for eyes and screen readers. */
  _tell(frame) {
    const edge = this.selected;
    if (this.run.edges[edge ?? -1] === undefined) return setText(this.status, "");
    const found = this.states[edge];
    const state = this.run.stateOf(edge, this.states);
    const task = state && Number.isFinite(found?.task) ? `, task ${found.task}` : "";
    const since = state && found ? `, since ${seconds(found.since)}` : "";
    return setText(this.status, `${this.run.edges[edge]}${state && `: ${state}`}${task}${since}.`
      + ` In this window: ${useInWords(this.run, edge, frame) || "nothing"}`);
  }
}
