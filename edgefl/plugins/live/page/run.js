// The state of one run, as the server's updates describe it. All of it has a bound.

import { LaneSet } from "./lanes.js";
import { Newest, Points } from "./series.js";

export const METRICS = ["version", "emulated_s", "wall_s", "train_loss", "test_loss", "accuracy",
  "bytes_up", "bytes_down"];
const METRIC_ORDER = [1, 0, 2, 3, 4, 5, 6, 7]; // emulated seconds first: rows ascend in it
const ADDED = ["marks", "staleness", "slots", "rounds"]; // rows that are kept as they come
const TAKEN = ["states", "metrics", "slices", "open", "fidelity", "log", "learned", "refresh"];
const MOST_MARKS = 5000;
const MOST_WORDS = 1000;
const MOST_SLOTS = 6000;
const MOST_LEARNED_NAMES = 24;

export class Run {
  constructor(about, place) {
    this.id = about.id;
    this.place = place; // its colour and dash
    this.about = about;
    this.seeds = []; // the evaluations of all seeds of its strategy, if it has several
    this.clear();
  }

  clear() {
    this.nowS = 0;
    this.rate = 0;
    this.heardAt = performance.now();
    this.head = {};
    this.config = {};
    this.finished = null;
    this.trouble = null; // why its files cannot be read
    this.edges = [];
    this.states = [];
    this.metrics = new Points(METRIC_ORDER.map((at) => METRICS[at]));
    this.lanes = new LaneSet();
    this.archive = null; // an older window of the timeline, from the server
    this.marks = new Newest(MOST_MARKS);
    this.staleness = new Points(["t", "edge", "gap"]);
    this.gaps = {};
    this.links = null;
    this.fidelity = null;
    this.cpu = new Points(["t", "host", "percent"], 2048);
    this.log = new Newest(MOST_WORDS);
    this.slots = new Newest(MOST_SLOTS);
    this.rounds = new Newest(200);
    this.learned = new Map(); // name -> Points
    this.refresh = new Points(["t", "edge", "point"], 2048);
    this.outcomes = {};
    this.points = {}; // refresh point -> count
    this.changed = new Set(); // parts that have news since they were last drawn
  }

  get name() {
    return this.about.name;
  }

  get state() {
    return this.about.state;
  }

  /** Whether rows may still come: it has begun, or will. */
  get going() {
    return this.state === "running" || this.state === "waiting";
  }

  /** The groups of its edges: {name, edges}. */
  get groups() {
    let first = 0;
    return (this.config.groups ?? []).map(([name, count]) => {
      const length = Math.max(0, Math.min(count, this.edges.length - first));
      const edges = Array.from({ length }, (_, at) => first + at);
      first += length;
      return { name, edges };
    });
  }

  /** What an edge does now; "" once the run has ended or is silent. */
  stateOf(edge, states = this.states) {
    const state = states[edge]?.state ?? "awaited";
    return this.going || state === "lost" ? state : "";
  }

  /** The older window of the timeline, if from..to needs it; asks for it if it is missing. */
  older({ from, to }, ask) {
    const until = this.lanes.completeFrom;
    const begin = Math.max(0, from);
    if (!(until > begin + 1e-9)) return null;
    const { archive } = this;
    const end = Math.min(to, until);
    const fits = archive && archive.from <= begin + 1e-9 && archive.to >= end - 1e-9
      && (archive.exact || archive.to - archive.from <= 3 * (to - begin));
    if (!fits) ask(this, begin, end);
    if (archive) archive.until = until;
    return archive;
  }

  /** Emulated seconds now; between updates they advance with the run's clock. */
  now() {
    if (!(this.rate > 0) || this.state !== "running") return this.nowS;
    const quiet = Math.min(2, (performance.now() - this.heardAt) / 1000);
    return this.nowS + quiet * this.rate;
  }

  take(update) {
    if (update.full) this.clear();
    const goes = !update.full && (update.state ?? this.state) === "running";
    this.nowS = Math.max(update.now_s ?? 0, goes ? this.nowS : 0);
    this.heardAt = performance.now();
    if (update.rate !== undefined) this.rate = update.rate;
    if (update.state) this.about = { ...this.about, state: update.state };
    if (update.edges) this.edges = update.edges.slice();
    if (update.edges_added) this.edges.push(...update.edges_added);
    for (const name of ["finished", "head", "config", "links", "fidelity", "trouble"]) {
      if (update[name] !== undefined) this[name] = update[name];
    }
    if (update.staleness_counts) this.gaps = update.staleness_counts;
    if (update.slices_from !== undefined) this.lanes.clear(update.slices_from);
    if (update.slices_gap) this._gap();
    for (const name of ADDED) for (const row of update[name] ?? []) this[name].add(row);
    for (const name of TAKEN) if (update[name] !== undefined) this[`_${name}`](update[name]);
    for (const name of Object.keys(update)) this.changed.add(name);
    if (update.full) this.changed.add("full");
  }

  _states(rows) {
    for (const [edge, state, task, since] of rows) this.states[edge] = { state, task, since };
  }

  _metrics(rows) {
    for (const row of rows) this.metrics.add(METRIC_ORDER.map((at) => row[at]));
  }

  /** Too many slices were new at once: those before now come from the server on demand. */
  _gap() {
    this.lanes.clear(this.nowS);
    this.archive = null;
  }

  _slices(rows) {
    if (this.edges.length && !this.lanes.edges.length) this.lanes.lanes(this.edges.length - 1);
    for (const row of rows) this.lanes.put(row);
  }

  _open(rows) {
    this.lanes.setOpen(rows);
  }

  _fidelity(found) {
    for (const row of found.cpu ?? []) {
      if (!(row[0] < this.cpu.last("t"))) this.cpu.add(row);
    }
  }

  _log(rows) {
    for (const row of rows) this.log.insert(row);
  }

  _learned(found) {
    for (const [name, rows] of Object.entries(found)) {
      if (!this.learned.has(name)) {
        if (this.learned.size >= MOST_LEARNED_NAMES) continue;
        this.learned.set(name, new Points(["t", "value", "edge"], 2048));
      }
      for (const row of rows) this.learned.get(name).add(row);
    }
  }

  _refresh(rows) {
    for (const [t, edge, point, outcome] of rows) {
      this.refresh.add([t, edge, point]);
      this.outcomes[outcome] = (this.outcomes[outcome] ?? 0) + 1;
      if (point !== null) this.points[point] = (this.points[point] ?? 0) + 1;
    }
  }
}
