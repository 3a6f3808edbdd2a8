// Accuracy and loss over a choice of x; link use and capacity; staleness.

import { Chart } from "./charts.js";
import { METRICS } from "./run.js";
import { theme } from "./theme.js";
import { bytes, clamp, count, digits, el, rate, setText, tick } from "./util.js";

/** Decimal places that tell values apart that are `step` apart. */
const places = (step) => clamp(Math.ceil(-Math.log10(step) - 1e-9), 0, 8);

const X = {
  emulated_s: { name: "emulated time", format: null },
  version: { name: "version", format: (value) => count(value), whole: true },
  bytes_up: { name: "bytes up", format: (value) => bytes(value) },
  wall_s: { name: "wall time", format: (value, step) => tick(value, step) },
};

const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** The first `n` values of a column, without a copy. */
const head = (points, name, n) => points.column(name).subarray(0, n);

export class Curves {
  constructor(view) {
    this.view = view;
    this.x = "emulated_s";
    this.choice = el("select", { "aria-label": "x of the curves", onchange: () => {
      this.x = this.choice.value;
      this._make();
      this.draw(this.runs);
    } }, ...Object.entries(X).map(([value, { name }]) => el("option", { value }, name)));
    this.loss = "test_loss";
    this.score = "accuracy";
    this.charts = {};
    this.root = el("div", { class: "pair" });
    this.tools = el("span", { class: "tools" }, ...this._lossTools(),
      el("label", { class: "inline" }, "over ", this.choice));
    this._make();
  }

  _make() {
    Object.values(this.charts).forEach((chart) => chart.remove());
    const { format, whole } = X[this.x];
    const over = this.x === "emulated_s" ? this.view : null;
    const empty = "no evaluation yet";
    this.charts = {
      accuracy: new Chart({ title: capital(this.score), view: over, xFormat: format, empty,
        xWhole: whole, zero: "all",
        steps: true, // a model is constant between its versions
        format: (value) => digits(value, 4),
        axisFormat: (value, step) => digits(value, Math.max(2, places(step))) }),
      loss: new Chart({ title: "Loss", view: over, xFormat: format, empty, log: this.log,
        xWhole: whole, zero: "all", steps: true,
        format: (value) => digits(value, 4),
        axisFormat: (value) => String(Number(value.toPrecision(3))) }),
    };
    this.root.replaceChildren(...Object.values(this.charts).map((chart) => chart.root));
  }

  _lossTools() {
    const set = el("select", { "aria-label": "which loss", onchange: () => {
      this.loss = set.value;
      this.draw(this.runs);
    } }, el("option", { value: "test_loss" }, "test loss"),
    el("option", { value: "train_loss" }, "train loss"));
    const log = el("input", { type: "checkbox", onchange: () => {
      this.log = this.charts.loss.log = log.checked;
      this.draw(this.runs);
    } });
    return [set, el("label", { class: "inline" }, log, " log")];
  }

  draw(runs) {
    this.runs = runs;
    const score = [...new Set(runs.map((run) => run.config.score || "accuracy"))].join(", ")
      || "accuracy";
    if (score !== this.score) {
      this.score = score;
      this._make();
    }
    for (const [chart, column] of [["accuracy", "accuracy"], ["loss", this.loss]]) {
      this.charts[chart].set(runs.flatMap((run) => {
        if (run.seeds.length > 1) return this._band(run, column, chart === "accuracy");
        const n = run.metrics.upTo(this.view.paused ? this.view.pausedAt : NaN);
        const target = chart === "accuracy" ? run.config.target : null;
        const [x, y] = this._untilEnd(run, head(run.metrics, this.x, n),
          head(run.metrics, column, n));
        return [{ label: run.name, ...theme.look(run.place), x, y,
          lines: target ? [{ value: target }] : [] }];
      }));
    }
  }

  /**
   * The mean over the seeds of a strategy, and a band from the lowest to the highest seed. Each
   * seed's latest value counts; over time, its last one holds until the end of its run.
   */
  _band(run, column, isScore) {
    const until = this.view.paused ? this.view.pausedAt : Infinity;
    const [at, of, time] = [this.x, column, "emulated_s"].map((name) => METRICS.indexOf(name));
    const seeds = run.seeds.map(({ metrics, end_s: end }) => {
      const shown = metrics.filter((row) => row[time] <= until && Number.isFinite(row[at]));
      const rows = shown.filter((row) => Number.isFinite(row[of]));
      const last = rows[rows.length - 1];  // of a run that diverged, no value holds
      const held = last && last === shown[shown.length - 1] && at === time && end !== null
        && end > last[time] && end <= until;
      return held ? [...rows, last.with(time, end)] : rows;
    }).filter((rows) => rows.length);
    if (!seeds.length) return [];
    const first = Math.max(...seeds.map((rows) => rows[0][at]));
    const last = Math.min(...seeds.map((rows) => rows[rows.length - 1][at]));
    const x = [...new Set(seeds.flat().map((row) => row[at]))].filter((each) => each >= first
      && each <= last).sort((a, b) => a - b);
    const places = seeds.map(() => 0);
    const values = x.map((each) => seeds.map((rows, seed) => {
      while (rows[places[seed] + 1]?.[at] <= each) places[seed] += 1;
      return rows[places[seed]][of];
    }));
    const look = theme.look(run.place);
    const { target } = run.config;
    const mean = values.map((all) => all.reduce((sum, one) => sum + one, 0) / all.length);
    const label = `${run.name.replace(/ seed \d+$/, "")}, mean of ${seeds.length} seeds`;
    const edge = { colour: look.colour, dash: look.dash, thin: true, x };
    return [{ label, ...look, x, y: mean, lines: isScore && target ? [{ value: target }] : [] },
      { ...edge, y: values.map((all) => Math.max(...all)), bandTo: 1 },
      { ...edge, y: values.map((all) => Math.min(...all)) }];
  }

  /** The last value of a run that has ended holds until its end. */
  _untilEnd(run, x, y) {
    const last = x[x.length - 1];
    const held = this.x === "emulated_s" && run.state !== "running" && !this.view.paused;
    if (!held || !(run.nowS > last)) return [x, y];
    return [Float64Array.of(...x, run.nowS), Float64Array.of(...y, y[y.length - 1])];
  }
}

/** "2.5 Mb/s" */
const shortRate = (value) => rate(value).replace("bit/s", "b/s")
  .replace(/(\.\d*?)0+ /, "$1 ").replace(/\. /, " ");

const NEAR = 1.5; // a capacity up to so many times the highest use is drawn

export class Links {
  constructor(view) {
    this.view = view;
    const chart = (title) => new Chart({ title, view, steps: true, bins: true, zero: true,
      format: rate, axisFormat: shortRate, empty: "no transfer yet" });
    this.up = chart("Uplinks");
    this.down = chart("Downlinks");
    this.whole = el("input", { type: "checkbox", onchange: () => this.draw(this.runs) });
    this.tools = el("label", { class: "inline" }, this.whole, " up to the capacity");
    this.root = el("div", { class: "pair" }, this.up.root, this.down.root);
  }

  draw(runs) {
    this.runs = runs;
    for (const [chart, way] of [[this.up, "up"], [this.down, "down"]]) {
      const use = runs.flatMap((run) => this._use(run, way));
      const all = new Set(use.map(({ most }) => rate(most)));
      const one = all.size === 1 && !all.has("–");
      setText(chart.name, chart.options.title + (one ? `, capacity ${[...all][0]}` : ""));
      chart.set([...use, ...this._capacities(use)]);
    }
  }

  /** Bins as steps. The bin that is being filled is left out, because its rate is too low. */
  _use(run, way) {
    if (!run.links) return [];
    const { from_s: from, bin_s: width } = run.links;
    const end = this.view.paused ? this.view.pausedAt : run.nowS;
    const going = this.view.paused || run.state === "running";
    const full = Math.floor((end - from) / width + 1e-9);
    const n = Math.max(0, going ? Math.min(full, run.links[way].length) : run.links[way].length);
    if (!n) return [];
    const x = Array.from({ length: n + 1 }, (_, bin) => from + bin * width);
    const steps = (values) => [...values.slice(0, n), values[n - 1]].map((value) => value ?? NaN);
    const all = run.links[`${way}_capacity`] ?? [];
    const of = all.some((value) => value !== null) ? steps(all) : null;
    const y = steps(run.links[way]);
    const [mean, most] = [y, of ?? []].map((values) => this._mean(x, values));
    const note = `${rate(mean)}${most > 0 ? `, ${(100 * mean / most).toPrecision(2)} %` : ""}`;
    return [{ label: run.name, ...theme.look(run.place), x, y, of, most, note }];
  }

  /** The mean of what is shown of bins. */
  _mean(x, values) {
    const [from, to] = this.view.range;
    const shown = values.filter((value, at) => Number.isFinite(value) && x[at] >= from
      && x[at] < to);
    return shown.reduce((sum, value) => sum + value, 0) / shown.length;
  }

  /** The capacities, each once, where they do not make the use a flat line. */
  _capacities(use) {
    const highest = Math.max(0, ...use.flatMap(({ y }) => y.filter(Number.isFinite)));
    const drawn = new Map(use.filter(({ of, most }) => of && (this.whole.checked
      || most <= NEAR * highest))
      .map((each) => [each.of.slice(0, 50).join(), each]));
    return [...drawn.values()].map(({ x, of, label }) => ({ x, y: of, thin: true, dash: [2, 4],
      colour: theme.colours.soft, label: drawn.size > 1 ? `capacity, ${label}` : "capacity" }));
  }
}

/** The mean of a histogram, and how many values up to each one there are, as shares. */
export function shares(counts) {
  const rows = Object.entries(counts).map(([value, n]) => [Number(value), n])
    .sort(([one], [other]) => one - other);
  const all = rows.reduce((sum, [, n]) => sum + n, 0);
  const mean = rows.reduce((sum, [value, n]) => sum + value * n, 0) / all;
  let below = 0;
  const y = rows.map(([, n]) => (below += n) / all);
  return { all, mean, x: rows.map(([value]) => value), y };
}

export class Staleness {
  constructor(view) {
    this.view = view;
    this.each = new Chart({ title: "Each update, versions", view, dots: true, zero: true,
      whole: true, format: (value) => count(value), axisFormat: (value) => digits(value, 0),
      empty: "no update yet" });
    const percent = (value) => `${digits(100 * value, 0)} %`;
    this.share = new Chart({ title: "Share of updates up to a staleness, versions", view: null,
      steps: true, zero: true, xFormat: count, xWhole: true, format: percent,
      empty: "no update yet" });
    this.root = el("div", { class: "pair" }, this.each.root, this.share.root);
  }

  draw(runs) {
    this.each.set(runs.map((run) => {
      const n = run.staleness.upTo(this.view.paused ? this.view.pausedAt : NaN);
      return { label: run.name, ...theme.look(run.place), x: head(run.staleness, "t", n),
        y: head(run.staleness, "gap", n) };
    }));
    if (this.view.paused) return;
    const most = Math.max(1, ...runs.flatMap((run) => Object.keys(run.gaps).map(Number)));
    this.share.set(runs.map((run) => {
      const { all, mean, x, y } = shares(run.gaps);
      return { label: run.name, ...theme.look(run.place), x: [0, ...x, most],
        y: [0, ...y, all ? 1 : NaN].map((value, at) => (all || at ? value : NaN)),
        note: `mean ${digits(mean, 2)}` };
    }));
  }
}
