// The key of a timeline, with the share of time that its edges spend in each kind.

import { KINDS } from "./lanes.js";
import { digits, el, setText } from "./util.js";

const FAULT = "fault"; // all kinds that are not in KINDS
const SHOWN = [ // kind, swatch, text
  ["training", "compute", "compute"], ["wait", "wait", "wait"], ["send", "send", "send"],
  ["receive", "receive", "receive"], ["idle", "idle", "no task"], [FAULT, "fault", "fault"],
  ["lost", "away", "lost"]];
const MARKS = [["merge", "merge", ""], ["fresh", "fresher model arrives", ""],
  ["cross", "discarded or failed", "\u2715"]];

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

export class TimeUse {
  constructor() {
    this.values = new Map();
    this.root = el("ul", { class: "key-line kinds", "aria-label": "share of time in this window" },
      ...SHOWN.map(([kind, swatch, text]) => {
        const value = el("b");
        this.values.set(kind, value);
        return el("li", {}, el("i", { class: `swatch ${swatch}` }), `${text} `, value);
      }),
      ...MARKS.map(([mark, text, sign]) => el("li", {}, el("i", { class: `mark ${mark}` }, sign),
        text)));
  }

  /** `edges`: those that count. */
  draw(run, edges, frame) {
    const found = timeUse(run, edges, frame);
    for (const [kind, node] of this.values) {
      setText(node, found ? `${digits(100 * (found[kind] ?? 0), 0)} %` : "");
    }
  }

  /** The same of one edge, in words. */
  static words(run, edge, frame) {
    const found = timeUse(run, [edge], frame) ?? {};
    return SHOWN.filter(([kind]) => found[kind] > 0)
      .map(([kind, , text]) => `${text} ${digits(100 * found[kind], 0)} %`).join(", ");
  }
}
