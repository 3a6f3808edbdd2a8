"""The page about schemes over machines, in Markdown, from what over_machines.py has read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from machines_judge import PIECE_BYTES, Answers, Pieces
from machines_lab import FASTER, HOSTS, LOOPBACK, VIRTUAL

REQUESTS, SLOTS = "fedasmu", "tdma"  # the two studies
WORDS = {REQUESTS: "Dissemination", SLOTS: "TDMA"}
WHERE = {VIRTUAL: "virtual clock", LOOPBACK: "loopback", HOSTS: "hosts"}
REQUEST_COLUMNS = (
    *("scheme", "where", "asked", "newer", "sent", "idle", "too late", "merged", "wait, ms"),
    *("delayed", "spread, ms", "before", "after"),
)
PIECE_COLUMNS = (
    *("scheme", "where", "", "pieces", "outside", "in guard", "first, ms", "last, ms"),
    "median to the end, ms",
)
AGREEMENT_COLUMNS = (
    *("scheme", "where", "selections that differ", "moment, median %", "worst %"),
    "last model",
)
FOREWORD = """\
# Two schemes over machines

[Timely dissemination](../how-to/dissemination.md) and [TDMA with intentional
delay](../how-to/tdma.md) run in three places, each with and without the scheme: under the virtual
clock, with `edgefl run` (loopback), and with [`edgefl launch`](../how-to/several-machines.md) on
{hosts} hosts. `python scripts/benchmarks/over_machines.py --page FILE` does all this and writes
this page from the files of the runs.

{kind}

- **Machine.** {machine}. All hosts share it.
- **Edges.** {edges}.
- **Speed**, emulated seconds per second. {speeds}. `speed = "auto"` chose it for the run on
  loopback; the hosts got the same.
- **Length** of each run, emulated seconds. {lengths}.
"""
LAB = """\
The hosts are network namespaces ([`emulator lab`](../how-to/lab.md)) on one switch, with CURVE
keys and shards of the data. The kernel's links are {faster} times faster than the emulated links
of a host's edges together ({rates})."""
LOCAL = "The hosts are local work folders of this machine, with CURVE keys and shards of the data."
DOWNLINK = """\
## Requests over the idle downlink

`configs/fedasmu/wallclock.toml`. `fedasmu` and, in rounds, `fedssmu` ask during training.
`fedasmu-0` and `fedavg` are the same without requests and without learned weights.

- **idle**: fresher models whose edge's downlink carried nothing else from their offer to their
  end.
- **delayed**: assignments that shared their downlink with a fresher model. **spread**: the
  slowest download of an assignment less the fastest one.
- **before, after**: mean staleness of the updates that merged a fresher model, counted from the
  model that their training began with, and from the one that they merged.
"""
CHANNEL = """\
## Pieces in their slots

`configs/tdma/wallclock.toml`: slots of 100 ms, of which 20 ms are guard time. `idfl-s3` is
`tdma-s3` with intentional delay, `tdma-s12` is synchronous. A recorder reads the packets from the
coordinator's interface, so edgefl is not asked: a packet with {piece} or more bytes of payload is
a piece. The packets are encrypted; a connection is the edge in whose slots most of its bytes
travelled.

- **outside**: pieces that did not pass between the begin and the end of a slot of their edge
  (down: of a broadcast).
- **in guard**: pieces that passed after the 80 ms of the slot in which the emulated channel
  carries bytes.
- **first, last**: least time from the begin of a slot to a piece, and from a piece to the end of
  its slot.
"""
AGREEMENT = """\
**What machines change**, against the virtual clock: {equal} of {runs} runs in real time end with
the same model, bit for bit. Moments are emulated ones. They are exact as long as bytes and
trainings are in time, which the verdict judges.

"""


@dataclass(frozen=True, slots=True)
class Facts:
    """About all runs: the machine, hosts by study, and rates of their links in Mbit/s."""

    host: str
    in_lab: bool
    hosts: Mapping[str, int]
    link_mbit_s: Mapping[str, float]
    edges: Mapping[str, int]
    most_samples_per_s: Mapping[str, float | None]  # of the devices that may train at one time


@dataclass(frozen=True, slots=True)
class Agreement:
    """A run in real time against the virtual clock.

    ``moment_percent``: (median, worst) difference of the emulated moments of versions.
    """

    selections: int  # compared
    differ: int
    moment_percent: tuple[float | None, float | None]
    bit_equal: bool  # the last model


@dataclass(frozen=True, slots=True)
class Result:
    """What one run shows: ``staleness`` is (mean, median), None where nothing was measured."""

    plan: str
    method: str
    place: str
    summary: Mapping[str, Any]
    staleness: tuple[float | None, float | None]
    agreement: Agreement | None  # not of the virtual clock itself
    answers: Answers | None
    up: Pieces | None
    down: Pieces | None
    overlaps: int | None

    @property
    def strained(self) -> bool:
        return bool(self.summary["fidelity"]["verdict"] == "strained")

    @property
    def where(self) -> str:
        return WHERE[self.place]

    @property
    def begin(self) -> tuple[str, str]:
        """The first two cells of a row."""
        return f"`{self.method}`", self.where


def page(facts: Facts, results: Sequence[Result]) -> str:
    """The whole page. ``results``: those of one or both studies."""
    parts = [foreword(facts, results)]
    found = [each for each in results if each.plan == REQUESTS]
    if found:
        parts += [DOWNLINK, outcomes(found), requests(found), agreements(found)]
    found = [each for each in results if each.plan == SLOTS]
    if found:
        parts += [
            CHANNEL.format(piece=PIECE_BYTES),
            outcomes(found),
            pieces(found),
            agreements(found),
        ]
    return "\n".join([*parts, verdicts(results)])


def foreword(facts: Facts, results: Sequence[Result]) -> str:
    first = {each.plan: each for each in results if each.place == HOSTS}
    rates = ", ".join(f"{WORDS[plan]} {facts.link_mbit_s[plan]:g} Mbit/s" for plan in first)
    kind = LAB.format(faster=FASTER, rates=rates) if facts.in_lab else LOCAL
    edges = "; ".join(f"{WORDS[plan]}: {edges_of(facts, plan)}" for plan in first)
    speeds = "; ".join(f"{WORDS[plan]}: {each.summary['speed']:g}" for plan, each in first.items())
    lengths = "; ".join(
        f"{WORDS[plan]}: {each.summary['emulated_s']:g}" for plan, each in first.items()
    )
    hosts = " and ".join(dict.fromkeys(str(facts.hosts[plan]) for plan in first))
    machine = facts.host.partition("; load")[0]
    return FOREWORD.format(
        hosts=hosts, kind=kind, machine=machine, edges=edges, speeds=speeds, lengths=lengths
    )


def edges_of(facts: Facts, plan: str) -> str:
    most = facts.most_samples_per_s[plan]
    more = "" if most is None else f"; those at work need up to {most:,.0f} samples/s at speed 1"
    return f"{facts.edges[plan]}{more}"


# ------------------------------------------------------------------ tables
def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(text, line))} |\n" for line in lines)


def text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def outcomes(results: Sequence[Result]) -> str:
    target = results[0].summary["target_accuracy"]
    head = ["scheme", "where", "versions", "staleness mean", "median", "final accuracy"]
    head += [] if target is None else [f"s to {100 * target:g} %"]
    rows = [
        [
            *each.begin,
            each.summary["versions"],
            *each.staleness,
            each.summary["final_accuracy"],
            *([] if target is None else [each.summary["time_to_target_s"]]),
        ]
        for each in results
    ]
    return table(head, rows)


def requests(results: Iterable[Result]) -> str:
    return table(
        REQUEST_COLUMNS,
        (
            [*each.begin, *_requests(each.answers, each.summary["dissemination"])]
            for each in results
            if each.answers is not None
        ),
    )


def _requests(found: Answers, asked: Mapping[str, Any]) -> Iterator[object]:
    share = f" ({100 * found.idle / found.sent:.0f} %)" if found.sent else ""
    wait_s = asked["waiting_mean_s"]
    yield from (asked["requests"], asked["newer"], found.sent, f"{found.idle}{share}")
    yield from (found.stopped, asked["merges"], None if wait_s is None else 1000 * wait_s)
    yield from (f"{found.delayed} of {found.assignments}", found.spread_ms)
    for key in ("before", "after"):
        middle = asked[f"staleness_{key}"]
        yield None if middle is None else middle["mean"]


def pieces(results: Iterable[Result]) -> str:
    return table(
        PIECE_COLUMNS,
        (
            [*each.begin, way, *_pieces(found)]
            for each in results
            for way, found in (("up", each.up), ("down", each.down))
            if found is not None
        ),
    )


def _pieces(found: Pieces) -> Iterator[object]:
    yield from (found.pieces, found.outside, found.in_guard, found.lead_ms, found.margin_ms)
    yield found.median_ms


def agreements(results: Iterable[Result]) -> str:
    """What machines change: hosts and loopback against the virtual clock."""
    rows = [
        [
            *each.begin,
            f"{each.agreement.differ} of {each.agreement.selections}",
            *each.agreement.moment_percent,
            "bit-equal" if each.agreement.bit_equal else "differs",
        ]
        for each in results
        if each.agreement is not None
    ]
    equal = sum(each.agreement is not None and each.agreement.bit_equal for each in results)
    return AGREEMENT.format(equal=equal, runs=len(rows)) + table(AGREEMENT_COLUMNS, rows)


def verdicts(results: Sequence[Result]) -> str:
    real = [each for each in results if each.place != VIRTUAL]
    rows = [[*each.begin, *_verdict(each.summary["fidelity"])] for each in real]
    head = (
        "scheme",
        "where",
        "verdict",
        "transfers",
        "late, p99, ms",
        "most, ms",
        "trainings",
        "overran",
    )
    reasons = [
        f"- `{each.method}`, {each.where}: {reason}\n"
        for each in real
        for reason in each.summary["fidelity"]["reasons"]
    ]
    return (
        "## Verdicts\n\nWhat a [verdict](verdict.md) says about each run in real time.\n\n"
        + table(head, rows)
        + ("\nReasons:\n\n" + "".join(reasons) if reasons else "")
    )


def _verdict(found: Mapping[str, Any]) -> Iterator[object]:
    lag_ms = found["transfer_lag_ms"]
    yield from (found["verdict"], found["transfers"], lag_ms["p99"], lag_ms["max"])
    yield from (found["tasks"], found["compute_overruns"])
