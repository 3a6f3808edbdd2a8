// The table of all runs, with their numbers, and the dialog that adds one.

import { METRICS } from "./run.js";
import { lineKey, theme } from "./theme.js";
import { bytes, count, digits, el, rate, seconds, setText } from "./util.js";

const NEWS = { waiting: "no row yet", silent: "no new row for 30 s: killed, or very slow" };
const GOOD = ["faithful", "virtual"];
const MOST_REASONS = 2;
const targetOf = ({ config }) => config.target ?? null;
const share = (value) => digits(value, 3);

/** The mean over the seeds that have a number, if there are several: {mean, having, of}. */
function ofSeeds({ seeds }, pick) {
  const values = seeds.map(pick).filter(Number.isFinite);
  if (seeds.length < 2) return null;
  const sum = values.reduce((total, value) => total + value, 0);
  return { mean: sum / values.length, having: values.length, of: seeds.length };
}

/** A number of a run, and below it what its strategy's seeds have: [text, small text]. */
function withSeeds(run, value, pick, format) {
  const found = ofSeeds(run, pick);
  if (!found) return [format(value)];
  const { mean, having, of } = found;
  const small = having === of ? `${of} seeds: ${format(mean)}` : `${having} of ${of} seeds`;
  return [format(value), small];
}

const last = ({ metrics }) => metrics.at(-1)?.[METRICS.indexOf("accuracy")];
const reached = (place) => ({ reached: found }) => found?.[place] ?? NaN;
const short = (value) => seconds(value, value < 10 ? 2 : 1);

// name, title, [text, small text] of a run, and which runs give the column a reason
const COLUMNS = [
  ["state", () => "state", (run) => state(run)],
  ["verdict", () => "verdict", ({ fidelity }) => [fidelity?.verdict ?? "–"]],
  ["accuracy", (runs) => common(runs, ({ config }) => config.score || "accuracy") ?? "score",
    (run) => withSeeds(run, run.head.accuracy, last, share)],
  ["reached", (runs) => `to ${common(runs, targetOf) ?? "target"}`,
    (run) => withSeeds(run, reached(0)(run.head), reached(0), short), targetOf],
  ["sent", (runs) => `bytes to ${common(runs, targetOf) ?? "target"}`,
    (run) => withSeeds(run, reached(1)(run.head), reached(1), bytes), targetOf],
  ["traffic", () => "sent up / down",
    ({ head }) => [`${bytes(head.bytes_up)} / ${bytes(head.bytes_down)}`]],
  ["now", () => "now up / down", (run) => [run.state === "running"
    ? `${rate(run.head.up_bit_s)} / ${rate(run.head.down_bit_s)}` : "–"],
  (run) => run.state === "running"],
  ["version", () => "versions", (run) => [count(run.head.version)]],
  ["updates", () => "updates used", ({ head }) => updates(head)],
  ["stale", () => "mean staleness", (run) => [staleness(run.gaps)]],
  ["age", () => "age of models", ({ head }) => [seconds(head.age_s),
    Number.isFinite(head.age_s) ? `${digits(head.age_versions, 1)} versions` : ""],
  ({ head }) => Number.isFinite(head.age_s)],
];

/** What all runs have in common; undefined if they differ. */
function common(runs, of) {
  const values = new Set(runs.map(of));
  return values.size === 1 ? [...values][0] ?? undefined : undefined;
}

function state(run) {
  const { share: done, left_s: left, outage_s: outage } = run.head;
  const part = run.state === "running" && Number.isFinite(done)
    ? `, ${Math.round(done * 100)} %` : "";
  return [run.state + part, [run.finished === run.state ? null : run.finished ?? NEWS[run.state],
    Number.isFinite(left) ? `${seconds(left, 0)} left` : run.nowS ? seconds(run.nowS) : null,
    Number.isFinite(outage) ? `resumed after ${seconds(outage)}` : null]
    .filter(Boolean).join(", ")];
}

function updates(head) {
  if (head.received === undefined) return ["–"];
  return [`${count(head.applied)} of ${count(head.received)}`,
    [[head.discarded, "discarded"], [head.waiting, "waiting"]]
      .filter(([n]) => n > 0).map(([n, word]) => `${n} ${word}`).join(", ")];
}

function staleness(gaps) {
  const all = Object.values(gaps).reduce((sum, n) => sum + n, 0);
  const sum = Object.entries(gaps).reduce((total, [gap, n]) => total + Number(gap) * n, 0);
  return all ? digits(sum / all, 2) : "–";
}

/** What was run, in short phrases: [those of all runs, those of each run alone]. */
export function setups(runs) {
  const phrases = runs.map(({ config, about }) => [about.experiment, ...(config.setup ?? []),
    about.clock && `${about.clock} clock`,
    Number.isFinite(about.seed) && `seed ${about.seed}`].filter(Boolean));
  const shared = (phrases[0] ?? []).filter((each) => phrases.every((of) => of.includes(each)));
  const unsaid = (of, at) => of.filter((each) => !runs[at]?.name.includes(each));
  return [unsaid(shared, 0), phrases.map((of, at) => unsaid(of, at)
    .filter((each) => !shared.includes(each)))];
}

export class RunTable {
  /** `hide(id)` takes a run off the page. */
  constructor(hide) {
    this.hide = hide;
    this.rows = new Map();
    this.root = el("table", { class: "runs" });
    this.caveats = el("ul", { id: "caveats", class: "reasons" });
  }

  draw(runs) {
    const shown = COLUMNS.filter(([, , , needed]) => !needed || runs.some(needed));
    const titles = shown.map(([, title]) => title(runs));
    const [, own] = setups(runs);
    const key = JSON.stringify([titles, own, runs.map((run) => [run.id, run.name])]);
    if (key !== this.key) this._build(runs, shown, titles, own);
    this.key = key;
    for (const run of runs) this._fill(run, shown);
    this._best(runs, shown);
    this._caveats(runs);
  }

  _build(runs, shown, titles, own) {
    this.rows = new Map(runs.map((run, at) => [run.id,
      this._row(run, shown, titles, own[at], runs.length > 1)]));
    this.root.replaceChildren(el("caption", { class: "hidden" }, "Runs that are shown"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "run"),
        ...titles.map((title) => el("th", { scope: "col" }, title)),
        el("td", { class: "close" }))),
      el("tbody", {}, ...[...this.rows.values()].map(({ row }) => row)));
  }

  _row(run, shown, titles, own, several) {
    const key = el("span");
    const trouble = el("small", { class: "error" });
    const cells = shown.map(([name], at) => el("td", { "data-label": titles[at], class: name },
      el("span"), el("small")));
    const close = el("button", { type: "button", class: "small", title: `hide ${run.name}`,
      "aria-label": `hide ${run.name}`, onclick: () => this.hide(run.id) }, "×");
    const row = el("tr", { "data-run": run.name },
      el("th", { scope: "row", title: run.about.path }, key, el("span", {}, run.name),
        own.length ? el("small", {}, own.join(", ")) : null, trouble),
      ...cells, el("td", { class: "close" }, several ? close : null));
    return { row, cells, key, trouble };
  }

  _fill(run, shown) {
    const { cells, key, row, trouble } = this.rows.get(run.id);
    const look = theme.look(run.place);
    if (key.dataset.colour !== look.colour) key.replaceChildren(lineKey(look));
    key.dataset.colour = look.colour;
    row.dataset.state = run.state;
    row.dataset.verdict = run.fidelity?.verdict ?? "";
    shown.forEach(([, , texts], at) => {
      const [text, small] = texts(run);
      setText(cells[at].firstChild, text);
      setText(cells[at].lastChild, small ?? "");
    });
    const strange = run.head.strange_rows;
    setText(trouble, run.trouble
      || (strange ? `${count(strange)} rows are of another version` : ""));
    row.style.setProperty("--share", run.going ? run.head.share ?? 0 : 0);
  }

  /** Marks who reaches the target first, and with the fewest bytes, once all runs have ended. */
  _best(runs, shown) {
    ["reached", "sent"].forEach((name, place) => {
      const at = shown.findIndex(([each]) => each === name);
      const values = runs.map((run) => {
        const found = ofSeeds(run, reached(place));
        return !found ? reached(place)(run.head) : found.having === found.of ? found.mean : NaN;
      });
      const best = Math.min(...values.filter(Number.isFinite));
      const told = values.length > 1 && !runs.some((run) => run.going);
      runs.forEach((run, of) => this.rows.get(run.id).cells[at]?.classList.toggle("best",
        told && values[of] === best));
    });
  }

  /** Why a verdict is not good, and warnings: what a reader of the numbers must know. */
  _caveats(runs) {
    const lines = runs.flatMap(({ name, fidelity: found }) => {
      const bad = found?.verdict && !GOOD.includes(found.verdict);
      const reasons = [...(bad ? found.reasons ?? [] : []), ...(found?.warnings ?? [])];
      const more = reasons.length - MOST_REASONS;
      const text = reasons.slice(0, MOST_REASONS).join("; ") + (more > 0 ? `; ${more} more` : "");
      return text ? [[name, `${bad ? ` is ${found.verdict}` : ""}: ${text}`]] : [];
    });
    const key = JSON.stringify(lines);
    if (key === this.told) return;
    this.told = key;
    this.caveats.replaceChildren(...lines.map(([name, text]) => el("li", {}, el("b", {}, name),
      text)));
  }
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
      const { runs, added } = await this.stream.add(path);
      this.root.close();
      this.path.value = "";
      this.show(added, runs);
    } catch (error) {
      this.error.textContent = error.message;
    }
  }
}
