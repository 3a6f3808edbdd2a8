// What each edge does, lane by lane, as intervals in emulated seconds, with a bound on memory.

import { lowerBound } from "./util.js";

export const LANES = ["compute", "uplink", "downlink", "fault", "away"];
export const DRAWN_FIRST = [4, 3]; // these lanes lie behind the others
export const KINDS = ["training", "wait", "idle", "send", "receive", "lost"];
export const [TRAINING, WAIT, IDLE, SEND, RECEIVE, LOST] = KINDS.keys(); // higher: a kind of fault
const MOST_KINDS = 60;
const MOST_SLICES = 120_000; // of a run: 4 MB
const LEAST_PER_LANE = 128;
const BUSY_LANES = 3;
const ARRAYS = { begins: Float64Array, ends: Float64Array, kinds: Uint8Array, tasks: Int32Array,
  sizes: Float64Array };
const NAMES = Object.keys(ARRAYS);

/** The intervals of one lane that have ended, ascending, and those that go on. */
export class Lane {
  constructor() {
    this.room = this.count = 0;
    for (const name of NAMES) this[name] = new ARRAYS[name](0);
    this.open = []; // {kind, begin, task}, at most a few
    this.droppedTo = 0; // what ended before was dropped
  }

  put(kind, begin, end, task, size, most) {
    if (this.count === this.room) this._makeRoom(most);
    let at = this.count;
    while (at > 0 && this.begins[at - 1] > begin) at -= 1;
    if (at < this.count) for (const name of NAMES) this[name].copyWithin(at + 1, at, this.count);
    this.begins[at] = begin;
    this.ends[at] = end;
    this.kinds[at] = kind;
    this.tasks[at] = task ?? -1;
    this.sizes[at] = size ?? -1;
    this.count += 1;
  }

  _makeRoom(most) {
    if (this.room < most) {
      this.room = Math.min(most, Math.max(16, this.room * 2));
      for (const name of NAMES) {
        const longer = new ARRAYS[name](this.room);
        longer.set(this[name]);
        this[name] = longer;
      }
      return;
    }
    const dropped = Math.max(1, this.count >> 2);
    this.droppedTo = this.ends[dropped - 1];
    for (const name of NAMES) this[name].copyWithin(0, dropped, this.count);
    this.count -= dropped;
  }

  /** Index of the first interval that ends after `time`. */
  first(time) {
    return lowerBound(this.ends, this.count, time);
  }

  /** The interval at `time` or within `slack` of it, or null. If it goes on, its `end` is null. */
  at(time, slack = 0) {
    const at = this.first(time - slack);
    if (at < this.count && this.begins[at] <= time + slack) {
      return { kind: this.kinds[at], begin: this.begins[at], end: this.ends[at],
        task: this.tasks[at], size: this.sizes[at] };
    }
    const open = this.open.find((each) => time >= each.begin - slack);
    return open ? { ...open, end: null } : null;
  }
}

/** The lanes of all edges of a run; edges are numbers. */
export class LaneSet {
  constructor(mostSlices = MOST_SLICES) {
    this.mostSlices = mostSlices;
    this.kinds = [...KINDS];
    this.clear();
  }

  /** Forgets all; from `completeFrom` on, nothing will be missing. */
  clear(completeFrom = 0) {
    this.edges = [];
    this.completeFrom = completeFrom;
  }

  lanes(edge) {
    this.edges[edge] ??= LANES.map(() => new Lane());
    return this.edges[edge];
  }

  _kind(name) {
    const found = this.kinds.indexOf(name);
    if (found >= 0 || this.kinds.length >= MOST_KINDS) return found;
    return this.kinds.push(name) - 1;
  }

  /** Adds a slice of the server: [edge, lane, kind, begin, end, task, bytes]. */
  put([edge, at, name, begin, end, task, size]) {
    const kind = this._kind(name);
    if (kind < 0 || !LANES[at]) return;
    const lanes = BUSY_LANES * Math.max(1, this.edges.length);
    const most = Math.max(LEAST_PER_LANE, Math.floor(this.mostSlices / lanes));
    const lane = this.lanes(edge)[at];
    lane.put(kind, begin, end, task, size, most);
    if (lane.droppedTo > this.completeFrom) this.completeFrom = lane.droppedTo;
  }

  /** Takes all slices that go on, in place of those before. */
  setOpen(rows) {
    for (const lanes of this.edges) for (const lane of lanes ?? []) lane.open.length = 0;
    for (const [edge, at, name, begin, , task] of rows) {
      const kind = this._kind(name);
      if (kind >= 0 && LANES[at]) this.lanes(edge)[at].open.push({ kind, begin, task, size: null });
    }
  }

  /** Seconds that edges spend in each kind within from..to, by name; what goes on ends `now`. */
  seconds(edges, from, to, now) {
    const sums = new Float64Array(this.kinds.length);
    for (const edge of edges) {
      for (const lane of this.edges[edge] ?? []) {
        for (let at = lane.first(from); at < lane.count && lane.begins[at] < to; at += 1) {
          sums[lane.kinds[at]] += Math.min(to, lane.ends[at]) - Math.max(from, lane.begins[at]);
        }
        for (const { kind, begin } of lane.open) {
          sums[kind] += Math.max(0, Math.min(to, now) - Math.max(from, begin));
        }
      }
    }
    return Object.fromEntries(this.kinds.map((name, kind) => [name, sums[kind]]));
  }

  /** Mean seconds of a finished computation of an edge; 0 if there is none. */
  meanCompute(edge) {
    const lane = this.edges[edge]?.[0];
    let [sum, n] = [0, 0];
    for (let at = 0; at < (lane?.count ?? 0); at += 1) {
      if (lane.kinds[at] !== TRAINING) continue;
      sum += lane.ends[at] - lane.begins[at];
      n += 1;
    }
    return n ? sum / n : 0;
  }

  get count() {
    let sum = 0;
    for (const lanes of this.edges) for (const lane of lanes ?? []) sum += lane.count;
    return sum;
  }
}
