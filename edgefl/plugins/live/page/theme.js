// Light and dark; colours for canvases come from the style sheet, so that they live in one place.

const KEY = "edgefl-theme";
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 2], [1, 2]];
const LOOKS = DASHES.length; // and as many colours
const COLOURS = ["ink", "soft", "line", "ground", "sunken", "accent", "compute", "wait", "send",
  "receive", "fault", "away", "merge", "fresh", "good", "warn", "bad", "run0", "run1", "run2",
  "run3", "run4", "run5"];

export const MOST_RUNS = 2 * LOOKS; // from the second half on, a colour has another dash

class Theme extends EventTarget {
  constructor() {
    super();
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.system.addEventListener("change", () => this._apply());
    try {
      this.choice = localStorage.getItem(KEY); // "light", "dark" or null: as the system
    } catch {
      this.choice = null; // storage may be switched off
    }
    this._apply();
  }

  get dark() {
    return this.choice ? this.choice === "dark" : this.system.matches;
  }

  toggle() {
    this.choice = this.dark ? "light" : "dark";
    try {
      localStorage.setItem(KEY, this.choice);
    } catch {
      // the choice then lasts as long as the page
    }
    this._apply();
  }

  _apply() {
    document.documentElement.dataset.theme = this.dark ? "dark" : "light";
    const style = getComputedStyle(document.documentElement);
    this.colours = Object.fromEntries(
      COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
    );
    this.colours.font = style.getPropertyValue("--font").trim() || "sans-serif";
    this._hatches = new Map();
    this.dispatchEvent(new Event("change"));
  }

  /** The colour and dash of the run at a place. */
  look(place) {
    const shift = LOOKS / 2 * (Math.floor(place / LOOKS) % 2);
    return { colour: this.colours[`run${place % LOOKS}`], dash: DASHES[(place + shift) % LOOKS] };
  }

  /** A diagonal hatch, so that kinds differ without colour, too. */
  hatch(context, colour, back) {
    const key = `${colour} ${back} ${devicePixelRatio}`;
    if (!this._hatches.has(key)) {
      const tile = document.createElement("canvas");
      const size = (tile.width = tile.height = Math.round(6 * devicePixelRatio));
      const pen = tile.getContext("2d");
      if (back) {
        pen.fillStyle = back;
        pen.fillRect(0, 0, size, size);
      }
      pen.strokeStyle = colour;
      pen.lineWidth = 1.2 * devicePixelRatio;
      for (const shift of [-size, 0, size]) {
        pen.moveTo(shift - 1, size + 1);
        pen.lineTo(shift + size + 1, -1);
      }
      pen.stroke();
      const pattern = context.createPattern(tile, "repeat");
      pattern.setTransform(new DOMMatrix().scale(1 / devicePixelRatio));
      this._hatches.set(key, pattern);
    }
    return this._hatches.get(key);
  }
}

export const theme = new Theme();

/** A short line as a run is drawn, for legends. */
export function lineKey({ colour, dash, thin }) {
  const [picture, line] = ["svg", "line"].map((tag) => (
    document.createElementNS("http://www.w3.org/2000/svg", tag)));
  const set = (node, attributes) => {
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  };
  set(picture, { class: "key", width: 26, height: 8, "aria-hidden": "true" });
  set(line, { x1: 0, y1: 4, x2: 26, y2: 4, stroke: colour, "stroke-width": thin ? 1.5 : 3,
    "stroke-dasharray": (dash ?? []).join(" ") });
  picture.append(line);
  return picture;
}
