"""Cost and effect of asking for fresher models during training: a section, a table and figures.

Timely dissemination: FedASMU and FedSSMU, arXiv 2507.06031, section 4. The rows are those of
events.jsonl and links.csv.

What became of a request follows from what the coordinator and the edges did, for every strategy: a
rule need not report it. Only these numbers of an update's ``payload`` are a convention:
``refresh_point`` (finished epochs at the request) and ``beta`` (the weight of the merged model). A
strategy whose staleness is not counted in versions reports ``gap``. A rule that reports ``merged``
must report what happened, and ``too_late`` is the edge's own number: ``contradictions`` checks
both.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from rich.text import Text

from edgefl.protocol.codec import encode_note
from edgefl.protocol.messages import DROPPED, FRESH, FreshRequest, NothingNewer
from edgefl.record.files import EVENTS, LINKS, Row
from edgefl.results.families import (
    Family,
    SectionRow,
    by_strategy,
    mean,
    plain_means,
    reports,
    strategy_table,
)
from edgefl.results.figures.base import (
    Canvas,
    Plot,
    PlotData,
    PlotStyle,
    Points,
    Runs,
    axis_of,
    dots,
    fit_constant,
    is_constant,
    label_lowest,
    percents,
    rows_of_series,
)
from edgefl.results.read import number, read_csv, read_events
from edgefl.results.run_files import RunFiles
from edgefl.results.summary import unit_up_to
from emulator.units import NS_PER_S

if TYPE_CHECKING:
    from rich.table import Table

NEGLIGIBLE_BETA = 0.1  # below it a merge keeps more than 90 % of the edge's own model
ASKED = "fresh_requested"  # the event that a device asks


# ---------------------------------------------------------------------- requests
class Outcome(StrEnum):
    """What became of a request for a fresher model."""

    MERGED = "merged"  # the model arrived in time: the edge gave it to its rule's ``merge``
    NOTHING_NEWER = "nothing newer"
    TOO_LATE = "too late"  # training had ended when the model arrived, or the request itself
    UNANSWERED = "unanswered"  # the strategy gave no answer
    OPEN = "open"  # answered, but the task or the run ended before anything came of it


@dataclass(frozen=True, slots=True)
class Answer:
    """A SendFresh at ``t``. ``version``: of the model that was sent; None: nothing newer."""

    t: float
    version: int | None


@dataclass(slots=True)
class Request:
    """A request of a task, which a new session may repeat. ``t``: when the server first heard it.

    ``at``: the step, and the version from which the edge trains. ``until_ns``: when an answer is
    too late; 0: the edge waits for it. ``arrived_s``: when the model was on the edge. ``update``:
    the row of the task's update.
    """

    edge: str
    task: int
    t: float
    until_ns: int = 0
    at: tuple[int | None, int | None] | None = None
    last: bool = True  # the task has made no other one since
    times: int = 1
    in_time: bool = True  # False: training had ended when the server heard the request
    answers: list[Answer] = field(default_factory=list)
    update: Row | None = None
    arrived_s: float | None = None
    dropped: bool = False  # the model's download was stopped

    @property
    def answer(self) -> Answer | None:
        """The answer that counts: the first one to the request as it was last made."""
        return self.answers[min(self.times, len(self.answers)) - 1] if self.answers else None

    @property
    def newer(self) -> bool:
        """Whether the answer was a newer model."""
        return self.answer is not None and self.answer.version is not None

    @property
    def outcome(self) -> Outcome:
        if not self.in_time:
            return Outcome.TOO_LATE
        if self.answer is None:
            return Outcome.UNANSWERED
        if self.answer.version is None:
            return Outcome.NOTHING_NEWER
        sent_late = 0 < self.until_ns <= round(self.answer.t * NS_PER_S)
        numbers = {} if self.update is None else self.update["numbers"]
        heard_late = self.last and self.until_ns > 0 and bool(numbers.get("too_late"))
        if self.dropped or sent_late or heard_late:
            return Outcome.TOO_LATE
        # an edge sends its update only after an answer has arrived, or came too late
        return Outcome.OPEN if self.update is None else Outcome.MERGED


class RequestsSoFar:
    """The requests of a run, from the rows of events.jsonl in their order.

    ``by_task``: those of each task, the first one first.
    """

    def __init__(self) -> None:
        self.by_task: dict[int, list[Request]] = {}
        self.unasked = 0  # answers to no open request: the edge ignores them

    def take(self, row: Row) -> None:
        task = row.get("task")
        if row.get("event") == ASKED:
            self._asked(row)
        elif row.get("fact") == "request_too_late" and task not in self.by_task:
            late = Request(row["edge"], row["task"], row["t"], in_time=False)
            self.by_task[row["task"]] = [late]
        elif task in self.by_task and _is_update(row):
            for request in self.by_task[row["task"]]:
                request.update = row
        for decision in row.get("decisions", ()):
            if decision["do"] == "send_fresh":
                self._answered(decision, row["t"])

    def _asked(self, row: Row) -> None:
        of_task = self.by_task.setdefault(row["task"], [])
        at = (row.get("step"), row.get("base_version"))
        if of_task and of_task[-1].at in (None, at):
            request = of_task[-1]
            request.at = at
            request.times += 1
            request.in_time = True
            return
        for request in of_task:
            request.last = False
        until_ns = row.get("until_ns", 0)
        of_task.append(Request(row["edge"], row["task"], row["t"], until_ns, at))

    def of_task(self, task: int) -> Sequence[Request]:
        """The requests of a task, none if it made none."""
        return self.by_task.get(task, ())

    def has_merged(self, task: int) -> bool:
        """Whether an answer to the task is in its update."""
        return any(request.outcome is Outcome.MERGED for request in self.of_task(task))

    def _answered(self, decision: Row, t: float) -> None:
        request = next(reversed(self.of_task(decision["task"])), None)
        if request is None or len(request.answers) >= request.times or not request.in_time:
            self.unasked += 1
        if request is not None:
            request.answers.append(Answer(t, decision.get("version")))


def requests_of(events: Iterable[Row]) -> RequestsSoFar:
    """Return the requests in the rows of events.jsonl."""
    requests = RequestsSoFar()
    for event in events:
        requests.take(event)
    return requests


def updates(events: Iterable[Row]) -> list[Row]:
    """Return the updates that the strategy got and that carry numbers."""
    return [event for event in events if _is_update(event)]


def _is_update(event: Row) -> bool:
    return event.get("event") == "update_arrived" and isinstance(event.get("numbers"), dict)


def reported(event: Row) -> dict[str, float]:
    """Return the numbers that the strategy reported about an update."""
    return {name: value for _, values in reports([event]) for name, value in values.items()}


def refresh_points(events: Iterable[Row]) -> Counter[int]:
    """Count the refresh points of the updates whose device asked for a fresher model.

    Only rules that report their ``refresh_point`` have some.
    """
    numbers = (
        asked[-1].update["numbers"].get("refresh_point")
        for asked in requests_of(events).by_task.values()
        if asked[-1].update is not None
    )
    return Counter(int(point) for point in numbers if number(point) is not None)


# ---------------------------------------------------------------------- the section
def section(
    events: Sequence[Row], links: Sequence[Row], emulated_s: float
) -> dict[str, Any] | None:
    """Return the "dissemination" of summary.json, or None if no device asked.

    Staleness is that of merged updates at their arrival, in versions (FedSSMU: in aggregations of
    the round): of the model that the training started from ("before") and of the merged model
    ("after"). Merging is partial, so the update's own staleness lies in between.
    """
    requests = requests_of(events)
    asked = [request for of_task in requests.by_task.values() for request in of_task]
    if not asked:
        return None
    _follow_downloads(asked, links)
    waits = [
        request.arrived_s - request.t
        for request in sorted(asked, key=lambda request: request.t)
        if request.arrived_s is not None and request.outcome is not Outcome.TOO_LATE
    ]
    outcomes = Counter(request.outcome for request in asked)
    merged = [
        (request.update, request.answer.version or 0)
        for request in asked
        if request.outcome is Outcome.MERGED and request.update and request.answer
    ]
    betas = [update["numbers"]["beta"] for update, _ in merged if "beta" in update["numbers"]]
    # the gap that the strategy reported, else the versions since the update's base
    gaps = [
        reported(update).get("gap", update["version"] - update["base_version"])
        for update, _ in merged
    ]
    newer = [version - update["base_version"] for update, version in merged]
    points = refresh_points(events)
    extra_down, extra_up = _extra_bytes(events, links)
    beta = median(betas) if betas else None
    return {
        "requests": len(asked),
        "newer": sum(request.newer for request in asked),
        "merges": len(merged),
        "too_late": outcomes[Outcome.TOO_LATE],
        "unanswered": outcomes[Outcome.UNANSWERED],
        "waiting_total_s": math.fsum(waits),
        "waiting_mean_s": fmean(waits) if waits else None,
        "refresh_points": {str(point): points[point] for point in sorted(points)},
        "extra_bytes_down": extra_down,
        "extra_bytes_up": extra_up,
        "use_up": link_use(events, links, "up", emulated_s),
        "use_down": link_use(events, links, "down", emulated_s),
        "staleness_before": _middle(gaps),
        "staleness_after": _middle([gap - by for gap, by in zip(gaps, newer)]),
        "beta_median": beta,
        "note": negligible(beta),
        "contradictions": contradictions(requests, events),
    }


def contradictions(requests: RequestsSoFar, events: Iterable[Row]) -> list[str]:
    """Return a sentence about each convention that the strategy or its rule breaks."""
    false = foreign = 0
    for event in updates(events):
        asked, numbers = requests.of_task(event["task"]), event["numbers"]
        merged = requests.has_merged(event["task"])
        can_be_late = any(request.until_ns > 0 or not request.in_time for request in asked)
        false += "merged" in numbers and bool(numbers["merged"]) != merged
        foreign += bool(numbers.get("too_late")) and not can_be_late
    sentences = {
        f"{_counted(requests.unasked, 'answer')} (SendFresh) to no open request": requests.unasked,
        f'the rule\'s number "merged" is false in {_counted(false, "update")}; counted is'
        " what the edges did": false,
        f'the rule reports "too_late" in {_counted(foreign, "update")}: that number is the'
        " edge's own": foreign,
    }
    return [sentence for sentence, count in sentences.items() if count]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def negligible(beta_median: float | None) -> str | None:
    """Return a line that says that merging changed almost nothing, or None."""
    if beta_median is None or beta_median >= NEGLIGIBLE_BETA:
        return None
    return f"merging was negligible (median beta {beta_median:.2g})"


def _follow_downloads(asked: Iterable[Request], links: Iterable[Row]) -> None:
    """Note in each request when its model arrived, or that the download was stopped.

    The answer "nothing newer" is a note and no download.
    """
    sent: dict[str, list[tuple[float, Request]]] = defaultdict(list)
    for request in asked:
        sent[request.edge] += [(answer.t, request) for answer in request.answers]
    for answers in sent.values():
        answers.sort(key=lambda each: each[0])
    for row in links:
        if row["kind"] not in (FRESH, DROPPED):
            continue
        # an edge has one task at a time, so a download belongs to the latest answer before it
        answers = sent[row["edge"]]
        place = bisect_right(answers, float(row["offered_s"]) + 1e-9, key=lambda each: each[0])
        if not place:
            continue
        request = answers[place - 1][1]
        if row["kind"] == DROPPED:
            request.dropped = True
        elif request.arrived_s is None:
            request.arrived_s = float(row["finished_s"])


def _extra_bytes(events: Iterable[Row], links: Iterable[Row]) -> tuple[int, int]:
    """Return the (down, up) bytes that a strategy without requests would not send.

    Down: fresh models and "nothing newer". Up: requests, without those that the server heard after
    the end of the training: their sizes are not recorded.
    """
    down = sum(int(row["bytes"]) for row in links if row["kind"] in (FRESH, DROPPED))
    up = 0
    for event in events:
        if event.get("event") == ASKED:
            until_ns = event.get("until_ns", 0)
            asks = FreshRequest(event["task"], event["base_version"], event["step"], until_ns)
            up += len(encode_note(asks))
        down += sum(
            len(encode_note(NothingNewer(decision["task"])))
            for decision in event.get("decisions", ())
            if decision["do"] == "send_fresh" and decision.get("version") is None
        )
    return down, up


def link_use(
    events: Iterable[Row], links: Iterable[Row], direction: str, emulated_s: float
) -> float | None:
    """Return the share of the run in which a link was busy, averaged over the edges.

    A link is busy from the offer of a transfer to its end. None for a run without edges or time.
    """
    edges = {event["edge"] for event in events if event.get("event") == "edge_joined"}
    if not edges or emulated_s <= 0:
        return None
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in links:
        if row["direction"] == direction:
            spans[row["edge"]].append((float(row["offered_s"]), float(row["finished_s"])))
    busy_s = []
    for of_edge in spans.values():
        busy_s.append(0.0)
        reached_s = -math.inf
        for begin_s, end_s in sorted(of_edge):
            busy_s[-1] += max(0.0, end_s - max(begin_s, reached_s))
            reached_s = max(reached_s, end_s)
    return math.fsum(busy_s) / (emulated_s * len(edges))


def _middle(values: Sequence[float]) -> dict[str, float] | None:
    return {"mean": fmean(values), "median": float(median(values))} if values else None


# ---------------------------------------------------------------------- the table
def table(rows: Sequence[SectionRow]) -> Table:
    """Return a table for 80 columns with the means over the seeds of each strategy.

    Requests without an answer have a column if there are any. Lines below the table list the
    refresh points, models that came too late, and negligible merging.
    """
    strategies = by_strategy(rows)
    size, unit = unit_up_to(max(row.section["extra_bytes_down"] for row in rows), "B")

    cells = partial(plain_means, strategies)

    def pairs(before: Sequence[str], after: Sequence[str]) -> list[str]:
        return list(map("/".join, zip(before, after)))

    shares = [
        [percent(mean(runs, key)) for runs in strategies.values()] for key in ("use_up", "use_down")
    ]
    unanswered = {"no\nreply": cells("unanswered", ".4g")}
    columns = {
        "asked\n": cells("requests", ".4g"),
        "newer\n": cells("newer", ".4g"),
        "merged\n": cells("merges", ".4g"),
        **(unanswered if any(mean(runs, "unanswered") for runs in strategies.values()) else {}),
        "wait\nmean s": cells("waiting_mean_s", ".3g"),
        f"extra\ndown {unit}": cells("extra_bytes_down", ".3g", size),
        "more\ndown": [
            f"+{100 * fmean(map(more_down, runs)):.0f}%" for runs in strategies.values()
        ],
        "use %\nup/down": pairs(*shares),
        "staleness\nfrom/to": pairs(
            cells("staleness_before_mean", ".1f"), cells("staleness_after_mean", ".1f")
        ),
        "beta\nmedian": cells("beta_median", ".2g"),
    }
    notes: list[Text] = []
    late: list[Text] = []
    points: list[Text] = []
    for name, runs in strategies.items():
        if note := negligible(mean(runs, "beta_median")):
            notes.append(Text(f"{name}: {note}", style="yellow"))
        if count := mean(runs, "too_late"):
            late.append(Text(f"{name}: {count:.4g} fresher models came too late to be merged"))
        if counts := _all_points(runs):
            text = f"{name}, requests by refresh point (finished epochs): {counts}"
            points.append(Text(text, style="dim"))
    shown = strategy_table("Dissemination", strategies, columns)
    shown.caption = Text("\n").join([*notes, *late, *points])
    return shown


def more_down(row: SectionRow) -> float:
    """Extra downlink bytes, as a share of the bytes that go down without requests."""
    extra: float = row.section["extra_bytes_down"]
    return extra / max(1, row.facts.get("bytes_down", 0) - extra)


def _all_points(runs: Sequence[SectionRow]) -> str:
    counts: Counter[str] = Counter()
    for row in runs:
        counts.update(row.section["refresh_points"])
    return " ".join(f"{point}:{counts[point]}" for point in sorted(counts, key=int))


def percent(share: float | None) -> str:
    """Format a share as percent with two digits: 17, 10, 9.9."""
    if share is None:
        return "-"
    if share < 0.001:
        return "<0.1" if share else "0"
    rounded = f"{100 * share:.1f}"
    return rounded if float(rounded) < 10 else f"{100 * share:.0f}"


# ---------------------------------------------------------------------- figures
OF = "fedasmu, fedssmu and their ablations"
# from the server's "report" decisions: number -> title
SERVER = {
    "alpha": "alpha, weight of an update",
    "lambda": "lambda",
    "sigma": "sigma",
    "iota": "iota",
}
# from updates that merged a fresh model: number -> title
DEVICE = {
    "beta": "beta, weight of a fresh model",
    "gamma": "gamma",
    "upsilon": "upsilon",
    "reward": "reward, loss before - after",
}
PANELS = {**SERVER, **DEVICE}
CONTROLS = ("name", "parameter", "emulated_s", "value")
SLIGHT = 0.01


class ControlsPlot(Plot):
    """Learned weights and the parameters that they come from, over time: one panel each."""

    OF = OF
    LIMITS = LOG = "x"  # each panel has another y

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        return PlotData(CONTROLS, rows_of_series(runs, lambda run: series(_rows(run))))

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        values = data.by("parameter")
        parameters = [parameter for parameter in PANELS if parameter in values]
        strategies = list(data.by("name"))
        unit, label = axis_of("emulated_s", max(data["emulated_s"]))
        panels = canvas.panels(len(parameters), 4, 1.4, narrow=2, sharex=True)
        label_lowest(panels, label)
        for axes, parameter in zip(panels, parameters):
            shown = values[parameter]["value"]
            base = _base(shown)
            for place, strategy in enumerate(strategies):
                # dots, not a line, because values next to each other are from different devices
                points = values[parameter].where(name=strategy)
                x = [t / unit for t in points["emulated_s"]]
                y = [value - base for value in points["value"]]
                axes.plot(x, y, **dots(place), markersize=1.8, alpha=0.6)
            title = f"{parameter} - {base:.12g}" if base else PANELS[parameter]
            axes.set_title(title, fontsize=7)
            axes.ticklabel_format(axis="y", useOffset=False, scilimits=(-3, 4))
            axes.yaxis.get_offset_text().set_fontsize(6)
            fit_constant(axes, shown)
        for place, name in enumerate(strategies):  # invisible lines, for the legend only
            panels[0].plot([], [], label=canvas.text(name), **dots(place), markersize=4.5)
        canvas.legend(panels[0])


class RefreshPointsPlot(Plot):
    """After how many epochs devices asked for a fresher model; over all seeds of a strategy."""

    OF = OF
    LOG = "y"
    WIDTH = "column"

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        rows: list[tuple[Any, ...]] = []
        for name, of_strategy in runs.items():
            counts: Counter[int] = Counter()
            for run in of_strategy:
                counts += refresh_points(_rows(run))
            total = counts.total()
            rows += [(name, at, counts[at], counts[at] / total) for at in sorted(counts)]
        return PlotData(("name", "refresh_point", "updates", "share"), rows)

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        axes = canvas.panel()
        canvas.bars(axes, data.by("name"), "refresh_point", "share")
        axes.set_xlabel("Refresh point (finished epochs)")
        axes.set_ylabel("Share of the requests")
        percents(axes)
        canvas.legend(axes)


def _rows(run: RunFiles) -> Sequence[Row]:
    """The rows of a run in which a device asked, or a strategy reported something; else none."""
    rows, number = run.events.rows, run.texts.number
    asked = (rows.texts_of("event") == number(ASKED)) | (
        rows.texts_of("fact") == number("request_too_late")
    )
    return run.rows if run.has_decisions("report") or asked.any() else ()


def series(events: Sequence[Row]) -> dict[str, Points]:
    """Return for each parameter its values over the arrival times of updates.

    The server's values are those at the arrival, a device's those of the merge in that update.
    """
    points: dict[str, Points] = {name: [] for name in PANELS}
    asked = requests_of(events)
    for event in updates(events):
        merged = asked.has_merged(event["task"])
        for names, values in (
            (SERVER, reported(event)),
            (DEVICE if merged else {}, event["numbers"]),
        ):
            for name in names:
                if values.get(name) is not None:
                    points[name].append((event["t"], float(values[name])))
    return points


def _base(values: Sequence[float]) -> float:
    """Return what to subtract from a panel's values so that its axis shows small differences.

    It is the first value, rounded, if the values differ by less than SLIGHT; else 0.
    """
    spread = max(values) - min(values)
    if is_constant(values) or spread >= SLIGHT * abs(values[0]):
        return 0.0
    return round(values[0], math.ceil(-math.log10(spread)))


class Dissemination(Family):
    """A table and a CSV file of the costs, and a figure of the learned parameters."""

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        return section(read_events(run / EVENTS), read_csv(run / LINKS), emulated_s)

    def rows(self, directories: Sequence[Path]) -> list[SectionRow]:
        found = super().rows(directories)
        for row in found:
            if "slots" in row.section:  # the old name of refresh points in summary.json
                row.section["refresh_points"] = row.section.pop("slots")
        return found

    def table_of(self, rows: Sequence[SectionRow]) -> Table | None:
        return table(rows)

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        """Draw also what the server reports without a request."""
        lines = super().leave(directories, folder)
        return lines or self.draw(directories, folder, self.pictures)


FAMILY = Dissemination(
    "dissemination",
    order=10,
    mark=ASKED,
    plots={"controls": ControlsPlot(), "refresh-points": RefreshPointsPlot()},
    pictures={"controls": "controls"},
    csv="dissemination.csv",
    columns=(
        *("requests", "newer", "merges", "too_late", "unanswered"),
        *("waiting_total_s", "waiting_mean_s", "extra_bytes_down", "extra_bytes_up"),
        *("use_up", "use_down", "beta_median"),
        *("staleness_before_mean", "staleness_before_median"),
        *("staleness_after_mean", "staleness_after_median", "refresh_points", "note"),
    ),
)
