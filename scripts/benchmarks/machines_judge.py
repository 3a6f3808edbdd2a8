"""Judge the files of a run: answers on the downlink, and pieces in their slots.

Everything here reads rows only; nothing is measured.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from packet_watch import Packet

from edgefl.protocol.messages import DROPPED, FRESH, TASK

PIECE_BYTES = 600  # a smaller packet is a note, a heartbeat or an acknowledgement, not a piece
BROADCAST = "*"  # in slots.csv
MS_PER_S, NS_PER_S = 1e3, 1e9
EXACT_S, EXACT_DIGITS = 1e-9, 6  # times in files have nine decimals; digits of ms
Row = Mapping[str, str]
Moment = tuple[float, float]  # begin and end in emulated s


# ------------------------------------------------------------------ the downlink
@dataclass(frozen=True, slots=True)
class Answers:
    """Fresher models that went down, and what assignments had to wait for them.

    ``idle``: their edge's downlink carried nothing else from their offer to their end. ``delayed``:
    assignments that shared their downlink with one. ``spread_ms``: the slowest download of an
    assignment less the fastest one; all have the same size and the same link.
    """

    sent: int
    stopped: int  # came too late, so their download was ended
    idle: int
    delayed: int
    assignments: int
    spread_ms: float | None


def answers(links: Iterable[Row]) -> Answers:
    """Judge the rows of links.csv."""
    down: defaultdict[str, list[Row]] = defaultdict(list)
    for row in links:
        if row["direction"] == "down":
            down[row["edge"]].append(row)
    fresh, tasks = [], []
    for rows in down.values():
        fresh += [(row, rows) for row in rows if row["kind"] in (FRESH, DROPPED)]
        tasks += [(row, rows) for row in rows if row["kind"] == TASK]
    took_s = [span(row)[1] - span(row)[0] for row, _ in tasks]
    return Answers(
        len(fresh),
        sum(row["kind"] == DROPPED for row, _ in fresh),
        sum(not any(overlap(row, other) for other in rows) for row, rows in fresh),
        sum(
            any(overlap(row, other) for other in rows if other["kind"] != TASK)
            for row, rows in tasks
        ),
        len(tasks),
        round(MS_PER_S * (max(took_s) - min(took_s)), EXACT_DIGITS) if took_s else None,
    )


def span(row: Row) -> Moment:
    """From the offer of a transfer to its end."""
    return float(row["offered_s"]), float(row["finished_s"])


def overlap(row: Row, other: Row) -> bool:
    """Whether two transfers of one link are under way at a time."""
    (begins, ends), (begins_too, ends_too) = span(row), span(other)
    return row is not other and begins < ends_too - EXACT_S and begins_too < ends - EXACT_S


# ------------------------------------------------------------------ the slots
@dataclass(frozen=True, slots=True)
class Pieces:
    """Packets with bytes of models, against the slots of a run.

    A packet is inside if it passes between the begin of a slot of its edge and the slot's end.
    ``in_guard``: of these, how many passed after the end of the slot's work. ``margin_ms``: the
    least time from a packet to the end of its slot, negative for one that came too late;
    ``lead_ms``: from the begin of its slot to a packet, negative if it came too early.
    """

    pieces: int
    outside: int
    in_guard: int
    margin_ms: float | None
    lead_ms: float | None
    median_ms: float | None  # to the end of the slot
    edges: int  # connections that were told apart


@dataclass(frozen=True, slots=True)
class Slots:
    """Slots of one edge and direction, in order: the begin and end of the work, and the guard."""

    moments: tuple[Moment, ...]
    guard_s: float

    def around(self, at_s: float) -> tuple[float, float, float]:
        """(From the begin of the nearest slot, to the end of its work, to its end), in seconds.

        A negative value: before the begin, or after an end.
        """
        place = bisect_right(self.moments, (at_s, float("inf")))
        near = self.moments[max(place - 1, 0) : place + 1]

        def outside_s(moment: Moment) -> float:
            return max(moment[0] - at_s, at_s - moment[1] - self.guard_s)

        begins, ends = min(near, key=outside_s)
        return at_s - begins, ends - at_s, ends + self.guard_s - at_s

    def holds(self, at_s: float) -> bool:
        since, _, left = self.around(at_s)
        return since >= 0 and left >= 0


def slots_of(rows: Iterable[Row], direction: str, guard_s: float) -> dict[str, Slots]:
    """The slots of slots.csv in one direction, by edge; a broadcast is one of edge ``*``."""
    found: defaultdict[str, list[Moment]] = defaultdict(list)
    for row in rows:
        if row["direction"] == direction:
            found[row["edge"]].append((float(row["begins_s"]), float(row["ends_s"])))
    return {edge: Slots(tuple(sorted(moments)), guard_s) for edge, moments in found.items()}


@dataclass(frozen=True, slots=True)
class RunTimes:
    """How Unix times become times of a run, and how long it lasted (emulated s)."""

    began_unix_s: float
    speed: float
    emulated_s: float

    def at_s(self, packet: Packet) -> float:
        began_ns = round(self.began_unix_s * NS_PER_S)
        return (packet.unix_ns - began_ns) / NS_PER_S * self.speed


def pieces_up(packets: Iterable[Packet], slots: Mapping[str, Slots], times: RunTimes) -> Pieces:
    """Judge the uploads. Each connection is the edge in whose slots most of its bytes travelled.

    The packets are encrypted and do not tell their edge. No two connections are the same edge.
    """
    by_peer: defaultdict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
    for packet in packets:
        at_s = times.at_s(packet)
        if packet.up and packet.size >= PIECE_BYTES and 0 <= at_s <= times.emulated_s:
            by_peer[packet.peer].append((at_s, packet.size))
    pairs: list[tuple[float, Slots]] = []
    free = dict(slots)
    for passed in sorted(by_peer.values(), key=len, reverse=True):
        weights = Counter(
            {
                edge: sum(size for at_s, size in passed if own.holds(at_s))
                for edge, own in free.items()
            }
        )
        if weights:
            own = free.pop(weights.most_common(1)[0][0])
            pairs += [(at_s, own) for at_s, _ in passed]
    return judged(pairs, len(by_peer))


def pieces_down(packets: Iterable[Packet], slots: Mapping[str, Slots], times: RunTimes) -> Pieces:
    """Judge the broadcasts. The first model is none and takes no slot: it is left out.

    It goes down long before the first broadcast, so pieces count from a slot's length before that.
    """
    own = slots[BROADCAST]
    begins, ends = own.moments[0]
    from_s = begins - (ends + own.guard_s - begins)
    passed = [
        (at_s, packet.peer)
        for packet in packets
        if not packet.up
        and packet.size >= PIECE_BYTES
        and from_s <= (at_s := times.at_s(packet)) <= times.emulated_s
    ]
    return judged([(at_s, own) for at_s, _ in passed], len({peer for _, peer in passed}))


def judged(pairs: Sequence[tuple[float, Slots]], edges: int) -> Pieces:
    around = [own.around(at_s) for at_s, own in pairs]
    left_ms = [MS_PER_S * left for _, _, left in around]
    lead_ms = [MS_PER_S * since for since, _, _ in around]
    inside = [since >= 0 and left >= 0 for since, _, left in around]
    return Pieces(
        len(pairs),
        inside.count(False),
        sum(ok and work < 0 for ok, (_, work, _) in zip(inside, around)),
        min(left_ms, default=None),
        min(lead_ms, default=None),
        median(left_ms) if left_ms else None,
        edges,
    )


def overlaps(rows: Iterable[Row]) -> int:
    """How often two slots of slots.csv were in use at a time."""
    uses = sorted((float(row["begins_s"]), float(row["ends_s"])) for row in rows)
    return sum(before[1] > after[0] for before, after in pairwise(uses))


# ------------------------------------------------------------------ what every run has
def staleness(summary: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Mean and median staleness of the updates that arrived, in versions."""
    gaps = [int(gap) for gap, count in summary["staleness"].items() for _ in range(count)]
    return (sum(gaps) / len(gaps), float(median(gaps))) if gaps else (None, None)
