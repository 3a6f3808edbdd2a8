"""From what native runs measured to the experiment that repeats them, a commented TOML file.

The rate of a link is one number, or a trace where it varied. A busy period is cut into steps of
STEP_S (a shorter one is one step). The rate varied if there are LEAST_STEPS steps of LEAST_STEP_S
or longer, and the rates at 10 % and at 90 % of the busy time differ by more than VARIED_SHARE of
the one at 50 %. Otherwise it counts as constant: all bytes divided by all busy time, so the
transfers together take as long as they did.

The rest is the time of a task that rate, latency and training do not explain. A native run pays for
the testbed's own protocol, which an emulated run does not: the edge begins to train when the
coordinator has confirmed the download (a round trip), and begins to send when its update is granted
(another one). The work of the programs adds to it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from statistics import fmean, linear_regression, median
from typing import Any

import numpy as np
import tomli_w

from edgefl.config.experiment import Experiment, Part, parts
from edgefl.config.file import FACTS, load
from edgefl.errors import UserError, undamaged
from edgefl.protocol.messages import FRESH, TASK, UPDATE
from edgefl.record.files import EVENTS, LINKS
from edgefl.record.tables import write_whole
from edgefl.results import run_files
from edgefl.results.families.native import (
    SHORT_S,
    WAYS,
    Busy,
    MeasuredEdge,
    Span,
    measured,
    spread,
)
from edgefl.results.read import read_csv, read_events
from emulator.compute import Device

STEP_S = 1.0
LEAST_STEP_S = 0.05  # in a shorter time, the stamps of the two programs make the difference
LEAST_STEPS = 8
VARIED_SHARE = 0.25
LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9  # shares of the busy time


@dataclass(frozen=True, slots=True)
class LinkRate:
    """A link's rate: ``bit_s``, or ``trace`` with rows (s, bit/s) if it varied.

    The last row of a trace has no rate: it ends the trace. ``low_bit_s`` and ``high_bit_s``: the
    rates at 10 % and 90 % of the busy time.
    """

    bit_s: float
    low_bit_s: float
    high_bit_s: float
    trace: tuple[tuple[float, float | None], ...] = ()


def link_rate(runs: Sequence[tuple[Sequence[Busy], float]]) -> LinkRate:
    """Return the rate of a link that was measured in ``runs``: (busy periods, length of the run).

    There is at least one busy period. A trace is that of the run with the most busy time, because
    two runs have no common time.
    """
    periods = [busy for of_run, _ in runs for busy in of_run]
    seconds = sum(max(busy.seconds, SHORT_S) for busy in periods)
    whole_bit_s = 8 * sum(busy.size_bytes for busy in periods) / seconds
    spans = [step for busy in periods for step in steps(busy)]
    low, high = (_at_share(spans, share) for share in (LOW, HIGH))
    if not varied(spans):
        return LinkRate(whole_bit_s, low, high)
    longest, until_s = max(runs, key=lambda run: sum(busy.seconds for busy in run[0]))
    return LinkRate(
        whole_bit_s, low, high, trace([step for busy in longest for step in steps(busy)], until_s)
    )


def steps(busy: Busy) -> list[Span]:
    """Join the steps of a busy period to steps of STEP_S or longer; the last one takes the rest."""
    found: list[Span] = []
    for step in busy.steps:
        if found and found[-1].ended_s - found[-1].began_s < STEP_S:
            last = found.pop()
            step = Span(last.began_s, step.ended_s, last.amount + step.amount)
        found.append(step)
    if len(found) > 1 and found[-1].ended_s - found[-1].began_s < STEP_S:
        rest, last = found.pop(), found.pop()
        found.append(Span(last.began_s, rest.ended_s, last.amount + rest.amount))
    return found


def varied(spans: Sequence[Span]) -> bool:
    """Whether the rate varied, by the rule of this module."""
    long = [span for span in spans if span.ended_s - span.began_s >= LEAST_STEP_S]
    if len(long) < LEAST_STEPS:
        return False
    low, middle, high = (_at_share(long, share) for share in (LOW, MIDDLE, HIGH))
    return high - low > VARIED_SHARE * middle


def trace(spans: Sequence[Span], until_s: float) -> tuple[tuple[float, float | None], ...]:
    """Return rows (s, bit/s) from 0 to ``until_s`` that pass through the measured ``spans``.

    Between two spans nothing was measured: each rate holds to the middle of the gap.
    """
    borders = [
        (before.ended_s + after.began_s) / 2 if before.ended_s < after.began_s else after.began_s
        for before, after in pairwise(spans)
    ]
    rows = [(at_s, 8 * span.per_s) for at_s, span in zip([0.0, *borders], spans, strict=True)]
    return (*rows, (max(until_s, spans[-1].ended_s), None))


def _at_share(spans: Sequence[Span], share: float) -> float:
    """The rate (bit/s) that is not exceeded in this share of the busy time."""
    sought_s = share * sum(span.ended_s - span.began_s for span in spans)
    passed_s = 0.0
    for span in sorted(spans, key=lambda span: span.per_s):
        passed_s += span.ended_s - span.began_s
        if passed_s >= sought_s:
            break
    return 8 * span.per_s


MOST_MEDIANS = 3


# The seconds of a transfer of links.csv on an emulated link: of its rate and its latency.
ModelSeconds = Callable[[Mapping[str, str]], float]


@dataclass(frozen=True, slots=True)
class Rest:
    """Means over tasks of what the model does not explain.

    ``down_s``: of the download. ``up_s``: from there to the end of the upload, without training.
    ``share``: of both together in a task's whole time; None without a whole task.
    """

    down_s: float
    up_s: float
    share: float | None


@dataclass(slots=True)
class MovedTask:
    """The rows of links.csv of one task."""

    down: Mapping[str, str]
    fresh: list[Mapping[str, str]] = field(default_factory=list)
    up: Mapping[str, str] | None = None


def tasks(rows: Sequence[Mapping[str, str]]) -> list[MovedTask]:
    """Return the whole tasks in one edge's rows of links.csv; an edge has one task at a time."""
    found: list[MovedTask] = []
    for row in sorted(rows, key=_offered_s):
        if row["kind"] == TASK:
            found.append(MovedTask(row))
        elif found and row["kind"] == FRESH:
            found[-1].fresh.append(row)
        elif found and row["kind"] == UPDATE and found[-1].up is None:
            found[-1].up = row
    # a task ends before the next one begins; otherwise rows are missing
    return [
        task
        for task, after in pairwise([*found, None])
        if task is not None
        and task.up is not None
        and (after is None or _finished_s(task.up) <= _offered_s(after.down))
    ]


def beyond(
    task: MovedTask,
    training: Sequence[Span],
    requests_s: Sequence[float],
    model_s: ModelSeconds,
    latency_s: float,
) -> tuple[float, float, float]:
    """Return what the model does not explain of a task's download and of the rest, and its length.

    ``training``: measured spans of the edge; none for an emulated device, whose updates are ready
    in time. ``requests_s``: when the coordinator got requests for fresher models.
    """
    assert task.up is not None
    down_s = _seconds(task.down) - model_s(task.down)
    up_s = _seconds(task.up) - model_s(task.up)
    begin_s, end_s = _finished_s(task.down), _offered_s(task.up)
    trained = [span for span in training if begin_s < span.ended_s <= end_s]
    if trained:
        asked = sum(begin_s < at_s <= end_s for at_s in requests_s)
        # a request takes a latency; its answer is a transfer, or another latency
        waited_s = (2 * asked - len(task.fresh)) * latency_s + sum(
            model_s(row) for row in task.fresh
        )
        up_s += end_s - begin_s - waited_s - sum(span.ended_s - span.began_s for span in trained)
    return down_s, up_s, _finished_s(task.up) - _offered_s(task.down)


def rest_of(found: Sequence[tuple[float, float, float]]) -> Rest:
    """Return the means of what ``beyond`` has found of each task.

    Means, so that all tasks together have their time. A task longer than MOST_MEDIANS medians met
    an outage, which is no part of a link's usual behaviour; it does not count.
    """
    if not found:
        return Rest(0.0, 0.0, None)
    most_s = MOST_MEDIANS * median(whole_s for *_, whole_s in found)
    usual = [each for each in found if each[2] <= most_s]
    down_s, up_s, whole_s = (fmean(values) for values in zip(*usual))
    return Rest(down_s, up_s, (down_s + up_s) / whole_s if whole_s > 0 else None)


def _offered_s(row: Mapping[str, str]) -> float:
    return float(row["offered_s"])


def _finished_s(row: Mapping[str, str]) -> float:
    return float(row["finished_s"])


def _seconds(row: Mapping[str, str]) -> float:
    return _finished_s(row) - _offered_s(row)


LEAST_TRANSFERS, LEAST_PINGS, LEAST_TRAININGS = 3, 3, 3
# Jitter is written where the round trips show it clearly above the noise of the two programs.
LEAST_JITTER_PINGS, LEAST_JITTER_S, JITTER_SHARE = 8, 0.001, 0.1
LEAST_SIZE_SPREAD = 1.5  # sizes of trainings must differ by this factor to separate an overhead


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What one run measured, by edge.

    ``links``: rows of links.csv. ``requests_s``: when an edge asked for fresher models.
    ``ended_s``: the run's length.
    """

    edges: Mapping[str, MeasuredEdge]
    links: Sequence[Mapping[str, str]]
    requests_s: Mapping[str, Sequence[float]]
    ended_s: float


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """A native link: rate by direction, one-way latency and jitter.

    ``counts``: transfers by direction, and heartbeats as "pings" and "idle_pings". ``slower``: of a
    direction, the goodput while other edges moved at the same time, divided by that alone; if both
    are known. ``rest``: what the numbers do not explain. ``size_bytes``: median of a transfer, by
    direction.
    """

    rates: Mapping[str, LinkRate]
    latency_s: float
    jitter_s: float
    counts: Mapping[str, int]
    slower: Mapping[str, float]
    rest: Rest
    size_bytes: Mapping[str, float]

    def whole_share(self, way: str) -> float:
        """The wire's part of a transfer without its latency: wire time / (wire time + rest).

        The rate times this share gives transfers of the same size their whole time. At most 1.
        """
        wire_s = 8 * self.size_bytes[way] / self.rates[way].bit_s
        rest_s = self.rest.down_s if way == "down" else self.rest.up_s
        return wire_s / (wire_s + max(rest_s, 0.0)) if wire_s else 1.0


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """A native device.

    ``samples_per_s``: all samples divided by all time, so that the trainings together take as long
    as they did; then median, 5th and 95th percentile over trainings. ``samples``: mean of a
    training. ``overhead_s``: the part of a training that does not depend on its samples; None if
    the trainings are too alike to separate it.
    """

    samples_per_s: float
    median: float
    p5: float
    p95: float
    trainings: int
    samples: float
    overhead_s: float | None


def lacks(edge: str, runs: Sequence[MeasuredRun], links: bool, device: bool) -> list[str]:
    """Say what is missing for a profile of this edge's native ``links`` and ``device``."""
    known = [run.edges[edge] for run in runs if edge in run.edges]
    found = []
    if links:
        for way, name in (("down", "downloads"), ("up", "uploads")):
            found.append((sum(len(each.busy[way]) for each in known), LEAST_TRANSFERS, name))
        found.append((sum(len(each.rtts_s) for each in known), LEAST_PINGS, "heartbeats"))
    if device:
        found.append((sum(len(each.training) for each in known), LEAST_TRAININGS, "trainings"))
    return [f"{count} of {least} {name}" for count, least, name in found if count < least]


# ------------------------------------------------------------------ links
def link_profile(edge: str, runs: Sequence[MeasuredRun]) -> LinkProfile:
    """Return the profile of an edge's links; the runs lack nothing for it."""
    known = [(run, run.edges[edge]) for run in runs if edge in run.edges]
    rates = {
        way: link_rate([(each.busy[way], run.ended_s) for run, each in known if each.busy[way]])
        for way in WAYS
    }
    idle_s = [rtt_s for _, each in known for rtt_s in each.idle_rtts_s]
    all_s = [rtt_s for _, each in known for rtt_s in each.rtts_s]
    latency_s, jitter_s = one_way(idle_s, all_s)
    counts = {way: sum(len(each.busy[way]) for _, each in known) for way in WAYS}

    def model_s(row: Mapping[str, str]) -> float:
        return 8 * float(row["bytes"]) / rates[row["direction"]].bit_s + latency_s

    rest = rest_of(
        [
            beyond(task, each.training, run.requests_s.get(edge, ()), model_s, latency_s)
            for run, each in known
            for task in tasks([row for row in run.links if row["edge"] == edge])
        ]
    )
    return LinkProfile(
        rates,
        latency_s,
        jitter_s,
        counts | {"pings": len(all_s), "idle_pings": len(idle_s)},
        {way: ratio for way in WAYS if (ratio := _slower([each for _, each in known], way))},
        rest,
        {
            way: median([busy.size_bytes for _, each in known for busy in each.busy[way]])
            for way in WAYS
        },
    )


def one_way(idle_s: Sequence[float], all_s: Sequence[float]) -> tuple[float, float]:
    """Return the one-way latency and its standard deviation (0: none is visible), in s.

    Half of the median of the idle round trips. Without LEAST_PINGS of these, half of the shortest
    of all, because waiting behind a transfer can only make them longer. The deviation is half of
    what the middle 68 % of the idle round trips span, divided by the square root of 2, because a
    round trip has two random parts.
    """
    if len(idle_s) < LEAST_PINGS:
        return min(all_s) / 2, 0.0
    low, middle, high = np.percentile(idle_s, [16, 50, 84])
    latency_s, jitter_s = float(middle) / 2, float(high - low) / 2 / 2**0.5
    seen = (
        len(idle_s) >= LEAST_JITTER_PINGS
        and jitter_s >= LEAST_JITTER_S
        and jitter_s >= JITTER_SHARE * latency_s
    )
    return latency_s, jitter_s if seen else 0.0


def _slower(known: Sequence[MeasuredEdge], way: str) -> float | None:
    """Goodput with others (on average one or more) over goodput alone (less than a tenth)."""
    busy = [one for each in known for one in each.busy[way]]
    alone = [one.rate_bit_s for one in busy if one.others < 0.1]
    shared = [one.rate_bit_s for one in busy if one.others >= 1]
    enough = min(len(alone), len(shared)) >= LEAST_TRANSFERS
    return median(shared) / median(alone) if enough else None


# ------------------------------------------------------------------ devices
def device_profile(edge: str, runs: Sequence[MeasuredRun]) -> DeviceProfile:
    """Return the profile of an edge's device; the runs lack nothing for it."""
    parts = [part for run in runs if edge in run.edges for part in run.edges[edge].training]
    speed = spread([part.per_s for part in parts])
    seconds = sum(part.ended_s - part.began_s for part in parts)
    return DeviceProfile(
        sum(part.amount for part in parts) / seconds,
        speed["median"],
        speed["p5"],
        speed["p95"],
        len(parts),
        float(np.mean([part.amount for part in parts])),
        overhead_s([(part.amount, part.ended_s - part.began_s) for part in parts]),
    )


def overhead_s(parts: Sequence[tuple[float, float]]) -> float | None:
    """The time of a training of no samples, by a straight line through (samples, seconds).

    None if the sizes are too alike for a line. 0 if the line is below 0 there.
    """
    sizes, seconds = zip(*parts)
    if max(sizes) < LEAST_SIZE_SPREAD * min(sizes):
        return None
    return max(linear_regression(sizes, seconds).intercept, 0.0)


# ---------------------------------------------------------------------- the tables of edges
EQUAL_SHARE = 0.02  # edges whose numbers differ by at most this share are equal
EQUAL_LATENCY_S = 0.0002
DIGITS = 5
GROUP_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
WRITTEN_APART = ("links", "devices", "groups")
# of [network]: where this machine listens is no part of the experiment
OF_THIS_MACHINE = ("host", "port")


class Match(StrEnum):
    """What the rates of a profile reproduce."""

    rate = "rate"  # the goodput on the wire
    time = "time"  # the whole time of a transfer of the same size, with what is not the wire


@dataclass(frozen=True, slots=True)
class EdgeTables:
    """An edge's keys for ``[groups.links]`` and ``[groups.devices]``, and where they come from.

    ``measured``: "links", "devices" or both; the others were given and stay exact. ``traces``: by
    file name, the rows (s, bit/s) that a key names.
    """

    edge: str
    links: dict[str, Any]
    devices: dict[str, Any]
    measured: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    traces: dict[str, tuple[tuple[float, float | None], ...]] = field(default_factory=dict)


def edge_tables(
    experiment: Experiment,
    links: Mapping[str, LinkProfile],
    native: Mapping[str, DeviceProfile],
    folder: str,
    match: Match,
    made: Mapping[str, Device],
) -> list[EdgeTables]:
    """Return the tables of all edges in order; an emulated part keeps the numbers that it had.

    ``folder``: that of the trace files, as the config names it. ``made``: the experiment's devices.
    """
    found = []
    for part in parts(experiment):
        for edge in part.ids:
            notes: list[str] = []
            traces: dict[str, tuple[tuple[float, float | None], ...]] = {}
            of_links = (
                _link_keys(edge, links[edge], folder, match, notes, traces)
                if edge in links
                else part.links.model_dump(exclude_none=True, exclude={"kind"})
            )
            of_device = (
                _device_keys(native[edge], experiment.training.batch_size, notes)
                if edge in native
                else _kept_device(part, made[edge])
            )
            of_radio, of_energy = _powers(part)
            of_links, of_device = of_links | of_radio, of_device | of_energy
            measured = frozenset(
                name for name, of in (("links", links), ("devices", native)) if edge in of
            )
            found.append(EdgeTables(edge, of_links, of_device, measured, tuple(notes), traces))
    return found


def _powers(part: Part) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of the radio and of the device's energy, as numbers: their profiles may not stay."""
    radio, energy = part.links.radio, part.devices.energy
    return (
        {} if radio is None else {"radio": asdict(radio.power(part.links.profile))},
        {} if energy is None else {"energy": asdict(energy.power(part.devices.profile))},
    )


def _kept_device(part: Part, device: Any) -> dict[str, Any]:
    """The keys that make this emulated device again, in whatever group its edge is."""
    section = part.devices
    if section.spread == "classes":
        raise UserError(
            'devices.spread = "classes": runtime classes are drawn for a whole group, so this'
            " group cannot be divided by edge; expected native devices or another spread"
        )
    kept = section.model_dump(exclude_none=True, include={"throttling", "bursts"})
    if section.spread == "exponential":
        kept["spread"] = section.spread
    if section.task_jitter:
        kept["task_jitter"] = section.task_jitter
    if section.unit == "tokens":
        return {"unit": section.unit, "tokens_per_s": device.samples_per_s, **kept}
    return {"samples_per_s": device.samples_per_s, **kept}


def _link_keys(
    edge: str,
    link: LinkProfile,
    folder: str,
    match: Match,
    notes: list[str],
    traces: dict[str, tuple[tuple[float, float | None], ...]],
) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for way in WAYS:
        rate = link.rates[way]
        share = link.whole_share(way) if match is Match.time else 1.0
        keys[f"{way}_mbit_s"] = _rounded(share * rate.bit_s / 1e6)
        if rate.trace:
            name = f"{folder}{edge}_{way}.csv"
            keys[f"trace_{way}"] = name
            traces[name] = tuple((at_s, bit_s and share * bit_s) for at_s, bit_s in rate.trace)
        notes.append(f"{way}: {_of_rate(rate)}; {link.counts[way]} busy periods")
        if way in link.slower:
            notes.append(
                f"{way}: while other edges moved too, {link.slower[way]:.2f} of the goodput alone"
            )
    keys["latency_ms"] = _rounded(1e3 * link.latency_s)
    pings, idle = link.counts["pings"], link.counts["idle_pings"]
    notes.append(
        f"latency: half of the median of {idle} idle round trips"
        if idle >= LEAST_PINGS
        else f"latency: half of the shortest of {pings} round trips, because {idle} were idle"
    )
    if link.jitter_s:
        keys["jitter_ms"] = _rounded(1e3 * link.jitter_s)
        notes.append("jitter: from the middle 68 % of these round trips")
    rest = link.rest
    of_task = "" if rest.share is None else f": {100 * rest.share:.1f} % of a task"
    counted = "not in the model" if match is Match.rate else "in the rates, for models of this size"
    notes.append(
        f"{counted}: {1e3 * rest.down_s:.1f} ms of a download, {1e3 * rest.up_s:.1f} ms from there"
        f" to the end of the upload{of_task}"
    )
    return keys


def _of_rate(rate: LinkRate) -> str:
    low, mean, high = (
        f"{each / 1e6:.3g}" for each in (rate.low_bit_s, rate.bit_s, rate.high_bit_s)
    )
    what = "a trace, because the rate varied" if rate.trace else "constant"
    return f"{what}; mean {mean}, at 10 and 90 % of the time {low} and {high} Mbit/s"


def _device_keys(device: DeviceProfile, batch: int, notes: list[str]) -> dict[str, Any]:
    notes.append(
        f"device: {device.trainings} trainings of {device.samples:.0f} samples on average, in"
        f" batches of {batch}; median {device.median:.4g}, 5th to 95th percentile {device.p5:.4g}"
        f" to {device.p95:.4g}"
    )
    if device.overhead_s is not None:
        notes.append(
            f"device: of each training, {1e3 * device.overhead_s:.1f} ms do not depend on its"
            " samples; the speed contains them"
        )
    return {"samples_per_s": _rounded(device.samples_per_s)}


# ------------------------------------------------------------------ groups of equal edges
def grouped(tables: Sequence[EdgeTables]) -> list[list[EdgeTables]]:
    """Join neighbours that are equal: the same keys, and numbers within EQUAL_SHARE.

    Only neighbours, because a group takes the next edges of the experiment, and an edge's place
    decides which data it has. An edge with a trace is a group of its own.
    """
    found: list[list[EdgeTables]] = []
    for each in tables:
        if found and not each.traces and all(_equal(each, member) for member in found[-1]):
            found[-1].append(each)
        else:
            found.append([each])
    return found


def _equal(one: EdgeTables, other: EdgeTables) -> bool:
    if one.traces or other.traces or one.measured != other.measured:
        return False
    for name in WRITTEN_APART[:2]:
        ours, theirs = getattr(one, name), getattr(other, name)
        if name not in one.measured and ours != theirs:
            return False
        if ours.keys() != theirs.keys() or not all(
            _near(key, value, theirs[key]) for key, value in ours.items()
        ):
            return False
    return True


def _near(key: str, value: Any, other: Any) -> bool:
    if not isinstance(value, float):
        return bool(value == other)
    least = 1e3 * EQUAL_LATENCY_S if key in ("latency_ms", "jitter_ms") else 0.0
    return bool(abs(value - other) <= max(EQUAL_SHARE * min(value, other), least))


def _mean(name: str, group: Sequence[EdgeTables]) -> dict[str, Any]:
    """The group's table ``name``: the mean of each measured number, and others as they are."""
    tables = [getattr(each, name) for each in group]
    return {
        key: _rounded(sum(each[key] for each in tables) / len(tables))
        if isinstance(value, float) and name in group[0].measured
        else value
        for key, value in tables[0].items()
    }


# ------------------------------------------------------------------ the file
def config_text(
    experiment: Experiment, tables: Sequence[EdgeTables], run: str, base: str | None
) -> str:
    """Return the TOML text of the repeated experiment, with a comment at each group.

    ``run``: the run that was measured. ``base``: the folder of the run's own code, if it has one.
    """
    network = experiment.network.model_dump(exclude_none=True, exclude=set(OF_THIS_MACHINE))
    kept = experiment.model_dump(exclude_none=True, exclude={*WRITTEN_APART, "speed", "network"})
    whole = kept | {"network": network} | ({"run": {"base": base}} if base else {})
    lines = [
        f"# The experiment of {run} with emulated links and devices, from what that run measured.",
        "# All other keys are those of the run. Written by edgefl profile.",
        tomli_w.dumps(whole),
        tomli_w.dumps({"links": {"kind": "emulated"}, "devices": {"kind": "emulated"}}),
    ]
    names: set[str] = set()
    for number, group in enumerate(grouped(tables)):
        edges = ", ".join(each.edge for each in group)
        lines += [f"# {edges}", *(f"#   {note}" for note in _notes(group))]
        name = group[0].edge if len(group) == 1 else f"group-{number}"
        if not GROUP_NAME.fullmatch(name) or name in names:
            name = f"group-{number}"
        names.add(name)
        table = {
            "name": name,
            "count": len(group),
            "links": _mean("links", group),
            "devices": _mean("devices", group),
        }
        lines.append(tomli_w.dumps({"groups": [table]}))
    return "\n".join(lines)


def _notes(group: Sequence[EdgeTables]) -> list[str]:
    if len(group) == 1:
        return list(group[0].notes)
    return [
        f"equal within {100 * EQUAL_SHARE:g} %, so these are means",
        *(f"{each.edge}: {note}" for each in group for note in each.notes),
    ]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


MOST_NAMED = 6  # edges in an error line
TRACES = "traces/"
CLOCK = "wall"


@dataclass(frozen=True, slots=True)
class NativeProfile:
    """What the runs tell of their native parts, and the experiment that repeats them.

    ``links`` and ``devices``: of the native ones, by edge. ``base``: the folder of the runs' own
    code, None if they have none.
    """

    source: Path
    experiment: Experiment
    links: dict[str, LinkProfile]
    devices: dict[str, DeviceProfile]
    base: str | None


def read(path: Path) -> NativeProfile:
    """Make the profile of the run in ``path``, or of all strategies and seeds below it.

    UserError if the runs have no native part, measured too little, or belong to different
    experiments.
    """
    directories = [run for runs in run_files.find([path]).values() for run in runs]
    experiment = _experiment(path, directories)
    native = _native(experiment)
    if not any(native.values()):
        raise UserError(
            f"{path}: links and devices of this run are emulated, so nothing was measured; expected"
            ' a run with links.kind = "native" or devices.kind = "native"'
        )
    runs = []
    for run in directories:
        with undamaged(run):
            runs.append(_measured_run(run))
    _check_enough(path, experiment, native, runs)
    base = run_files.read_config(directories[0]).get(FACTS, {}).get("base")
    return NativeProfile(
        path,
        experiment,
        {edge: link_profile(edge, runs) for edge in native["links"]},
        {edge: device_profile(edge, runs) for edge in native["devices"]},
        base,
    )


def write(
    profile: NativeProfile, folder: Path, match: Match, made: Mapping[str, Device]
) -> list[Path]:
    """Write the config and its traces into ``folder``; return the paths, the config first.

    ``made``: the devices of the profile's experiment, by edge. UserError if the config exists: the
    user may have changed it.
    """
    config = folder / f"{profile.experiment.name}.toml"
    if config.exists():
        raise UserError(f"{config}: already exists; choose another --out DIR, or delete it")
    traces = str(folder.resolve() / TRACES) + "/" if profile.base else TRACES
    tables = edge_tables(profile.experiment, profile.links, profile.devices, traces, match, made)
    paths = [config]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in (item for each in tables for item in each.traces.items()):
            paths.append(folder / name)
            paths[-1].parent.mkdir(exist_ok=True)
            lines = [f"{at_s:.6f},{'' if rate is None else round(rate)}" for at_s, rate in rows]
            write_whole(paths[-1], "\n".join(["seconds,bit_s", *lines, ""]).encode())
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be written ({error.strerror})") from error
    text = config_text(profile.experiment, tables, str(profile.source), profile.base)
    write_whole(config, text.encode())
    load(config)  # it must be one that edgefl accepts
    return paths


def _measured_run(run: Path) -> MeasuredRun:
    requests_s: defaultdict[str, list[float]] = defaultdict(list)
    ended_s = 0.0
    for row in read_events(run / EVENTS):
        ended_s = row["t"]
        if row.get("event") == "fresh_requested":
            requests_s[row["edge"]].append(ended_s)
    return MeasuredRun(measured(run), read_csv(run / LINKS), requests_s, ended_s)


def _experiment(path: Path, directories: Sequence[Path]) -> Experiment:
    """The experiment of these runs, with all their seeds, under a name of its own."""
    found = [load(run / "config.toml") for run in directories]
    for run, other in zip(directories, found):
        if _without_seed(other) != _without_seed(found[0]):
            raise UserError(
                f"{path}: {directories[0].name} and {run.name} are runs of different experiments;"
                " expected the directory of one run or of one experiment"
            )
    facts = run_files.read_config(directories[0]).get(FACTS, {})
    if facts.get("clock", CLOCK) != CLOCK:
        raise UserError(
            f"{path}: a run under the virtual clock measures nothing; expected a run on the wall"
            ' clock with links.kind = "native" or devices.kind = "native"'
        )
    seeds = sorted({one.seed for one in found})
    changes: dict[str, Any] = {"name": f"{found[0].name[:57]}-repeat"}
    if len(seeds) > 1:
        changes |= {"seed": Experiment.model_fields["seed"].default, "seeds": tuple(seeds)}
    return found[0].model_copy(update=changes)


def _without_seed(experiment: Experiment) -> Experiment:
    # with speed = "auto", each run chooses its own
    network = experiment.network.model_copy(update={"port": 0})
    return experiment.model_copy(update={"seed": 0, "speed": 1.0, "network": network})


def _native(experiment: Experiment) -> dict[str, list[str]]:
    """The edges with native links, and those with native devices."""
    if experiment.medium.kind != "none" and any(
        part.links.kind == "native" for part in parts(experiment)
    ):
        raise UserError(
            f'medium.kind = "{experiment.medium.kind}": the native links of this run are not on'
            " that medium, but emulated ones would be; expected a run without a medium"
        )
    return {
        table: [
            edge
            for part in parts(experiment)
            if getattr(part, table).kind == "native"
            for edge in part.ids
        ]
        for table in ("links", "devices")
    }


def _check_enough(
    path: Path, experiment: Experiment, native: dict[str, list[str]], runs: Sequence[MeasuredRun]
) -> None:
    missing = {
        edge: lacking
        for edge in experiment.edges.ids()
        if (lacking := lacks(edge, runs, edge in native["links"], edge in native["devices"]))
    }
    if missing:
        named = [f"{edge} has {', '.join(of)}" for edge, of in list(missing.items())[:MOST_NAMED]]
        more = len(missing) - len(named)
        raise UserError(
            f"{path}: measured too little: {'; '.join(named)}"
            + (f"; and {more} more edges" if more > 0 else "")
            + " (a longer run measures more)"
        )
