"""The runs that the page can show, each followed while its files grow.

They are those in the given folders, also ones that appear later.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from edgefl.clocks.setup.network import DIRECTIONS, Builder, usual_bit_s
from edgefl.config.experiment import Experiment, parts
from edgefl.config.file import FACTS
from edgefl.config.links import Links
from edgefl.errors import UserError
from edgefl.plugins.live.run_model import RunFacts, RunModel, Seen, metric_points
from edgefl.plugins.live.series import CapacityAt, ThinnedItems
from edgefl.record import files
from edgefl.record.files import CONFIG, METRICS
from edgefl.results import run_files
from edgefl.results.progress import RATE_WINDOW_S, Pace, Point
from edgefl.results.read import TableTail, Tail, number, parsed_events, read_csv, without_collection
from edgefl.results.run_files import mark_of, read_config, read_summary
from edgefl.results.summary import BROKEN_OFF, LIMITS
from emulator.capacity import Capacity
from emulator.links.bottleneck import Bottleneck
from emulator.tdma.channel import Channel
from emulator.units import to_ns


def unknown(way: str, at_s: float) -> None:
    """The capacity of links that are not emulated, or whose config cannot be read."""


def capacity_of(run: Path) -> CapacityAt:
    """Return what all links of the run together can carry, from its config.toml.

    Code that the config names is not loaded. If a trace is missing, the capacity is unknown.
    """
    try:
        config = dict(read_config(run))
        base = Path(str(config.pop(FACTS, {}).get("base", run)))
        return _of(Experiment.model_validate(config), base)
    except (UserError, ValueError, OSError):  # the emulator raises ValueError for a bad trace
        return unknown


def _of(experiment: Experiment, base: Path) -> CapacityAt:
    builder = Builder.of(experiment, base)
    links = {way: _links(experiment, builder, way) for way in DIRECTIONS}

    def at(way: str, at_s: float) -> float | None:
        found, moment = links[way], to_ns(at_s)
        if not found:
            return None
        own = sum(count * _bit_s(each, moment) for each, count in found.items())
        shared = builder.media.get(way)
        if isinstance(shared, Channel):
            return (experiment.medium.rate_mbit_s or 0.0) * 1e6
        return min(own, _bit_s(shared.capacity, moment)) if isinstance(shared, Bottleneck) else own

    return at


def _links(experiment: Experiment, builder: Builder, way: str) -> Counter[Any]:
    """The capacities of all edges and how many links have each; empty if one is not emulated."""
    found: Counter[Any] = Counter()
    for part in parts(experiment):
        for edge in part.ids:
            alone = builder.alone(edge, way)
            if alone is None:
                return Counter()
            found[usual_bit_s(alone) if _from_first_byte(part.links) else alone] += 1
    return found


def _from_first_byte(links: Links) -> bool:
    """Whether a trace begins with the first transfer: no one knows that moment here."""
    return links.trace_start == "first_byte"


def _bit_s(capacity: Capacity | int, moment_ns: int) -> float:
    return capacity if isinstance(capacity, int) else capacity.segment(moment_ns)[0]


STEP_BYTES = 1 << 20  # of each file in one step, so that a long run needs little memory
UNREAD_S = 2.0  # no page shows a run that was not read for so long
SILENT_S = 30.0  # without a new row: the run was killed, or is very slow
WAITING, RUNNING, FINISHED, INTERRUPTED, SILENT = (
    "waiting",
    "running",
    "finished",
    "interrupted",
    "silent",
)
FOLLOWED = (files.EVENTS, files.LINKS, files.METRICS)


class RunFeed:
    """Follows one run directory.

    If the run begins anew, or is resumed at an earlier moment, so does the feed: ``generation``
    rises.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.generation = 0
        self.state = WAITING
        self._last_read_s = -math.inf
        self._begin()

    def _begin(self) -> None:
        self.generation += 1
        self._damage, config = "", dict[str, Any]()  # of config.toml
        try:
            config = read_config(self.run)
        except UserError as error:
            self._damage = str(error)
        self.trouble = self._damage  # why its files cannot be read
        self._config = self._mark()
        self._capacity: CapacityAt | None = None  # made when it is needed: it may read traces
        self.model = RunModel(RunFacts.of(self.run, config), self._capacity_at)
        self._events = Tail(self.run / files.EVENTS)
        self._moves = {
            name: TableTail(self.run / name, self.model.texts)
            for name in (files.SLOTS, files.LINKS)
        }
        self._tables = {name: TableTail(self.run / name) for name in (files.METRICS, files.HOSTS)}
        self._pace: Pace | None = None
        self._read_at_s = 0.0
        self._summary_mark: object = None

    def _capacity_at(self, way: str, at_s: float) -> float | None:
        self._capacity = self._capacity or capacity_of(self.run)
        return self._capacity(way, at_s)

    # ------------------------------------------------------------------ reading
    def read(self, clock_s: float) -> bool:
        """Read the next rows; whether more are there already. ``clock_s``: Unix time."""
        self._last_read_s = clock_s
        if self._mark() != self._config:
            self._begin()
        try:
            with without_collection():
                more = self._step(clock_s)
            self.trouble = self._damage  # a file that could not be read is whole again
        except (UserError, OSError) as error:  # a damaged part, or no permission
            self.trouble, more = str(error), False
        readers: list[Tail | TableTail] = [self._events]
        readers += [*self._moves.values(), *self._tables.values()]
        if any(reader.anew for reader in readers):
            self._begin()
            return True
        self._take_summary()
        self.state = self._state(clock_s)
        if not more and self.state != RUNNING:
            self.model.no_more_rows()
        return more

    def _step(self, clock_s: float) -> bool:
        model, before = self.model, self.model.progress.emulated_s
        chunk = self._events.read_bytes(STEP_BYTES)
        count = chunk.count(b"\n")
        if chunk:
            model.take_events(parsed_events(chunk, model.texts))
        for (name, reader), take in zip(self._moves.items(), (model.take_slots, model.take_links)):
            if chunk and name in model.ahead:
                continue  # its rows would wait in memory for the events
            if (moves := reader.read_columns(STEP_BYTES)).count:
                take(moves)
                count += moves.count
        for table, put in zip(self._tables.values(), (model.take_metrics, model.take_hosts)):
            if rows := table.read_new(STEP_BYTES):
                put(rows)
                count += len(rows)
        if model.progress.emulated_s > before:
            self._read_at_s = clock_s
        self._keep_pace(clock_s)
        return count > 0

    def _keep_pace(self, clock_s: float) -> None:
        found, stop = self.model.progress, self.model.facts.stop
        if stop is None:
            return
        point = Point(clock_s, found.now_s, found.version, found.counters.updates_applied)
        if self._pace is None:
            if found.emulated_s > 0:
                self._pace = Pace(stop, clock_s)
                self._pace.start(point)
        else:
            self._pace.take(point)

    def _take_summary(self) -> None:
        """Read summary.json if it has changed."""
        mark = mark_of(self.run / files.SUMMARY)
        if mark == self._summary_mark:
            return
        self._summary_mark = mark
        self.model.health.take_summary(_summary(self.run))

    def _mark(self) -> object:
        """Changes if a run begins anew in this directory."""
        return mark_of(self.run / files.CONFIG)

    def look(self, clock_s: float) -> None:
        """Find out the state of a run that is not being read."""
        if clock_s - self._last_read_s > UNREAD_S:
            self._take_summary()
            self.state = self._state(clock_s)

    def _state(self, clock_s: float) -> str:
        finished = self.model.progress.finished or self.model.health.finished
        if finished is not None:
            return INTERRUPTED if finished in BROKEN_OFF else FINISHED
        if self._written_s() == 0:
            return WAITING
        return RUNNING if clock_s - self._written_s() < SILENT_S else SILENT

    def _written_s(self) -> float:
        """The Unix time of the last row; 0 if there is none."""
        times = [0.0]
        for name in FOLLOWED:
            try:
                found = (self.run / name).stat()
            except OSError:
                continue
            times += [found.st_mtime] if found.st_size else []
        return max(times)

    # ------------------------------------------------------------------ messages
    def news(self, seen: Seen, clock_s: float) -> dict[str, Any] | None:
        """Return the next message for a reader, see docs/reference/live.md; None without news."""
        full = seen.generation != self.generation
        if full:
            seen.generation, seen.totals = self.generation, {}
        found = self.model.news(seen, full)
        state = self.state if seen.totals.get("state") != hash(self.state) else None
        seen.totals["state"] = hash(self.state)
        if not (full or found or state):
            return None
        finished = self.model.progress.finished
        return {
            "full": full,
            **self._time(clock_s),
            "state": self.state,
            **({} if finished is None else {"finished": LIMITS.get(finished, finished)}),
            **({"trouble": self.trouble} if self.trouble else {}),
            "head": self._head(),
            **found,
        }

    def window(self, begin_s: float, end_s: float, most: int) -> dict[str, Any]:
        """Return the timeline between two emulated seconds, with at most ``most`` slices."""
        marks = [mark for mark in self.model.marks.since(0) if begin_s <= mark[1] <= end_s]
        return {
            "from": begin_s,
            "to": end_s,
            **self.model.slices.window(begin_s, end_s, most),
            "open": self.model.open_slices(),
            "marks": marks[-most:],
        }

    def _time(self, clock_s: float) -> Mapping[str, float]:
        """Emulated seconds now, and how many pass in a real second."""
        progress, facts = self.model.progress, self.model.facts
        on_the_wall = self.state == RUNNING and facts.clock != "virtual"
        goes = on_the_wall and self._read_at_s > 0  # before that edges come in, at time 0
        quiet_s = (clock_s - self._read_at_s) * facts.speed if goes else 0.0
        progress.quiet_s = max(quiet_s, 0.0)
        return {"now_s": round(progress.now_s, 6), "rate": facts.speed if goes else 0.0}

    def _head(self) -> dict[str, Any]:
        progress, pace = self.model.progress, self._pace
        counted, running = progress.counters, self.state == RUNNING
        rates = progress.rates_bit_s().values()
        ages = None if self.model.ages is None else self.model.ages.mean(progress.now_s)
        age_s, age_versions = (None, None) if ages is None else ages
        return {
            "version": progress.version,
            "accuracy": progress.accuracy,
            "reached": self.model.reached,
            "evaluated": progress.evaluated,
            "received": counted.updates_received,
            "applied": counted.updates_applied,
            "discarded": counted.discards.total(),
            "waiting": len(counted.waiting),
            "age_s": age_s,
            "age_versions": age_versions,
            **{f"bytes_{way}": sent for way, sent in self.model.link_bins.bytes.items()},
            "share": None if pace is None else round(pace.share, 4),
            "left_s": None if pace is None or not running else number(pace.left_s),
            "updates_per_s": None if pace is None or not running else pace.updates_per_s,
            "outage_s": progress.outage_s,
            "up_bit_s": round(sum(up for up, _ in rates)),
            "down_bit_s": round(sum(down for _, down in rates)),
            "rates_over_s": RATE_WINDOW_S,
            "strange_rows": self.model.strange_rows,
        }


MOST_RUNS = 200  # served, and offered
MOST_OF_SEED = 1000  # evaluations of a seed in a band
DEPTH = 3  # folders below a given one in which a run may be: NAME/STRATEGY/SEED


class Feeds:
    """A feed for each run in ``paths`` or below, with ids r1, r2, ... in order."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = [path.absolute() for path in paths]
        self._given = {path.absolute(): path for path in paths}
        self._feeds: dict[Path, RunFeed] = {}
        self._ids: dict[str, Path] = {}
        self.look()

    def look(self) -> bool:
        """Look for runs in the folders; whether a new one is there."""
        before = len(self._feeds)
        for path in self.paths:
            for run in runs_below(path):
                if run not in self._feeds and len(self._feeds) < MOST_RUNS:
                    self._feeds[run] = RunFeed(run)
                    self._ids[f"r{len(self._ids) + 1}"] = run
        return len(self._feeds) > before

    def add(self, text: str) -> list[str]:
        """Serve the runs of one more folder, and return their ids.

        UserError if it holds none, is no folder, or if too many are served.
        """
        try:
            path = Path(text).expanduser()
        except RuntimeError as error:  # ~ of an unknown user
            raise UserError(f"{text}: {error}") from None
        check(path)
        if path.absolute() not in self.paths:
            self.paths.append(path.absolute())
            self._given[path.absolute()] = path
        self.look()
        found = [name for name, run in self._ids.items() if run.is_relative_to(path.absolute())]
        if not found:
            raise UserError(f"{path}: {MOST_RUNS} runs are served already, which is the most")
        return found

    def get(self, name: str) -> RunFeed | None:
        """Return the feed with this id, or None."""
        run = self._ids.get(name)
        return None if run is None else self._feeds[run]

    def ids(self) -> list[str]:
        return list(self._ids)

    def told(self, clock_s: float) -> list[dict[str, Any]]:
        """Return a row about each run, for the page. ``clock_s``: Unix time."""
        names = self._names()
        for feed in self._feeds.values():
            feed.look(clock_s)
        return [
            {
                "id": name,
                "name": names[run],
                "path": str(self._shown(run)),
                "experiment": (facts := self._feeds[run].model.facts).experiment,
                "strategy": facts.strategy,
                "seed": facts.seed,
                "clock": facts.clock,
                "state": self._feeds[run].state,
            }
            for name, run in self._ids.items()
            if run.is_dir()  # else a new run has taken the place of earlier ones
        ]

    def seeds(self, name: str) -> list[dict[str, Any]]:
        """Return the evaluations of all seeds of a run's strategy; [] if it has one seed.

        A row per seed: its id, ``metrics`` as the page gets them, in order of emulated time,
        ``reached`` (see ``RunFacts.reached``), and ``end_s``, the emulated second at which it has
        ended; None while it runs.
        """
        run = self._ids.get(name)
        if run is None or not run_files.SEED.fullmatch(run.name):
            return []
        group = [each for each, its in self._ids.items() if its.parent == self._ids[name].parent]
        if len(group) == 1:
            return []
        facts = self._feeds[run].model.facts
        found: list[dict[str, Any]] = []
        for each in group:
            kept: ThinnedItems[list[float | None]] = ThinnedItems(MOST_OF_SEED)
            points = metric_points(read_csv(self._ids[each] / METRICS), facts.score)
            in_order = sorted(points, key=lambda point: point[1] or 0.0)
            kept.extend(in_order)
            reached = next(filter(None, map(facts.reached, in_order)), None)
            end_s = number(_summary(self._ids[each]).get("emulated_s"))
            found.append({"id": each, "metrics": kept.since(0), "reached": reached, "end_s": end_s})
        return found

    def nearby(self) -> list[str]:
        """Return folders with other runs: of the same experiments, and of those next to them."""
        experiments: dict[Path, None] = {}
        for path in self.paths:
            beside = path.parent.parent if run_files.runs_of(path) else path.parent
            if beside != beside.parent:  # not all of the file system
                experiments |= dict.fromkeys(_folders_in(beside))
        strategies = (strategy for folder in experiments for strategy in _folders_in(folder))
        others = (
            str(strategy)
            for strategy in strategies
            if (runs := run_files.runs_of(strategy)) and not any(run in self._feeds for run in runs)
        )
        return list(islice(others, MOST_RUNS))

    def _names(self) -> dict[Path, str]:
        """The shortest names that tell the runs apart."""
        titles = {run: run_files.title(run) for run in self._feeds}
        count = Counter(titles.values())
        return {run: title if count[title] == 1 else _longer(run) for run, title in titles.items()}

    def _shown(self, run: Path) -> Path:
        """The path of a run in the form that the user gave."""
        for path, given in self._given.items():
            if run.is_relative_to(path):
                return given / run.relative_to(path)
        return run


def check(path: Path) -> None:
    """UserError if ``path`` is no folder with a run in it."""
    if not path.is_dir():
        raise run_files.missing(path)
    if not any(True for _ in runs_below(path.absolute())):
        raise UserError(
            f"{path}: no run in it: expected the directory of a run, such as"
            " runs/quickstart/fedasync, or a folder with such directories"
        )


def runs_below(folder: Path, depth: int = DEPTH) -> Iterable[Path]:
    """Yield the run directories in a folder, in order of names; also those that have only begun."""
    if run_files.is_run(folder) or (folder / CONFIG).is_file():
        yield folder
        return
    if depth == 0:
        return
    for each in _folders_in(folder):
        yield from runs_below(each, depth - 1)


def _folders_in(folder: Path) -> list[Path]:
    """The folders in a folder, in order of names; [] if it cannot be read."""
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir() and each.name[0] != ".")
    except OSError:  # no permission, or removed
        return []


def _summary(run: Path) -> dict[str, Any]:
    """A run's summary.json; {} as long as it cannot be read."""
    try:
        return read_summary(run)
    except OSError:
        return {}


def _longer(run: Path) -> str:
    """ "quickstart/fedavg seed 3": the name with the experiment's folder."""
    above = run.parents[1] if run_files.SEED.fullmatch(run.name) else run.parent
    return f"{above.name}/{run_files.title(run)}"
