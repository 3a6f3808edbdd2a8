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

  /** `edges`: those that count. Only the part of the window whose intervals are here is counted. */
  draw(lanes, edges, { from, to, now }) {
    const begin = Math.max(0, from, lanes.completeFrom);
    const end = Math.min(to, now);
    const all = edges.length * (end - begin);
    const found = all > 0 ? lanes.seconds(edges, begin, end, now) : {};
    found[FAULT] = Object.entries(found)
      .reduce((sum, [kind, value]) => sum + (KINDS.includes(kind) ? 0 : value), 0);
    for (const [kind, node] of this.values) {
      setText(node, all > 0 ? `${digits((100 * (found[kind] ?? 0)) / all, 0)} %` : "");
    }
  }

  /** The same of one edge, in words. */
  static words(lanes, edge, { from, to, now }) {
    const begin = Math.max(0, from, lanes.completeFrom);
    const end = Math.min(to, now);
    if (!(end > begin)) return "";
    const found = lanes.seconds([edge], begin, end, now);
    return Object.entries(found).filter(([, value]) => value > 0)
      .map(([kind, value]) => `${kind} ${digits((100 * value) / (end - begin), 0)} %`).join(", ");
  }
}
