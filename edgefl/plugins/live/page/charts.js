// Line and dot charts of several runs over a common x, drawn by uPlot.

import { lineKey, theme } from "./theme.js";
import { el, lowerBound, setText, tick } from "./util.js";

const { uPlot } = window;
const MOST_DRAWN = 6000; // points of all series of a chart
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000];
const TIME = [...[-6, -5, -4, -3, -2, -1, 0].flatMap((ten) => [1, 2, 5].map((n) => n * 10 ** ten)),
  10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400, 864000];
const charts = new Set();

/** Where the cursor of a chart over time is, all other charts and timelines show it, too. */
export function shareCursor(view) {
  view.addEventListener("cursor", () => charts.forEach((chart) => chart.followCursor()));
}

theme.addEventListener("change", () => charts.forEach((chart) => chart.rebuild()));

/** Merges series of ascending x into columns with one x; null where a series has no point. */
export function merged(series) {
  if (series.length === 1) return [series[0].x, series[0].y];
  const columns = [[], ...series.map(() => [])];
  const places = series.map(() => 0);
  for (;;) {
    let least = Infinity;
    series.forEach(({ x }, at) => {
      if (places[at] < x.length && x[places[at]] < least) least = x[places[at]];
    });
    if (least === Infinity) return columns;
    columns[0].push(least);
    series.forEach(({ x, y }, at) => {
      const here = places[at] < x.length && x[places[at]] === least;
      columns[at + 1].push(here ? y[places[at]] : null);
      if (here) places[at] += 1;
    });
  }
}

/** Points of `series` in from..to, and one more on each side; at most `most`, evenly left out. */
export function cut({ x, y }, from, to, most) {
  const low = Math.max(0, lowerBound(x, x.length, from) - 1);
  const high = Math.min(x.length, lowerBound(x, x.length, to) + 1);
  const step = Math.max(1, Math.ceil((high - low) / most));
  const found = { x: [], y: [] };
  for (let at = low; at < high; at += 1) {
    if ((at - low) % step && at !== high - 1) continue;
    found.x.push(x[at]);
    found.y.push(Number.isFinite(y[at]) ? y[at] : null);
  }
  return found;
}

/** The value of a line where it crosses `end` on its way to point `at`; undefined elsewhere. */
function crossing(x, y, at, end, steps) {
  if (!(at > 0 && x[at - 1] < end && x[at] > end) || y[at - 1] === null || y[at] === null) {
    return undefined;
  }
  if (steps) return y[at - 1];
  return y[at - 1] + ((y[at] - y[at - 1]) * (end - x[at - 1])) / (x[at] - x[at - 1]);
}

export class Chart {
  /**
   * `options`: title; view (charts over emulated time) or null; format(value) of y; axisFormat;
   * xFormat; xWhole (whole numbers only); dots; steps (a value holds until the next); bins (many of
   * them); zero (y begins at 0; "all": while all of x is shown); whole (whole numbers only); log;
   * empty (words while there is nothing).
   */
  constructor(options) {
    this.options = { height: 190, ...options };
    this.series = [];
    this.shape = "";
    this.legend = el("span", { class: "legend" });
    this.box = el("div", { class: "plot", "data-empty": options.empty ?? "no rows yet" });
    this.tools = el("span", { class: "tools" });
    this.name = el("span", { class: "name" }, options.title);
    this.root = el("figure", { class: "chart", role: "group", "aria-label": options.title },
      el("figcaption", {}, this.name, this.legend, this.tools), this.box);
    this.log = Boolean(options.log);
    charts.add(this);
    this.watch = new ResizeObserver(() => this._size());
    this.watch.observe(this.box);
  }

  remove() {
    charts.delete(this);
    this.watch.disconnect();
    this.plot?.destroy();
    this.root.remove();
  }

  /** `series`: [{label, colour, dash, x, y, note, lines: [{value, label}]}]; x ascends. `note` is
   * in the legend in place of the latest value. The edges of a band have no label; `bandTo` is how
   * many series later the lower edge is. */
  set(series) {
    this.series = series;
    const shape = JSON.stringify(series.map((each) => [each.label, each.colour, each.dash,
      each.thin, each.bandTo, this.log]));
    if (shape !== this.shape || !this.plot) {
      this.shape = shape;
      this.rebuild();
    } else this.refresh();
  }

  /** The series of the legend: not the edges of bands. */
  get named() {
    return this.series.filter((each) => each.label);
  }

  get xRange() {
    if (this.options.view) return this.options.view.range;
    const ends = this.series.map(({ x }) => x).filter((x) => x.length)
      .flatMap((x) => [x[0], x[x.length - 1]]);
    if (!ends.length) return [0, 1];
    const [low, high] = [Math.min(...ends), Math.max(...ends)];
    return high > low ? [low, high] : [low - 0.5, high + 0.5];
  }

  refresh() {
    if (!this.plot || !this.box.clientWidth) return;
    const [from, to] = this.xRange;
    const most = Math.max(200, Math.floor(MOST_DRAWN / Math.max(1, this.series.length)));
    const parts = this.series.map((each) => cut(each, from, to, most));
    if (this.log) {
      for (const part of parts) part.y = part.y.map((value) => (value > 0 ? value : null));
    }
    const data = parts.length ? merged(parts) : [[]];
    this.box.classList.toggle("empty", !parts.some(({ y }) => y.some((value) => value !== null)));
    this.plot.setData(data, false);
    this.plot.batch(() => {
      this.plot.setScale("x", { min: from, max: to });
      this.plot.setScale("y", this._yRange(parts, from, to));
    });
    this._tell();
  }

  _yRange(parts, from, to) {
    let [low, high] = [Infinity, -Infinity];
    const take = (value) => {
      low = Math.min(low, value);
      high = Math.max(high, value);
    };
    for (const { x, y } of parts) {
      y.forEach((value, at) => {
        if (value !== null && ((x[at] >= from && x[at] <= to) || y.length <= 2)) take(value);
        for (const end of this.options.dots ? [] : [from, to]) {
          const there = crossing(x, y, at, end, this.options.steps);
          if (there !== undefined) take(there);
        }
      });
    }
    if (low > high) return { min: this.log ? 0.1 : 0, max: 1 };
    if (this.log) return { min: low / 1.15, max: Math.max(low * 1.01, high) * 1.15 };
    const { view, whole } = this.options;
    const zero = this.options.zero === true || (this.options.zero === "all"
      && (!view || view.mode === "all"));
    if (zero) low = Math.min(0, low);
    if (whole) high = Math.max(high, 2);
    const pad = (high - low || Math.abs(high) || 1) * 0.06;
    const least = zero ? low : low - pad;
    return { min: low >= 0 ? Math.max(0, least) : least, max: high + pad };
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    const width = this.box.clientWidth;
    if (!width) return;
    this.plot = new uPlot(this._options(width), [[], ...this.series.map(() => [])], this.box);
    this._legend();
    this.refresh();
  }

  _size() {
    if (!this.plot) this.rebuild();
    else if (this.plot.width !== this.box.clientWidth && this.box.clientWidth) {
      this.plot.setSize({ width: this.box.clientWidth, height: this.options.height });
    }
  }

  _options(width) {
    const c = theme.colours;
    const { options } = this;
    const axis = { stroke: c.soft, font: `11px ${c.font}`, ticks: { stroke: c.line, size: 4 },
      grid: { stroke: c.line, width: 1 } };
    const xValues = (plot, values, axisAt, space, step) => values.map((value) => (
      options.xFormat ? options.xFormat(value, step) : tick(value, step)));
    return {
      width,
      height: options.height,
      legend: { show: false },
      padding: [8, 10, 0, 0],
      scales: { x: { time: false, auto: false }, y: { auto: false, distr: this.log ? 3 : 1 } },
      axes: [
        { ...axis, size: 28, gap: 3, space: 64, values: xValues,
          ...(options.view ? { incrs: TIME } : options.xWhole ? { incrs: WHOLE } : {}) },
        { ...axis, size: 58, gap: 3, ...(options.whole ? { incrs: WHOLE } : {}),
          values: (plot, values, axisAt, space, step) => values.map((value) => (
            value === null ? "" : (options.axisFormat ?? options.format)(value, step))) },
      ],
      series: [{}, ...this.series.map((each) => this._line(each))],
      bands: this.series.flatMap((each, at) => (each.bandTo
        ? [{ series: [at + 1, at + 1 + each.bandTo], fill: `${each.colour}33` }] : [])),
      cursor: { y: false, drag: { x: true, y: false, setScale: false, dist: 4 },
        bind: { dblclick: () => () => options.view?.all() },
        points: { size: 6 } },
      hooks: { setSelect: [(plot) => this._selected(plot)],
        setCursor: [(plot) => this._cursor(plot)], draw: [(plot) => this._levels(plot)] },
    };
  }

  _line(each) {
    const { dots, steps, bins } = this.options;
    return {
      label: each.label,
      stroke: each.colour,
      width: dots ? 0 : each.thin ? 1 : 1.75,
      dash: each.dash,
      spanGaps: true,
      paths: dots ? () => null : steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
      points: { show: dots ? true : (plot, at, low, high) => high - low < 40 && !bins,
        size: dots ? 4 : 5, fill: each.colour, width: 0 },
    };
  }

  /** Horizontal lines, such as a target. */
  _levels(plot) {
    for (const each of this.series) {
      for (const { value } of each.lines ?? []) {
        if (!(value >= plot.scales.y.min && value <= plot.scales.y.max)) continue;
        const y = plot.valToPos(value, "y", true);
        plot.ctx.save();
        plot.ctx.strokeStyle = each.colour;
        plot.ctx.globalAlpha = 0.7;
        plot.ctx.setLineDash([3, 5]);
        plot.ctx.lineWidth = devicePixelRatio;
        plot.ctx.beginPath();
        plot.ctx.moveTo(plot.bbox.left, y);
        plot.ctx.lineTo(plot.bbox.left + plot.bbox.width, y);
        plot.ctx.stroke();
        plot.ctx.restore();
      }
    }
  }

  _selected(plot) {
    const { left, width } = plot.select;
    if (width > 4 && this.options.view) {
      this.options.view.show(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
    }
    if (width > 0) plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }

  _cursor(plot) {
    const { left } = plot.cursor;
    const inside = left !== undefined && left !== null && left >= 0;
    this.at = inside ? plot.posToVal(left, "x") : null;
    if (this.options.view && !this.following) this.options.view.point(this.at);
    this._tell();
  }

  followCursor() {
    const { view } = this.options;
    if (!view || !this.plot || view.cursor === this.at) return;
    this.following = true;
    const left = view.cursor === null ? -10 : this.plot.valToPos(view.cursor, "x");
    this.plot.setCursor({ left, top: view.cursor === null ? -10 : 10 });
    this.following = false;
  }

  _legend() {
    this.legend.replaceChildren(...this.named.map((each) => (
      el("span", { class: "entry" }, lineKey(each), `${each.label} `, el("b", {})))));
  }

  /** A series' value at the cursor, else its note or its latest value. */
  _value({ x, y, note }) {
    const pointed = this.at !== null && this.at !== undefined;
    if (note && !pointed) return note;
    let found = pointed ? lowerBound(x, x.length, this.at + 1e-9) - 1 : x.length - 1;
    while (found >= 0 && !Number.isFinite(y[found])) found -= 1;
    return found < 0 ? "–" : this.options.format(y[found]);
  }

  /** Values in the legend and for screen readers. */
  _tell() {
    const said = this.named.map((each, at) => {
      const text = this._value(each);
      const entry = this.legend.children[at]?.lastElementChild;
      if (entry) setText(entry, text);
      return `${each.label} ${text}`;
    });
    const label = `${this.options.title}: ${said.join(", ") || "nothing yet"}`;
    if (this.at === null || this.at === undefined) this.root.setAttribute("aria-label", label);
  }
}
