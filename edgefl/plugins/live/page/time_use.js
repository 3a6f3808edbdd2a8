// Which share of the shown time the edges spend in what, per run and per group of edges.

import { KINDS } from "./lanes.js";
import { lineKey, theme } from "./theme.js";
import { digits, el, setText } from "./util.js";

const FAULT = "fault"; // all kinds that are not in KINDS
const SHOWN = [ // kind, swatch, text
  ["training", "compute", "compute"], ["wait", "wait", "wait"], ["send", "send", "send"],
  ["receive", "receive", "receive"], ["idle", "idle", "no task"], [FAULT, "fault", "fault"],
  ["lost", "away", "lost"]];
const RARE = [FAULT, "lost"];

/**
 * The share of each kind of the time of `edges` in a window, by kind; null if none of it is known.
 * The part before `run.lanes.completeFrom` comes from the older window of the server, if that is
 * there; else it does not count.
 */
export function timeUse(run, edges, { from, to, now }) {
  const { lanes, archive } = run;
  const end = Math.min(to, now);
  const begin = Math.max(0, from);
  const split = Math.min(end, Math.max(begin, lanes.completeFrom));
  const sums = {};
  const add = (kind, value) => {
    const name = KINDS.includes(kind) ? kind : FAULT;
    sums[name] = (sums[name] ?? 0) + value;
  };
  let known = Math.max(0, end - split);
  if (known > 0) {
    for (const [kind, value] of Object.entries(lanes.seconds(edges, split, end, now))) {
      add(kind, value);
    }
  }
  const low = Math.max(begin, archive?.from ?? 0);
  const high = Math.min(split, archive?.to ?? 0);
  if (high > low) {
    known += high - low;
    older(archive, edges, low, high, add);
  }
  if (!(known > 0) || !edges.length) return null;
  for (const kind of Object.keys(sums)) sums[kind] /= known * edges.length;
  return sums;
}

function older(archive, edges, from, to, add) {
  if (archive.lanes) {
    const found = archive.lanes.seconds(edges, from, to, to);
    for (const [kind, value] of Object.entries(found)) add(kind, value);
    return;
  }
  const wanted = new Set(edges);
  const { bin_s: width, first_s: first } = archive;
  for (const [edge, , kind, shares] of archive.bins) {
    if (!wanted.has(edge)) continue;
    shares.forEach((share, bin) => {
      const begin = Math.max(from, first + bin * width);
      const end = Math.min(to, first + (bin + 1) * width);
      if (end > begin) add(kind, share * (end - begin));
    });
  }
}

/** The time use of an edge in words. */
export function useInWords(run, edge, frame) {
  const found = timeUse(run, [edge], frame) ?? {};
  return SHOWN.filter(([kind]) => found[kind] > 0)
    .map(([kind, , text]) => `${text} ${digits(100 * found[kind], 0)} %`).join(", ");
}

/** A row per run, and below the chosen run one per group of its edges: bar and shares. */
export class TimeUse {
  /** `choose(run, group)`: its edges are to be shown; the group may be "". */
  constructor(choose) {
    this.choose = choose;
    this.root = el("table", { class: "uses" });
  }

  /** `frames`: where each of `runs` is; `chosen`: whose edges are shown, those of `group`. */
  draw(runs, frames, chosen, group) {
    const rows = runs.flatMap((run, at) => {
      const whole = { run, frame: frames[at], name: "", edges: run.edges.map((_, edge) => edge) };
      const groups = run === chosen ? run.groups : [];
      return [whole, ...groups.map((each) => ({ ...whole, ...each }))];
    });
    const key = JSON.stringify([theme.dark, rows.map(({ run, name }) => [run.name, name])]);
    if (key !== this.key) this._build(rows, runs.length > 1);
    this.key = key;
    rows.forEach(({ run, frame, name, edges }, at) => {
      const found = timeUse(run, edges, frame);
      const { button, parts, values } = this.rows[at];
      button?.setAttribute("aria-pressed", String(run === chosen && name === group));
      SHOWN.forEach(([kind], place) => {
        const share = found?.[kind] ?? 0;
        parts[place].style.width = `${100 * share}%`;
        setText(values[place], found ? `${digits(100 * share, 0)} %` : "–");
        if (share > 0) this.root.classList.add(`has-${kind}`);
      });
    });
  }

  _build(rows, several) {
    this.root.classList.remove(...RARE.map((kind) => `has-${kind}`));
    this.rows = rows.map(({ run, name, edges }) => {
      const count = `${edges.length} edge${edges.length === 1 ? "" : "s"}`;
      const text = name ? `${name}, ${count}` : run.name;
      const entry = [name ? null : lineKey(theme.look(run.place)), text];
      const many = several || run.groups.length;
      const button = many ? el("button", { type: "button", class: "small",
        title: `show the edges of ${text}`, onclick: () => this.choose(run, name) }, ...entry)
        : null;
      const parts = SHOWN.map(([, swatch]) => el("i", { class: `swatch ${swatch}` }));
      const values = SHOWN.map(([kind, , words]) => el("td", { class: kind, "data-label": words }));
      const row = el("tr", { class: name ? "group-row" : null }, el("th", { scope: "row" },
        ...(button ? [button] : entry)), el("td", { class: "use-bar", "aria-hidden": "true" },
        el("span", {}, ...parts)), ...values);
      return { row, button, parts, values };
    });
    this.root.replaceChildren(
      el("caption", { class: "hidden" }, "share of the shown time of all edges"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "share of time"),
        el("td", { class: "use-bar" }), ...SHOWN.map(([kind, swatch, text]) => el("th",
          { scope: "col", class: kind }, el("i", { class: `swatch ${swatch}` }), text)))),
      el("tbody", {}, ...this.rows.map(({ row }) => row)));
  }
}
