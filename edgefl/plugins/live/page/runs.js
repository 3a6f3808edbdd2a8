// The table of all runs, with their numbers, and the dialog that adds one.

import { lineKey, theme } from "./theme.js";
import { bytes, count, digits, el, rate, seconds, setText } from "./util.js";

const STATE_WORDS = { waiting: "waiting", running: "running", finished: "finished",
  interrupted: "interrupted", silent: "silent" };

const COLUMNS = [
  ["state", "state", (run) => STATE_WORDS[run.state] ?? run.state],
  ["emulated", "emulated", (run) => seconds(run.nowS)],
  ["version", "version", (run) => count(run.head.version)],
  ["accuracy", "accuracy", (run) => digits(run.head.accuracy, 4)
    + (!run.config.score || run.config.score === "accuracy" ? "" : ` ${run.config.score}`)],
  ["updates", "updates", (run) => updates(run.head)],
  ["stale", "mean staleness", (run) => staleness(run.gaps)],
  ["age", "age of models now", ({ head }) => age(head)],
  ["traffic", "sent up / down",
    ({ head }) => `${bytes(head.bytes_up)} / ${bytes(head.bytes_down)}`],
  ["now", "now up / down", (run) => (run.state === "running"
    ? `${rate(run.head.up_bit_s)} / ${rate(run.head.down_bit_s)}` : "–")],
  ["verdict", "fidelity", (run) => run.fidelity?.verdict ?? "–"],
  ["left", "progress", (run) => progress(run)],
];

function updates(head) {
  if (head.received === undefined) return "–";
  const more = [[head.discarded, "discarded"], [head.waiting, "waiting"]]
    .filter(([n]) => n > 0).map(([n, word]) => `, ${n} ${word}`).join("");
  return `${count(head.applied)} of ${count(head.received)}${more}`;
}

function staleness(gaps) {
  const all = Object.values(gaps).reduce((sum, n) => sum + n, 0);
  const sum = Object.entries(gaps).reduce((total, [gap, n]) => total + Number(gap) * n, 0);
  return all ? digits(sum / all, 2) : "–";
}

function age({ age_s: s, age_versions: versions }) {
  return Number.isFinite(s) ? `${seconds(s)}, ${digits(versions, 1)} versions` : "–";
}

function progress(run) {
  const { share, left_s: left, outage_s: outage } = run.head;
  const again = Number.isFinite(outage) ? `, resumed after ${seconds(outage)}` : "";
  if (run.finished) return `ended: ${run.finished}${again}`;
  const part = Number.isFinite(share) ? `${Math.round(share * 100)} %` : "–";
  return `${part}${Number.isFinite(left) ? `, ${seconds(left, 0)} left` : ""}${again}`;
}

export class RunTable {
  /** `hide(id)` takes a run off the page. */
  constructor(hide) {
    this.hide = hide;
    this.body = el("tbody");
    this.rows = new Map();
    this.root = el("table", { class: "runs" },
      el("caption", { class: "hidden" }, "Runs that are shown"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "run"),
        ...COLUMNS.map(([, title]) => el("th", { scope: "col" }, title)),
        el("th", { scope: "col" }, el("span", { class: "hidden" }, "actions")))),
      this.body);
  }

  draw(runs) {
    const ids = runs.map((run) => `${run.id} ${run.name}`).join();
    if (ids !== this.ids) {
      this.ids = ids;
      this.rows = new Map(runs.map((run) => [run.id, this._row(run, runs.length > 1)]));
      this.body.replaceChildren(...[...this.rows.values()].map(({ row }) => row));
    }
    for (const run of runs) this._fill(run);
  }

  _row(run, several) {
    const key = el("span");
    const trouble = el("small", { class: "error" });
    const cells = COLUMNS.map(([name, title]) => el("td", { "data-label": title, class: name }));
    const close = el("button", { type: "button", class: "small", title: `hide ${run.name}`,
      "aria-label": `hide ${run.name}`, onclick: () => this.hide(run.id) }, "×");
    const row = el("tr", { "data-run": run.name },
      el("th", { scope: "row" }, key, el("span", {}, run.name),
        el("small", { title: run.about.path ?? "" }, about(run.about)), trouble),
      ...cells, el("td", { class: "close" }, several ? close : null));
    return { row, cells, key, trouble };
  }

  _fill(run) {
    const { cells, key, row, trouble } = this.rows.get(run.id);
    const look = theme.look(run.place);
    if (key.dataset.colour !== look.colour) key.replaceChildren(lineKey(look));
    key.dataset.colour = look.colour;
    row.dataset.state = run.state;
    row.dataset.verdict = run.fidelity?.verdict ?? "";
    COLUMNS.forEach(([, , text], at) => setText(cells[at], text(run)));
    const strange = run.head.strange_rows;
    setText(trouble, run.trouble
      || (strange ? `${count(strange)} rows are of another version` : ""));
    row.style.setProperty("--share", run.finished ? 0 : run.head.share ?? 0);
  }
}

function about({ experiment, seed, clock }) {
  return [experiment, seed === null || seed === undefined ? null : `seed ${seed}`,
    clock ? `${clock} clock` : null].filter(Boolean).join(", ");
}

/** The dialog that shows another run: one that is served already, or a directory. */
export class AddDialog {
  constructor(stream, show) {
    Object.assign(this, { stream, show });
    this.list = el("ul", { class: "choices" });
    this.path = el("input", { type: "text", id: "path", spellcheck: "false", autocomplete: "off",
      placeholder: "runs/quickstart/fedbuff" });
    this.error = el("p", { class: "error", role: "alert" });
    this.root = el("dialog", { class: "add", "aria-labelledby": "add-title" },
      el("h2", { id: "add-title" }, "Show another run"), this.list,
      el("form", { method: "dialog", onsubmit: (event) => this._submit(event) },
        el("label", { for: "path" }, "Run directory"), this.path,
        el("button", { type: "submit" }, "Show")),
      this.error,
      el("button", { type: "button", class: "quiet", onclick: () => this.root.close() }, "Close"));
  }

  async open(shown) {
    this.shown = shown;
    this.error.textContent = "";
    this.root.showModal();
    try {
      const { runs, nearby } = await this.stream.runs();
      this._fill(runs.filter((run) => !shown.includes(run.id)), nearby ?? []);
    } catch {
      this.error.textContent = "The server does not answer; is the command still running?";
    }
  }

  _fill(runs, nearby) {
    const entry = (text, note, use) => el("li", {}, el("button", { type: "button", onclick: use },
      el("b", {}, text), el("small", {}, note)));
    this.list.replaceChildren(
      ...runs.map((run) => entry(run.name, `${run.state}, ${run.path}`, () => {
        this.root.close();
        this.show([run.id]);
      })),
      ...nearby.map((path) => entry(path.split("/").slice(-2).join("/"), path,
        () => this._add(path))),
    );
    this.path.focus();
  }

  _submit(event) {
    event.preventDefault();
    if (this.path.value.trim()) this._add(this.path.value.trim());
  }

  async _add(path) {
    this.error.textContent = "";
    try {
      const before = new Set((await this.stream.runs()).runs.map((run) => run.id));
      const runs = await this.stream.add(path);
      const fresh = runs.filter((run) => !before.has(run.id));
      const found = fresh.length ? fresh : runs.filter((run) => run.path.endsWith(path));
      this.root.close();
      this.path.value = "";
      this.show(found.map((run) => run.id), runs);
    } catch (error) {
      this.error.textContent = error.message;
    }
  }
}
