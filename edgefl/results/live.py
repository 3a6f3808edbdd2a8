"""Live display of a running run.

It only reads the run directory, so it can run in a separate process that does not disturb pacing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import (
    Console,
    ConsoleOptions,
    Group,
    JustifyMethod,
    RenderableType,
    RenderResult,
)
from rich.table import Table
from rich.text import Text

from edgefl.config.experiment import Stop
from edgefl.config.scores import ACCURACY, Score
from edgefl.errors import listed
from edgefl.results.columns import TableReader, Texts
from edgefl.results.pace import Pace, Point, clock
from edgefl.results.progress import RATE_WINDOW_S, STATES, EdgeStatus, Progress
from edgefl.results.rundirs import title
from edgefl.results.tail import TableTail, Tail, parse_events

COLOURS = {
    "lost": "red",
    "sending": "cyan",
    "training": "green",
    "receiving": "blue",
    "idle": "dim",
    "joined": "green",
    "awaited": "yellow",
}


class LiveView:
    """The display of one run; call ``update`` a few times per second and show its result.

    ``edges``: the expected ids, shown before they join. ``speed``: emulated seconds per second of
    the caller's clock. The caller passes its clock as ``clock_s``, so that emulated time advances
    while the run writes nothing. ``stop``: the run's end, for the time left. ``places``: the host
    of each edge, as the user names it. ``score``: what is shown of evaluations. ``resumed``: the
    rows that are there at first are of a run that was broken off, and goes on when its edges come
    back. ``join_timeout_s``: how long the run waits for edges before it begins or goes on.
    ``join``: the command that starts an edge, without the edge's id; "" if that is not the user's
    task.
    """

    def __init__(
        self,
        run_dir: Path,
        edges: list[str] | None = None,
        speed: float = 1.0,
        stop: Stop | None = None,
        places: Mapping[str, str] | None = None,
        score: Score = ACCURACY,
        resumed: bool = False,
        join_timeout_s: float | None = None,
        join: str = "",
    ) -> None:
        self._join_timeout_s, self._join = join_timeout_s, join
        self.pace = None if stop is None else Pace(stop, 0.0)
        self._began, self._resumed = False, resumed
        self._waits_since_s: float | None = None
        self.progress = Progress(
            edges={edge: EdgeStatus() for edge in edges or ()},
            places=places or {},
            score=score,
        )
        self._speed, self._written_s, self._read_at_s = speed, 0.0, 0.0
        self._name = title(run_dir)
        self._events = Tail(run_dir / "events.jsonl")
        self._links = TableReader(run_dir / "links.csv", Texts())
        self._metrics = TableTail(run_dir / "metrics.csv")
        self._hosts = TableTail(run_dir / "hosts.csv")

    @property
    def finished(self) -> bool:
        """Whether the run has written its last line."""
        return self.progress.finished is not None

    def update(self, clock_s: float = 0.0) -> RenderableType:
        """Read new rows and return the screen, which adapts to the terminal's height."""
        self.read(clock_s)
        return _Screen(self._name, self.progress, self.pace, self._waits(clock_s))

    def read(self, clock_s: float = 0.0) -> None:
        """Read new rows of the run directory."""
        progress = self.progress
        progress.take_events(parse_events(self._events.read_new()))
        progress.take_links(self._links.read_new())
        progress.take_metrics(self._metrics.read_new())
        progress.take_hosts(self._hosts.read_new())
        if self._resumed:
            progress.resumes()
            self._resumed = False
        if progress.emulated_s > self._written_s:
            self._written_s, self._read_at_s = progress.emulated_s, clock_s
        stands = progress.waits_at_s is not None  # the clock of a run that waits to go on
        if not progress.waits:
            self._waits_since_s = None
        elif self._waits_since_s is None:
            self._waits_since_s = clock_s
        runs = self._written_s > 0 and not self.finished and not stands
        if stands:
            self._read_at_s = clock_s
        progress.quiet_s = (clock_s - self._read_at_s) * self._speed if runs else 0.0
        if self.pace is not None and (runs or stands):
            self._step(self.pace, clock_s)
            self._began = runs

    def _step(self, pace: Pace, clock_s: float) -> None:
        """Add a point to the pace, which begins with the first rows of a clock that runs."""
        found = self.progress
        point = Point(clock_s, found.now_s, found.version, found.counters.updates_applied)
        if self._began:
            pace.take(point)
        else:
            pace.start(point)

    def _waits(self, clock_s: float) -> str:
        """Say how long the run has waited for which edges, if nothing can happen without them.

        Also say what ends that: the edges' start, or the time.
        """
        progress = self.progress
        if not progress.waits or self._waits_since_s is None:
            return ""
        missing = progress.missing
        counted = f"{len(progress.edges) - len(missing)} of {len(progress.edges)} connected"
        if missing:
            counted += f", missing: {listed(missing)}"
        if progress.begun and progress.waits_at_s is None:
            waited_s, bound = progress.lost_s / self._speed, ""
            counted += "; the run's clock goes on without them"
        else:
            waited_s, bound = clock_s - self._waits_since_s, ""
            if self._join_timeout_s is not None:
                bound = f" ({self._join_timeout_s:g} s at most)"
        again = " to come back" if progress.waits_at_s is not None else ""
        text = f"waiting for edges{again} for {waited_s:.0f} s{bound}: {counted}"
        if self._join and missing:
            text += f"; start those that do not run: {self._join} --id {missing[0]}"
        return text

    def plain(self, clock_s: float = 0.0) -> str:
        """Read new rows and return one line of text, for output that is not a terminal."""
        self.read(clock_s)
        waits = self._waits(clock_s)
        states = ", ".join(f"{n} {state}" for state, n in self.progress.states().items())
        return "  ".join(
            part
            for part in (
                self._name,
                waits,  # first, and without a time left: it must not look like progress
                *_facts(self.progress),
                "" if waits else _left(self.pace),
                *_traffic(self.progress),
                *_hosts(self.progress),
                *_troubles(self.progress),
                states,
            )
            if part
        )


class _Screen:
    def __init__(self, name: str, progress: Progress, pace: Pace | None, waits: str) -> None:
        self._name, self._progress, self._pace, self._waits = name, progress, pace, waits

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        title = Text.assemble((self._name, "bold"), "  ", "  ".join(_facts(self._progress)))
        if self._waits:
            title.append(f"\n{self._waits}", "yellow")
        if self._pace is not None:
            # without a time left while the run waits: it must not look like progress
            title.append(f"\n{self._pace.bar()}  {'' if self._waits else _left(self._pace)}")
        title.append("\n" + "  ".join([*_traffic(self._progress), *_hosts(self._progress)]))
        for line in _troubles(self._progress):
            title.append(f"\n{line}", "red")
        title_lines = len(title.wrap(console, options.max_width))
        yield title
        yield _table(self._progress, (options.height or console.height) - title_lines)


def _left(pace: Pace | None) -> str:
    left_s = None if pace is None else pace.left_s
    return "" if left_s is None else f"{clock(left_s)} left"


def _facts(progress: Progress) -> list[str]:
    accuracy = "-" if progress.accuracy is None else f"{progress.accuracy:.4f}"
    if progress.evaluated not in (None, progress.version):
        accuracy += f" (of version {progress.evaluated})"
    facts = [
        *([f"resumed after {progress.outage_s:.1f} s"] if progress.outage_s is not None else []),
        f"{progress.now_s:.1f} s emulated",
        f"version {progress.version}",
        f"{progress.score.title} {accuracy}",
        progress.updates,
    ]
    return facts if progress.finished is None else [*facts, f"finished: {progress.finished}"]


def _traffic(progress: Progress) -> list[str]:
    rates = progress.rates_bit_s().values()
    up, down = sum(up for up, _ in rates), sum(down for _, down in rates)
    facts = [
        f"up {human_rate(up)}, down {human_rate(down)} (transfers ended in the last"
        f" {RATE_WINDOW_S:g} s)"
    ]
    return [*facts, f"wire errors {progress.wire_errors}"] if progress.wire_errors else facts


def _hosts(progress: Progress) -> list[str]:
    """Return the state of the host, if all edges run on one."""
    if len(progress.hosts) != 1:
        return []
    (host,) = progress.hosts.values()
    degrees = f", {host.temperature_c} °C" if host.temperature_c else ""
    return [f"host cpu {host.cpu_percent} %{degrees}"] if host.cpu_percent else []


def _troubles(progress: Progress) -> list[str]:
    """Return a line about the hosts whose processors are slowed down now, or none."""
    slow = [f"{host.name} ({host.trouble})" for host in progress.hosts.values() if host.trouble]
    return [f"slowed down: {listed(slow)}"] if slow else []


def _table(progress: Progress, height: int) -> RenderableType:
    """Return a table of all edges, or counts and the busiest edges if not all fit."""
    spare = 2  # the table's heading and the cursor's line
    ids = sorted(progress.edges)
    if len(ids) + spare <= height:
        return _rows(progress, ids)
    counts = Text(f"{len(ids)} edges: ", no_wrap=True, overflow="ellipsis")
    counts.append_text(
        Text(", ").join(
            Text(f"{n} {state}", style=COLOURS[state]) for state, n in progress.states().items()
        )
    )
    ids.sort(key=lambda edge: STATES.index(progress.edges[edge].state))
    room = max(0, height - spare - 1)
    return Group(counts, _rows(progress, sorted(ids[:room]))) if room else counts


def _rows(progress: Progress, ids: list[str]) -> Table:
    shown = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    several = len(progress.hosts) > 1 or bool(progress.places)
    of_hosts = ("host", "cpu %", "°C") if several else ()
    for heading in ("edge", "doing", "task", "since, s", "up", "down", *of_hosts):
        justify: JustifyMethod = "left" if heading in ("edge", "doing", "host") else "right"
        shown.add_column(heading, justify=justify, no_wrap=True)
    rates = progress.rates_bit_s()
    for edge in ids:
        status = progress.edges[edge]
        task = "" if status.task is None else str(status.task)
        shown.add_row(
            edge,
            Text(status.state, style=COLOURS[status.state]),
            task,
            f"{status.since_s:.1f}",
            *map(human_rate, rates.get(edge, (0.0, 0.0))),
            *(_host_cells(progress, edge) if several else ()),
        )
    return shown


def _host_cells(progress: Progress, edge: str) -> tuple[Text, ...]:
    host = progress.host_of(edge)
    name, style = progress.places.get(edge, host.name), "red" if host.trouble else ""
    return tuple(Text(text, style) for text in (name, host.cpu_percent, host.temperature_c))


def human_rate(rate_bit_s: float) -> str:
    """Format a rate in bit/s: 2500000 -> "2.50 Mbit/s"."""
    for unit in ("bit/s", "kbit/s", "Mbit/s"):  # noqa: B007  # it is used behind the loop
        if rate_bit_s < 999.5:
            break
        rate_bit_s /= 1000
    else:
        unit = "Gbit/s"
    digits = 0 if rate_bit_s >= 99.95 or rate_bit_s == 0 else 1 if rate_bit_s >= 9.995 else 2
    return f"{rate_bit_s:.{digits}f} {unit}"
