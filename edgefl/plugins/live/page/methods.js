// What only some methods have: TDMA slots, learned weights, points at which fresh models merge.

import { Chart } from "./charts.js";
import { histogram } from "./curves.js";
import { fitted, paintAxis } from "./paint.js";
import { theme } from "./theme.js";
import { byName, count, digits, el, seconds, setText } from "./util.js";

const ROWS_SHOWN = 12;
const ROUNDS_SHOWN = 10;
const LABEL_PX = 74;
const MOST_ROWS_PX = 300;

export class Slots {
  constructor(run, view) {
    Object.assign(this, { run, view });
    this.canvas = el("canvas", { class: "slots-map", role: "img",
      "aria-label": `slots of ${run.name} over time, a row per device` });
    this.table = el("table", { class: "slots" });
    this.rounds = el("table", { class: "rounds" });
    this.root = el("section", { class: "panel", "data-run": run.name },
      el("h2", {}, `TDMA slots, ${run.name}`),
      el("p", { class: "key-line" }, ...[["send", "up"], ["receive", "down"], ["wait", "granted"]]
        .map(([kind, text]) => el("span", { class: "entry" }, el("i", { class: `swatch ${kind}` }),
          text))),
      this.canvas, el("div", { class: "pair" }, el("div", { class: "scroll-x" }, this.table),
        el("div", { class: "scroll-x" }, this.rounds)));
  }

  draw() {
    const width = this.root.clientWidth;
    if (!width) return;
    const { run, view } = this;
    const [from, to] = view.range;
    const rows = this._rows();
    const row = Math.max(4, Math.min(16, MOST_ROWS_PX / Math.max(1, rows.length)));
    const height = rows.length * row;
    const context = fitted(this.canvas, width, height + 22);
    const scale = (width - LABEL_PX) / (to - from);
    const frame = { from, to, x: LABEL_PX, scale };
    const place = new Map(rows.map((edge, at) => [edge, at * row]));
    const c = theme.colours;
    this._grid(context, frame, width, height);
    const received = theme.hatch(context, c.ground, c.receive);
    const end = view.paused ? view.pausedAt : Infinity;
    for (const [begin, until, edge, direction, kind] of run.slots.items) {
      if (until < from || begin > to || begin > end || !place.has(edge)) continue;
      const left = Math.max(LABEL_PX, LABEL_PX + (begin - from) * scale);
      const wide = Math.max(1, LABEL_PX + (Math.min(until, to) - from) * scale - left);
      const top = place.get(edge);
      if (kind === "granted") {
        context.strokeStyle = c.soft;
        context.lineWidth = 1;
        context.strokeRect(left + 0.5, top + 1.5, Math.max(1, wide - 1), row - 3);
        continue;
      }
      context.fillStyle = direction === "up" ? c.send : wide >= 4 ? received : c.receive;
      context.fillRect(left, top + 1, Math.max(1, wide - (wide > 3 ? 0.8 : 0)), row - 2);
    }
    context.font = `11px ${c.font}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillStyle = c.soft;
    const each = Math.ceil(13 / row);
    rows.forEach((edge, at) => {
      if (at % each === 0) {
        context.fillText(this._name(edge), 4, at * row + row / 2, LABEL_PX - 8);
      }
    });
    paintAxis(context, frame, width, height);
  }

  /** The table of the latest slots and rounds; only after news, because it is laid out anew. */
  tell() {
    const { run } = this;
    const slot = run.config.slot_s;
    const latest = run.slots.items.slice(-ROWS_SHOWN).reverse();
    const rows = latest.map(([begin, , edge, direction, kind]) => [
      slot ? count(begin / slot) : seconds(begin, 3), seconds(begin, 3), this._name(edge),
      direction, kind]);
    fill(this.table, ["slot", "begins", "device", "direction", "kind"], rows);
    const rounds = run.rounds.items.slice(-ROUNDS_SHOWN).reverse();
    const titles = ["round ends at slot", "uploads", "lost", "missed", "unused slots", "staleness"];
    fill(this.rounds, titles,
      rounds.map((each) => [count(each.end_slot), count(each.uploads), count(each.lost),
        count(each.missed), count(each.wasted_slots),
        `${digits(each.staleness_least, 0)} to ${digits(each.staleness_most, 0)}`]));
  }

  _rows() {
    const found = new Set(this.run.slots.items.map(([, , edge]) => edge));
    return [...found].sort((one, other) => byName(this._name(one), this._name(other)));
  }

  _name(edge) {
    return edge === -1 ? "all" : this.run.edges[edge] ?? "?";
  }

  _grid(context, { from, to, x, scale }, width, height) {
    const slot = this.run.config.slot_s;
    context.fillStyle = theme.colours.sunken;
    context.fillRect(x, 0, width - x, height);
    if (!(slot * scale >= 5)) return;
    context.fillStyle = theme.colours.line;
    for (let at = Math.ceil(from / slot); at * slot <= to; at += 1) {
      context.fillRect(x + (at * slot - from) * scale, 0, 0.5, height);
    }
  }
}

function fill(table, titles, rows) {
  table.hidden = !rows.length;
  table.replaceChildren(
    el("thead", {}, el("tr", {}, ...titles.map((title) => el("th", { scope: "col" }, title)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((text) => el("td", {}, text))))),
  );
}

const MEANS = { alpha: "weight of an update", beta: "weight of a fresh model",
  reward: "loss before minus after" };

export class Learned {
  constructor(view) {
    this.view = view;
    this.choice = el("select", { "aria-label": "learned number", onchange: () => {
      this.name = this.choice.value;
      this.draw(this.runs);
    } });
    this.values = new Chart({ title: "Learned weights", view, dots: true,
      format: (value) => String(Number(value.toPrecision(4))),
      axisFormat: (value) => String(Number(value.toPrecision(3))), empty: "nothing reported" });
    this.values.tools.append(this.choice);
    this.points = new Chart({ title: "Merge points, epochs", view, dots: true, zero: true,
      whole: true, format: (value) => digits(value, 0), axisFormat: (value) => digits(value, 0),
      empty: "no device has asked for a fresher model" });
    this.counts = el("div", { class: "histogram" });
    this.root = el("section", { class: "panel" }, el("h2", {}, "Learned weights and merge points"),
      el("div", { class: "pair" }, this.values.root, this.points.root), this.counts);
  }

  draw(runs) {
    this.runs = runs;
    const names = [...new Set(runs.flatMap((run) => [...run.learned.keys()]))];
    if (names.join() !== this.names) {
      this.names = names.join();
      this.choice.replaceChildren(...names.map((name) => el("option", { value: name },
        MEANS[name] ? `${name}, ${MEANS[name]}` : name)));
      if (!names.includes(this.name)) [this.name] = names;
      this.choice.value = this.name ?? "";
    }
    const line = (run, points, y) => {
      const n = points?.upTo(this.view.paused ? this.view.pausedAt : NaN) ?? 0;
      const [times, values] = ["t", y].map((name) => points?.column(name).subarray(0, n) ?? []);
      return { label: run.name, ...theme.look(run.place), x: times, y: values };
    };
    const learned = runs.filter((run) => run.learned.has(this.name));
    this.values.set(learned.map((run) => line(run, run.learned.get(this.name), "value")));
    const asked = runs.filter((run) => run.refresh.count);
    this.points.set(asked.map((run) => line(run, run.refresh, "point")));
    this.points.root.hidden = !asked.length;
    const key = JSON.stringify(asked.map((run) => [run.id, run.points, run.outcomes, theme.dark]));
    if (key === this.key) return;
    this.key = key;
    this.counts.replaceChildren(...asked.map((run) => {
      const box = histogram(`${run.name}: asked after epoch`, run.points, run.place);
      const said = Object.entries(run.outcomes).map(([name, n]) => `${count(n)} ${name}`)
        .join(", ");
      setText(box.firstChild, `${run.name}: asked after epoch; ${said}`);
      return box;
    }));
  }
}
