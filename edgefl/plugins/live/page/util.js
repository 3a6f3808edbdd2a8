// Formatting, small DOM helpers and numbers; no state.

export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/** First index of `array[0..count)` whose value is not below `value`; the array ascends. */
export function lowerBound(array, count, value) {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** An element with attributes and children; text children are never parsed as HTML. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets the text of a node only if it differs, so that unchanged parts are not laid out again. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function digits(value, places) {
  return Number.isFinite(value) ? value.toFixed(places) : "–";
}

export function count(value) {
  return Number.isFinite(value) ? Math.round(value).toLocaleString("en") : "–";
}

/** Emulated seconds for reading: 3.25 s, 75.0 s, 12:05 min, 3:02:05 h. */
export function seconds(value, places = 1) {
  if (!Number.isFinite(value)) return "–";
  if (Math.abs(value) < 120) return `${value.toFixed(places)} s`;
  const whole = Math.round(Math.abs(value));
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (number) => String(number).padStart(2, "0");
  const sign = value < 0 ? "−" : "";
  return h ? `${sign}${h}:${two(m)}:${two(s)} h` : `${sign}${m}:${two(s)} min`;
}

/** A tick of a time axis whose ticks are `step` apart. */
export function tick(value, step) {
  if (step < 60 && Math.abs(value) < 600) {
    return value.toFixed(step >= 1 ? 0 : Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));
  }
  const sign = value < 0 ? "−" : "";
  const all = Math.abs(value);
  const [h, m] = [Math.floor(all / 3600), Math.floor(all / 60) % 60];
  const places = step >= 1 ? 0 : Math.ceil(-Math.log10(step) - 1e-9);
  const s = (all % 60).toFixed(places).padStart(places ? places + 3 : 2, "0");
  return h ? `${sign}${h}:${String(m).padStart(2, "0")}:${s}` : `${sign}${m}:${s}`;
}

const STEPS_S = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** A step of 1, 2 or 5 × 10^n, and of whole minutes or hours above a minute. */
export function niceStep(span, most) {
  const rough = span / Math.max(1, most);
  if (!(rough > 0)) return 1;
  if (rough > 30) return STEPS_S.find((step) => step >= rough) ?? 86400 * Math.ceil(rough / 86400);
  const ten = 10 ** Math.floor(Math.log10(rough));
  const part = rough / ten;
  return (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10) * ten;
}

function scaled(value, units, base) {
  let at = 0;
  while (Math.abs(value) >= base && at < units.length - 1) {
    value /= base;
    at += 1;
  }
  const size = Math.abs(value);
  const places = value === 0 || size >= 100 || (at === 0 && Number.isInteger(value)) ? 0
    : size >= 10 ? 1 : 2;
  return `${value.toFixed(places)} ${units[at]}`;
}

export const rate = (bitPerS) => Number.isFinite(bitPerS)
  ? scaled(bitPerS, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"], 1000) : "–";
export const bytes = (size) => Number.isFinite(size)
  ? scaled(size, ["B", "kB", "MB", "GB", "TB"], 1000) : "–";

/** Sorts e2 before e10. */
export const byName = new Intl.Collator("en", { numeric: true }).compare;
