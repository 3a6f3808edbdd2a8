// The page: takes the server's updates and draws what has changed.

import { shareCursor } from "./charts.js";
import { Curves, Links, Staleness } from "./curves.js";
import { Fidelity, Words } from "./details.js";
import { attachKeys, helpDialog } from "./keys.js";
import { Reported, Slots } from "./methods.js";
import { Run } from "./run.js";
import { AddDialog, RunTable, setups } from "./runs.js";
import { Scrubber } from "./scrubber.js";
import { Stream } from "./stream.js";
import { MOST_RUNS, theme } from "./theme.js";
import { LaneSet } from "./lanes.js";
import { TimeUse } from "./time_use.js";
import { Timeline } from "./timeline.js";
import { clamp, el, seconds, setText } from "./util.js";
import { View } from "./view.js";

const at = (id) => document.getElementById(id);
const LEAST_FRAME_MS = 500; // between frames without news: the run needs the processor
const SEEDS_MS = 5000; // between two looks at the other seeds of runs under way
const FOLLOW_S = [5, 10, 30, 60, 300, 1800];
const ASK_AGAIN_MS = 4000; // for the same older window: a run that goes on adds to it
const TABLE_NEWS = ["head", "state", "trouble", "fidelity", "finished", "staleness_counts", "full",
  "metrics"];
const LINE_NEWS = ["slices", "open", "marks", "states", "full"];
const ARCHIVE_MARGIN = 0.5; // of a window, on each side

const view = new View();
const stream = new Stream();
const runs = new Map(); // id -> Run, those that are shown
let known = []; // all runs of the server
let chosen = null; // the run whose edges, events and hosts are shown
const curves = new Curves(view);
const links = new Links(view);
const stale = new Staleness(view);
const reported = new Reported(at("reported"), view);
const slots = new Slots(at("slots"), view);
const fidelity = new Fidelity();
const words = new Words(view);
const scrubber = new Scrubber(view);
const table = new RunTable((id) => choose([...runs.keys()].filter((each) => each !== id)));
const help = helpDialog();
const add = new AddDialog(stream, (ids, all) => {
  if (all) known = all;
  choose([...runs.keys(), ...ids.filter((id) => !runs.has(id))]);
});

const tip = {
  node: el("div", { class: "tip", "aria-hidden": "true" }),
  show(event, lines) {
    this.node.replaceChildren(...lines.map((line) => el("div", {}, line)));
    this.node.classList.add("on");
    const { offsetWidth: w, offsetHeight: h } = this.node;
    const x = clamp(event.clientX + 14, 4, innerWidth - w - 4);
    const below = event.clientY + 18;
    const y = below + h > innerHeight ? event.clientY - h - 12 : below;
    this.node.style.transform = `translate(${x}px, ${Math.max(2, y)}px)`;
  },
  hide() {
    this.node.classList.remove("on");
  },
};

const timeline = new Timeline(view, tip, askOlder);
const uses = new TimeUse((run, group) => {
  chosen = run;
  timeline.show(run, group);
  draw.all = true;
  draw.soon();
});

// ---------------------------------------------------------------- choice of runs
function fromAddress() {
  const found = new URLSearchParams(location.hash.slice(1)).get("runs");
  return found ? found.split(",").filter(Boolean) : [];
}

/** Shows these runs; all of them begin again with a full update. */
function choose(ids) {
  const wanted = ids.slice(0, MOST_RUNS);
  for (const id of [...runs.keys()]) if (!wanted.includes(id)) runs.delete(id);
  for (const id of wanted) {
    const about = known.find((each) => each.id === id);
    if (about && !runs.has(id)) runs.set(id, new Run(about, freePlace()));
    if (about) runs.get(id).about = about; // names get longer where another run has the same
  }
  history.replaceState(null, "", `#runs=${[...runs.keys()].join(",")}`);
  setText(at("too-many"), ids.length > MOST_RUNS ? `${MOST_RUNS} of ${ids.length} runs are shown; `
    + "hide some to add others." : "");
  if (!runs.has(chosen?.id)) [chosen] = runs.values();
  if (chosen) timeline.show(chosen, timeline.run === chosen ? timeline.group : "");
  draw.all = draw.table = true;
  draw.soon();
  stream.choose([...runs.keys()]);
  askSeeds();
}

function freePlace() {
  const taken = new Set([...runs.values()].map((run) => run.place));
  let place = 0;
  while (taken.has(place)) place += 1;
  return place;
}

/** Those that the page begins with: one run of each strategy of the first experiment. */
function firstOnes(all) {
  const same = all.filter((about) => about.experiment === all[0].experiment);
  return oneOfEach(same, new Set());
}

/** What the seeds of a strategy have in common: the folder that holds them. */
const group = ({ path }) => path.replace(/\/seed\d+\/?$/, "");

/** The first run of each group that is not in `shown`. */
function oneOfEach(all, shown) {
  const one = new Map();
  for (const about of all) {
    if (!shown.has(group(about)) && !one.has(group(about))) one.set(group(about), about.id);
  }
  return [...one.values()];
}

/** Asks for the other seeds of strategies of which one seed is shown: they make a band. */
async function askSeeds() {
  const shown = [...runs.values()];
  await Promise.all(shown.map(async (run) => {
    const same = shown.filter((each) => group(each.about) === group(run.about));
    const before = run.seeds;
    run.seeds = same.length === 1 ? await stream.seeds(run.id) : [];
    if (JSON.stringify(before) === JSON.stringify(run.seeds)) return;
    run.changed.add("metrics");
    draw.soon();
  }));
}

/** Runs of a shown experiment that have begun since the page was opened. */
function begun(all) {
  const before = new Set(known.map((about) => about.id));
  const shown = new Set([...runs.values()].map((run) => run.about.experiment));
  const fresh = all.filter(({ id, experiment }) => !before.has(id) && shown.has(experiment));
  return oneOfEach(fresh, new Set([...runs.values()].map((run) => group(run.about))));
}

function takeRuns(all) {
  const more = runs.size ? begun(all) : [];
  known = all;
  let renamed = false;
  for (const about of all) {
    const run = runs.get(about.id);
    if (run) {
      renamed ||= run.name !== about.name;
      run.about = about;
      run.changed.add("state");
    }
  }
  if (!runs.size && all.length) {
    const asked = fromAddress().filter((id) => all.some((each) => each.id === id));
    choose(asked.length ? asked : firstOnes(all));
  } else if (more.length && runs.size < MOST_RUNS) {
    choose([...runs.keys(), ...more]);
  } else if (renamed) draw.all = draw.table = true;
  draw.soon();
}

// ---------------------------------------------------------------- panels of each run
async function askOlder(run, from, to) {
  const last = run.askedFor;
  const near = last && Math.abs(last.from - from) + Math.abs(last.to - to) < 0.05 * (to - from);
  if (stream.asked.has(run.id) || (near && performance.now() - last.at < ASK_AGAIN_MS)) return;
  run.askedFor = { from, to, at: performance.now() };
  const margin = (to - from) * ARCHIVE_MARGIN;
  const found = await stream.window(run.id, Math.max(0, from - margin),
    Math.min(run.lanes.completeFrom, to + margin));
  if (!found) return;
  if (found.exact) {
    found.lanes = new LaneSet();
    if (run.edges.length) found.lanes.lanes(run.edges.length - 1);
    for (const slice of found.slices) found.lanes.put(slice);
    delete found.slices;
  }
  run.archive = found;
  draw.all = true;
  draw.soon();
}

// ---------------------------------------------------------------- drawing
const draw = {
  all: true, // the time that is shown has changed, not only the runs
  table: true, // the table's rows have changed, not only its numbers
  asked: false,
  last: 0,
  soon() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.now();
    });
  },
  now() {
    const shown = [...runs.values()];
    view.setEnd(Math.max(0, ...shown.map((run) => run.now())));
    const moved = this.all || (!view.paused && view.mode !== "fixed");
    const news = new Set(shown.flatMap((run) => [...run.changed]));
    const any = (...names) => this.all || names.some((name) => news.has(name));
    this.last = performance.now();
    if (this.table || (!view.paused && any(...TABLE_NEWS))) {
      table.draw(shown);
      tellTitle(shown);
    }
    if (chosen) this.chosen(shown, moved);
    if (!view.paused || this.all) {
      if (moved || any("metrics", "config")) curves.draw(shown);
      if (moved || any("links")) links.draw(shown);
      if (moved || any("staleness", "staleness_counts")) stale.draw(shown);
      const has = shown.some((run) => run.learned.size || run.refresh.count);
      at("reported").hidden = !has;
      if (has && (moved || any("learned", "refresh"))) reported.draw(shown);
    }
    scrubber.draw(shown);
    tellTime();
    this.all = this.table = false;
    if (!view.paused) for (const run of shown) run.changed.clear();
  },
  /** What is shown of one run, and the time use of all. */
  chosen(shown, moved) {
    const { changed } = chosen;
    if (changed.has("full") || changed.has("edges_added")) timeline.order();
    const lines = shown.some((run) => LINE_NEWS.some((name) => run.changed.has(name)));
    if (moved || (lines && !view.paused)) {
      timeline.draw();
      const frames = shown.map((run) => timeline.frame(run));
      shown.forEach((run, place) => run.older(frames[place], askOlder));
      uses.draw(shown, frames, chosen, timeline.group);
    }
    if (view.paused && !this.all) return;
    const other = this.drawn !== chosen; // than the run that these parts have shown
    this.drawn = chosen;
    const has = (...names) => other || names.some((name) => changed.has(name));
    const of = shown.length > 1 ? ` of ${chosen.name}` : "";
    if (this.all || has("fidelity", "full")) fidelity.draw(chosen);
    if (has("log", "full")) words.draw(chosen);
    setText(at("words-title"), `Events${of}`);
    setText(at("host-title"), `Fidelity and hosts${of}`);
    slots.show(chosen, `TDMA slots${of}`);
    if (at("slots").hidden) return;
    if (moved || has("slots")) slots.draw();
    if (has("slots", "rounds", "full")) slots.tell();
  },
};

/** What was run, and in the tab's title how far it is. */
function tellTitle(shown) {
  const [run] = shown;
  const part = run?.state === "running" && Number.isFinite(run.head.share)
    ? ` ${Math.round(run.head.share * 100)} %` : "";
  const more = shown.length > 1 ? ` and ${shown.length - 1} more` : "";
  document.title = run ? `${run.name}${part}${more}, edgefl` : "edgefl";
  const names = [...new Set(shown.map(({ about }) => about.experiment))].filter(Boolean);
  setText(at("title"), names.join(", ") || "edgefl");
  setText(at("setup"), setups(shown)[0].filter((each) => !names.includes(each)).join(" · "));
}

function tellTime() {
  const [from, to] = view.range;
  const places = to - from < 0.1 ? 4 : to - from < 20 ? 2 : 1;
  const going = [...runs.values()].some((run) => run.going) || view.paused;
  for (const id of ["pause", "follow"]) at(id).hidden = !going;
  setText(at("range"), `${seconds(Math.max(0, from), places)} to ${seconds(to, places)}`);
  at("pause").setAttribute("aria-pressed", String(view.paused));
  setText(at("pause-text"), view.paused ? "Go on" : "Pause");
  at("all").setAttribute("aria-pressed", String(view.mode === "all"));
  const { value } = at("follow");
  const span = FOLLOW_S.includes(view.span) ? String(view.span) : "other";
  const wanted = view.mode === "follow" ? span : "";
  if (value !== wanted && document.activeElement !== at("follow")) at("follow").value = wanted;
  const behind = view.paused ? view.end - view.pausedAt : 0;
  setText(at("behind"), view.paused ? `paused, ${seconds(behind)} behind` : "");
}

/** Lets time lines move between updates, seldom enough not to disturb the run. */
function tickAlong() {
  const moving = [...runs.values()].some((run) => run.rate > 0 && run.state === "running");
  if (moving && !view.paused && !document.hidden
    && performance.now() - draw.last >= LEAST_FRAME_MS) draw.soon();
}

// ---------------------------------------------------------------- start
const CONNECTION = { connecting: "connecting …", open: "", ended: "The server has ended. "
  + "The page keeps what it has.", broken: "No connection to the server; trying again …" };

function start() {
  at("runs").append(table.root);
  at("runs").after(table.caveats);
  at("scrubber").append(scrubber.root);
  at("curves").append(curves.root);
  at("curve-tools").append(curves.tools);
  at("links").append(links.root);
  at("link-tools").append(links.tools);
  at("stale").append(stale.root);
  at("uses").append(uses.root);
  at("timeline").append(timeline.root);
  at("words").append(words.root);
  at("host").append(fidelity.root);
  document.body.append(add.root, help, tip.node);
  at("follow").append(el("option", { value: "", disabled: true }, "follow …"),
    el("option", { value: "other", hidden: true }, "following"),
    ...FOLLOW_S.map((s) => el("option", { value: s }, `last ${seconds(s, 0)}`)));
  const act = { pause: () => at("pause").hidden || view.pause(),
    add: () => add.open([...runs.keys()]), theme: () => theme.toggle(),
    help: () => help.showModal() };
  for (const [id, use] of Object.entries({ ...act, all: () => view.all(),
    closer: () => view.zoom(0.6), wider: () => view.zoom(1 / 0.6) })) {
    at(id).addEventListener("click", use);
  }
  at("follow").addEventListener("change", () => view.follow(Number(at("follow").value)));
  attachKeys(view, act, (node) => (timeline.root.contains(node) ? timeline : null));
  shareCursor(view);
  const again = () => {
    draw.all = true;
    draw.soon();
  };
  view.addEventListener("change", again);
  view.addEventListener("cursor", () => {
    timeline.draw();
    scrubber.draw();
  });
  theme.addEventListener("change", () => {
    draw.table = true;
    again();
  });
  addEventListener("resize", again);
  document.addEventListener("visibilitychange", again);
  stream.addEventListener("runs", ({ detail }) => takeRuns(detail));
  stream.addEventListener("update", ({ detail }) => {
    runs.get(detail.run)?.take(detail);
    if (!document.hidden) draw.soon();
  });
  stream.addEventListener("state", ({ detail }) => {
    setText(at("connection"), CONNECTION[detail]);
    document.body.dataset.connection = detail;
  });
  setInterval(tickAlong, LEAST_FRAME_MS);
  setInterval(() => {
    if (!document.hidden && known.some((about) => about.state === "running")) askSeeds();
  }, SEEDS_MS);
  stream.choose(fromAddress());
}

start();
