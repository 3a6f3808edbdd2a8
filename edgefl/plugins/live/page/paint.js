// Drawing of lanes, marks and axes on a canvas, in CSS pixels.

import { IDLE, KINDS, LOST, RECEIVE, SEND, TRAINING, WAIT } from "./lanes.js";
import { theme } from "./theme.js";
import { niceStep, tick } from "./util.js";

const HATCH_FROM_PX = 4; // narrower intervals are plain
const FAULT = LOST + 1; // and all above it

/** Makes the canvas as large as its box and returns its context, scaled to CSS pixels. */
export function fitted(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Where the lanes of a row of this height lie: [top, height] of each of LANES. */
export function laneBoxes(row) {
  const pad = row >= 14 ? 2 : 1;
  const inner = row - 2 * pad;
  const compute = Math.ceil(inner * 0.46);
  const gap = row >= 20 ? 1 : 0;
  const link = (inner - compute - 2 * gap) / 2;
  return [[pad, compute], [pad + compute + gap, link], [pad + compute + 2 * gap + link, link],
    [0, row - 1], [0, row - 1]];
}

/** Fills of all kinds: {plain, wide} by kind; the last one is that of all faults. */
export function fills(context) {
  const c = theme.colours;
  const all = [];
  all[TRAINING] = { plain: c.compute, wide: c.compute };
  all[WAIT] = { plain: c.wait, wide: theme.hatch(context, c.wait, "") };
  all[SEND] = { plain: c.send, wide: c.send };
  all[RECEIVE] = { plain: c.receive, wide: theme.hatch(context, c.ground, c.receive) };
  all[FAULT] = { plain: c.fault, wide: theme.hatch(context, c.fault, "") };
  all[LOST] = { plain: c.away, wide: theme.hatch(context, c.away, "") };
  return all;
}

/**
 * Draws one lane. `frame`: {from, to, x (of `from`), scale (px per s), now}. Intervals below one
 * pixel are gathered: their share is the opacity.
 */
export function paintLane(context, lane, top, height, frame, all) {
  const { from, to, x, scale, now } = frame;
  const { begins, ends, kinds } = lane;
  const fillOf = (kind) => all[Math.min(kind, FAULT)];
  let pixel = -1;
  let [share, kind] = [0, 0];
  const flush = () => {
    if (share > 0) {
      context.globalAlpha = Math.min(1, 0.25 + 0.75 * share);
      context.fillStyle = fillOf(kind).plain;
      context.fillRect(pixel, top, 1, height);
      context.globalAlpha = 1;
    }
    share = 0;
  };
  for (let at = lane.first(from); at < lane.count; at += 1) {
    if (begins[at] > to) break;
    if (kinds[at] === IDLE) continue;
    const left = x + (begins[at] - from) * scale;
    const width = (ends[at] - begins[at]) * scale;
    if (width < 1) {
      const column = Math.floor(left);
      if (column !== pixel) {
        flush();
        pixel = column;
        kind = kinds[at];
      }
      share += width;
      if (kinds[at] !== WAIT) kind = kinds[at];
    } else {
      box(context, left, top, width, height, fillOf(kinds[at]), x, x + (to - from) * scale);
    }
  }
  flush();
  for (const slice of lane.open) {
    if (slice.kind !== IDLE && slice.begin < to && now > slice.begin) {
      const left = x + (slice.begin - from) * scale;
      const width = Math.max(1, (now - slice.begin) * scale);
      box(context, left, top, width, height, fillOf(slice.kind), x, x + (to - from) * scale);
    }
  }
}

function box(context, left, top, width, height, fill, low, high) {
  const begin = Math.max(left, low);
  const end = Math.min(left + width, high);
  if (end <= begin) return;
  const wide = end - begin >= HATCH_FROM_PX;
  context.fillStyle = wide ? fill.wide : fill.plain;
  // a hairline between neighbours shows where one interval ends
  context.fillRect(begin, top, end - begin - (wide ? 0.6 : 0), height);
}

/** Draws what the server has only as shares of time, as heights. */
export function paintShares(context, archive, rowOf, boxes, frame, all) {
  const { from, to, x, scale } = frame;
  for (const [edge, lane, name, shares] of archive.bins) {
    const top = rowOf(edge);
    const known = KINDS.indexOf(name);
    const kind = known < 0 ? FAULT : known;
    if (top === null || kind === IDLE) continue;
    const [offset, height] = boxes[lane];
    context.fillStyle = all[kind].plain;
    const first = Math.max(0, Math.floor((from - archive.first_s) / archive.bin_s));
    for (let bin = first; bin < shares.length; bin += 1) {
      const begin = archive.first_s + bin * archive.bin_s;
      if (begin > to || begin >= archive.until) break;
      if (!(shares[bin] > 0)) continue;
      const left = Math.max(x, x + (begin - from) * scale);
      const width = Math.max(0.5, archive.bin_s * scale);
      context.globalAlpha = 0.2 + 0.8 * Math.min(1, shares[bin]);
      context.fillRect(left, top + offset, width, height);
    }
    context.globalAlpha = 1;
  }
}

const MARK_COLOURS = { merge: "merge", fresh: "fresh", discard: "bad", failed: "bad",
  timeout: "bad", restart: "fault", duplicate: "fault", corrupt: "fault" };

/** A mark of an edge: a shape per kind, so that it needs no colour; a tick where it is crowded. */
export function paintMark(context, kind, x, top, row, crowded) {
  if (crowded) {
    context.fillStyle = theme.colours[MARK_COLOURS[kind] ?? "ink"];
    context.fillRect(x, top + 1, 1, Math.max(2, row * 0.3));
    return;
  }
  const size = Math.max(2, Math.min(5, row * 0.22));
  const middle = top + row / 2;
  context.fillStyle = context.strokeStyle = theme.colours[MARK_COLOURS[kind] ?? "ink"];
  context.lineWidth = 1.4;
  context.beginPath();
  if (kind === "merge" || kind === "fresh") { // a diamond, full or hollow
    context.moveTo(x, middle - size);
    context.lineTo(x + size, middle);
    context.lineTo(x, middle + size);
    context.lineTo(x - size, middle);
    context.closePath();
    if (kind === "merge") context.fill();
    else {
      context.fillStyle = theme.colours.ground;
      context.fill();
      context.stroke();
    }
  } else { // a cross
    context.moveTo(x - size, middle - size);
    context.lineTo(x + size, middle + size);
    context.moveTo(x + size, middle - size);
    context.lineTo(x - size, middle + size);
    context.stroke();
  }
}

/** A time axis along the lower edge. */
export function paintAxis(context, frame, width, bottom) {
  const { from, to, x, scale } = frame;
  const step = niceStep(to - from, Math.max(2, (width - x) / 90));
  const c = theme.colours;
  context.font = `11px ${c.font}`;
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  context.lineWidth = 1;
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to; at += 1) {
    const place = Math.round(x + (at * step - from) * scale) + 0.5;
    context.strokeStyle = c.line;
    context.beginPath();
    context.moveTo(place, bottom);
    context.lineTo(place, bottom + 4);
    context.stroke();
    context.fillStyle = c.soft;
    const text = tick(at * step, step);
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.min(width - half - 1, Math.max(half + 1, place)), bottom + 15);
  }
}
