"""Limits on what an edge may send about its tasks."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from edgefl.protocol.errors import LimitExceeded, WireError
from emulator.units import NS_PER_S

# The edge's latest tasks, about which it may still send messages. It keeps at most 8 updates that
# are not acknowledged.
REMEMBERED = 32
# For one task in one session. An honest edge offers an update once, offers it again when it is
# urged, asks once, fails once, and reports the begin and the time of each part of its training
# once.
MOST_OFFERS, MOST_NOTES, MOST_TRAINED = 4, 3, 4
MOST_REPORTS = 10  # about a host at one time
MOST_AHEAD_S = 366 * 24 * 3600  # emulated seconds: no training takes longer


@dataclass(slots=True)
class Said:
    """How often an edge has sent offers, notes and reports on one task in one session."""

    offers: int = 0
    notes: int = 0
    trained: int = 0
    working: int = 0


class Allowances:
    """Counts by edge and task. A new session resets them: the edge then repeats open messages."""

    def __init__(self) -> None:
        self._said: defaultdict[str, OrderedDict[int, Said]] = defaultdict(OrderedDict)

    def given(self, edge: str, task: int) -> None:
        said = self._said[edge]
        said[task] = Said()
        if len(said) > REMEMBERED:
            said.popitem(last=False)

    def knows(self, edge: str, tasks: Iterable[int]) -> None:
        """An edge of a resumed run has these tasks: they were given before."""
        for task in tasks:
            if task not in self._said[edge]:
                self.given(edge, task)

    def new_session(self, edge: str) -> None:
        for said in self._said[edge].values():
            said.offers = said.notes = said.trained = said.working = 0

    def offers(self, edge: str, task: int) -> None:
        """Count an offered update.

        WireError if this is not the edge's task, LimitExceeded if it offers too often.
        """
        said = self._of(edge, task)
        said.offers += 1
        if said.offers > MOST_OFFERS:
            raise LimitExceeded(
                f"task {task} was offered more than {MOST_OFFERS} times in one session"
            )

    def notes(self, edge: str, task: int) -> None:
        """Count a request for a fresher model or a failure report. Errors as in ``offers``."""
        said = self._of(edge, task)
        said.notes += 1
        if said.notes > MOST_NOTES:
            raise LimitExceeded(f"more than {MOST_NOTES} notes on task {task} in one session")

    def trained(self, edge: str, task: int) -> None:
        """Count a report of the time of a training. Errors as in ``offers``."""
        said = self._of(edge, task)
        said.trained += 1
        if said.trained > MOST_TRAINED:
            raise LimitExceeded(f"more than {MOST_TRAINED} reports on task {task} in one session")

    def working(self, edge: str, task: int) -> None:
        """Count a message that a training has begun. Errors as in ``offers``."""
        said = self._of(edge, task)
        said.working += 1
        if said.working > MOST_TRAINED:
            raise LimitExceeded(f"task {task} began more than {MOST_TRAINED} times in one session")

    def _of(self, edge: str, task: int) -> Said:
        said = self._said[edge].get(task)
        if said is None:
            raise WireError(f"task {task} is none of those that the edge was given")
        return said


class ReportAllowance:
    """How often an edge may report about its host.

    ``period_ns``: between two reports of an honest edge, in wall time; 0: none is expected.
    ``patience_ns``: the longest time for which a connection may hold reports back.
    """

    def __init__(self, period_ns: int, patience_ns: int) -> None:
        self.period_ns = period_ns
        self.most = MOST_REPORTS + patience_ns // max(period_ns, 1)
        self._left: dict[str, tuple[float, int]] = {}  # edge -> reports left, at this moment
        self._told: set[str] = set()  # edges whose session has told its facts

    def new_session(self, edge: str) -> None:
        self._told.discard(edge)

    def facts(self, edge: str) -> None:
        """Count the facts about a host. WireError if unasked, LimitExceeded if repeated."""
        self._check_asked()
        if edge in self._told:
            raise LimitExceeded("facts about the host twice in one session")
        self._told.add(edge)

    def report(self, edge: str, now: int) -> None:
        """Count a report at ``now`` (wall ns). Errors as in ``facts``.

        Twice as many as expected are permitted.
        """
        self._check_asked()
        left, since_ns = self._left.get(edge, (self.most, now))
        left = min(self.most, left + 2 * (now - since_ns) / self.period_ns)
        if left < 1:
            raise LimitExceeded("reports about the host too often")
        self._left[edge] = (left - 1, now)

    def _check_asked(self) -> None:
        if not self.period_ns:
            raise WireError("a report about the host, which was not asked for")


def moment(at_ns: int, now: int) -> int:
    """Return ``at_ns``, which an edge has sent (emulated ns).

    WireError if it is so far in the future that the run would wait for ever.
    """
    if at_ns - now > MOST_AHEAD_S * NS_PER_S:
        ahead_s = (at_ns - now) / NS_PER_S
        raise WireError(f"a moment {ahead_s:.3g} s ahead, at most {MOST_AHEAD_S} s")
    return at_ns
