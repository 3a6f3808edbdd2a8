// Series with a bound on their memory: the page may stay open for days.

import { lowerBound } from "./util.js";

const BEGIN = 256;

/**
 * Rows of numbers, ascending in the first column. Above `most` rows every second row goes, and
 * from then on only every second, fourth, ... new row is kept; the newest row is always there.
 */
export class Points {
  constructor(columns, most = 4096) {
    this.most = most;
    this.width = columns.length;
    this.names = columns;
    this.room = Math.min(BEGIN, most);
    this.columns = columns.map(() => new Float64Array(this.room));
    this.count = 0;
    this.stride = 1;
    this.seen = 0;
    this.fleeting = false; // the newest row is there only until the next one
  }

  add(row) {
    if (this.fleeting) this.count -= 1;
    this.fleeting = this.seen % this.stride !== 0;
    this.seen += 1;
    if (this.count === this.room) this._grow();
    let at = this.count;
    while (at > 0 && this.columns[0][at - 1] > row[0]) at -= 1; // evaluations may end out of order
    for (let column = 0; column < this.width; column += 1) {
      const values = this.columns[column];
      if (at < this.count) values.copyWithin(at + 1, at, this.count);
      const value = row[column];
      values[at] = value === null || value === undefined || value === "" ? NaN : Number(value);
    }
    this.count += 1;
  }

  _grow() {
    if (this.room < this.most) {
      this.room = Math.min(this.most, this.room * 2);
      this.columns = this.columns.map((old) => {
        const longer = new Float64Array(this.room);
        longer.set(old);
        return longer;
      });
      return;
    }
    const kept = (this.count + 1) >> 1;
    for (const values of this.columns) {
      for (let at = 0; at < kept; at += 1) values[at] = values[at * 2];
    }
    this.count = kept;
    this.stride *= 2;
  }

  column(name) {
    return this.columns[this.names.indexOf(name)];
  }

  /** How many rows lie at or before `value` of the first column. */
  upTo(value) {
    return Number.isFinite(value) ? lowerBound(this.columns[0], this.count, value + 1e-9)
      : this.count;
  }

  last(name) {
    return this.count ? this.column(name)[this.count - 1] : NaN;
  }
}

/** The newest `most` items, oldest first. */
export class Newest {
  constructor(most) {
    this.most = most;
    this.items = [];
    this.dropped = 0;
  }

  /** Adds a row whose first column is a time, in order of time. */
  insert(row) {
    this.add(row);
    const { items } = this;
    for (let at = items.length - 1; at > 0 && items[at - 1][0] > row[0]; at -= 1) {
      [items[at - 1], items[at]] = [items[at], items[at - 1]];
    }
  }

  add(item) {
    this.items.push(item);
    if (this.items.length > this.most * 1.25) {
      this.dropped += this.items.length - this.most;
      this.items = this.items.slice(-this.most);
    }
  }
}
