// What only some strategies have: TDMA slots, numbers that they report, and requests for fresher
// models.

import { Chart } from "./charts.js";
import { shares } from "./curves.js";
import { fitted, paintAxis } from "./paint.js";
import { theme } from "./theme.js";
import { byName, count, digits, el, seconds, setText } from "./util.js";

const ROWS_SHOWN = 8; // of slots, and of rounds
const LABEL_PX = 74;
const MOST_ROWS_PX = 300;

export class Slots {
  constructor(root, view) {
    Object.assign(this, { root, view });
    this.canvas = el("canvas", { class: "slots-map", role: "img",
      "aria-label": "slots over time, a row per device" });
    this.title = el("h2");
    this.table = el("table", { class: "slots" });
    this.rounds = el("table", { class: "rounds" });
    root.append(this.title,
      el("p", { class: "key-line" }, ...[["send", "up"], ["receive", "down"], ["wait", "granted"]]
        .map(([kind, text]) => el("span", { class: "entry" }, el("i", { class: `swatch ${kind}` }),
          text))),
      this.canvas, el("div", { class: "pair" }, el("div", { class: "scroll-x" }, this.table),
        el("div", { class: "scroll-x" }, this.rounds)));
  }

  /** Shows the slots of a run, if it has any; `title`: of the section. */
  show(run, title) {
    this.run = run;
    setText(this.title, title);
    this.root.hidden = !run.slots.items.length && run.config.medium !== "tdma";
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

  /** The tables of the latest slots and rounds; only after news, because it is laid out anew. */
  tell() {
    const { run } = this;
    const slot = run.config.slot_s;
    const latest = run.slots.items.slice(-ROWS_SHOWN).reverse();
    const rows = latest.map(([begin, , edge, direction, kind]) => [
      slot ? count(begin / slot) : seconds(begin, 3), seconds(begin, 3), this._name(edge),
      direction, kind]);
    fill(this.table, ["slot", "begins", "device", "direction", "kind"], rows);
    const rounds = run.rounds.items.slice(-ROWS_SHOWN).reverse();
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
  reward: "loss before minus after", gap: "versions since the base model" };

export class Reported {
  constructor(root, view) {
    Object.assign(this, { root, view });
    this.choice = el("select", { "aria-label": "reported number", onchange: () => {
      this.name = this.choice.value;
      this.draw(this.runs);
    } });
    this.values = new Chart({ title: "Reported number", view, dots: true,
      format: (value) => String(Number(value.toPrecision(4))),
      axisFormat: (value) => String(Number(value.toPrecision(3))), empty: "nothing reported" });
    this.values.tools.append(this.choice);
    this.points = new Chart({ title: "A device asks for a fresher model after epoch", view,
      dots: true, zero: true, whole: true, format: (value) => digits(value, 0),
      axisFormat: (value) => digits(value, 0), empty: "no device has asked" });
    this.notes = el("div", { class: "note" });
    root.append(el("h2", {}, "Reported by the strategy"),
      el("div", { class: "pair" }, this.values.root, this.points.root), this.notes);
  }

  draw(runs) {
    this.runs = runs;
    const names = [...new Set(runs.flatMap((run) => [...run.learned.keys()]))];
    if (names.join() !== this.names) {
      this.names = names.join();
      this.choice.replaceChildren(...names.map((name) => el("option", { value: name },
        MEANS[name] ? `${name}, ${MEANS[name]}` : name.replaceAll("_", " "))));
      if (!names.includes(this.name)) [this.name] = names;
      this.choice.value = this.name ?? "";
    }
    const line = (run, points, y) => {
      const n = points?.upTo(this.view.paused ? this.view.pausedAt : NaN) ?? 0;
      const [times, values] = ["t", y].map((name) => points?.column(name).subarray(0, n) ?? []);
      return { label: run.name, ...theme.look(run.place), x: times, y: values };
    };
    const having = runs.filter((run) => run.learned.has(this.name));
    this.values.set(having.map((run) => line(run, run.learned.get(this.name), "value")));
    this.values.root.hidden = !names.length;
    const asked = runs.filter((run) => run.refresh.count);
    this.points.set(asked.map((run) => line(run, run.refresh, "point")));
    this.points.root.hidden = !asked.length;
    this.notes.replaceChildren(...asked.map(({ name, points, outcomes }) => {
      const { all, mean } = shares(points);
      const counts = Object.entries(outcomes).map(([outcome, n]) => `${count(n)} ${outcome}`);
      return el("p", {}, `${name}: ${counts.join(", ")}`
        + `${all ? `; asked after epoch ${digits(mean, 1)} on average` : ""}`);
    }));
  }
}
