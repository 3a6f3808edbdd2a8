"""IDFL, intentional delay: a group takes a later model and starts just in time for its next slots
(Song, Hong, algorithm 2, proposition 1).

A group that needs d* = ceil(tau_comp / (r (S + 1))) rounds to compute need not start G - 1 rounds
ahead: with alpha = G - d* - 1 it gets the model of alpha rounds later, its updates are d* rounds
old, and no slot is lost: every round has S updates, and none ends later. Group j of those that
wait has its turn j rounds from now.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

from pydantic import Field

from edgefl.errors import UserError
from edgefl.strategies.base.slotted import Slotted, SlottedOptions
from edgefl.strategies.base.timetable import Timetable


class IdflOptions(SlottedOptions):
    alpha: int | Literal["auto", "adaptive"] = (
        # rounds; or the most that cost no slot (proposition 1); or by what was measured (ours)
        "auto"
    )
    """Intentional delay in rounds: the longest that loses no slot (every round has S updates, none
    ends later), a number, or `"adaptive"`: by measured computing times.
    """
    # tau_comp of "auto"; None: from the devices' speeds and data
    compute_slots: int | None = Field(None, ge=0)
    """Of `"auto"`: slots of a task; none: from the devices' speeds and data."""
    # of "adaptive": an edge should be ready so many slots before its turn
    margin_slots: int = Field(1, ge=0)
    """Of `"adaptive"`: an edge should be ready so many slots before its turn."""
    # of "adaptive": it counts on the longest of so many last computing times
    memory: int = Field(5, ge=1)
    """Of `"adaptive"`: it counts on the longest of so many last computing times."""


class Idfl(Slotted):
    """w_{k+1} goes to S_{k-alpha}. "adaptive": to the waiting groups that are needed so soon
    that they cannot wait for the next model.
    """

    Options = IdflOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.took: dict[str, deque[int]] = {}  # edge -> slots that it has computed for, the latest

    @classmethod
    def refuses(cls, options: Any, edges: int, medium: str, frames: bool) -> tuple[str, str] | None:
        groups = -(-edges // (options.per_round or edges))
        if (
            isinstance(options.alpha, int)
            and not 0 <= options.alpha < groups
            and (options.per_round or 0) <= edges
        ):
            return (
                "alpha",
                (
                    f"expected 0 to {groups - 1} rounds, less than the {groups} groups, found"
                    f" {options.alpha}"
                ),
            )
        return super().refuses(options, edges, medium, frames)

    def use(self, timetable: Timetable) -> None:
        if (
            self.options.alpha == "auto"
            and self.options.compute_slots is None
            and not timetable.known
        ):
            raise UserError(
                'alpha = "auto": how long these devices compute is not known beforehand; expected'
                ' compute_slots with it, or alpha = "adaptive"'
            )
        super().use(timetable)

    def first_groups(self, edges: list[str]) -> tuple[list[str], list[list[str]]]:
        """Groups 0 to G - alpha - 1 start from w_0; "adaptive" starts all, since nothing is
        measured yet.
        """
        groups = self.groups(edges)
        # with edges missing there may be fewer groups than the config's alpha takes
        first = groups[: max(1, len(groups) - self._delay(edges))]
        return [edge for group in first for edge in group], groups[len(first) :]

    def next_groups(self) -> list[list[str]]:
        return self._just_in_time() if self.options.alpha == "adaptive" else super().next_groups()

    def finished(self, edge: str, slots: int) -> None:
        self.took.setdefault(edge, deque(maxlen=self.options.memory)).append(slots)

    def _delay(self, edges: list[str]) -> int:
        if self.options.alpha != "auto":
            return 0 if self.options.alpha == "adaptive" else self.options.alpha
        return self.timetable.auto_delay(len(edges), self.size, self._compute_slots(edges))

    def _compute_slots(self, edges: list[str]) -> int:
        """tau_comp of the slowest."""
        given: int | None = self.options.compute_slots
        if given is not None:
            return given
        return max(
            self.timetable.compute_slots(edge, self.samples[edge], self.steps) or 0
            for edge in edges
        )

    def _just_in_time(self) -> list[list[str]]:
        """Start groups, those first that have waited longest, as long as waiting for the next model
        would leave an upload slot without a sender.

        Upload slot i from now on needs i + 1 devices that are ready by then: those at work, and
        those that wait.
        """
        waiting = deque(
            group
            for group in ([edge for edge in group if edge in self.samples] for group in self.owed)
            if group
        )
        at_work = [self.free] * len(self._ready()) + [
            max(begun + self._expected(edge), self.free)
            for edge, begun in self._computing().items()
        ]
        due: list[list[str]] = []
        while waiting and (
            any(edge not in self.took for edge in waiting[0])
            or self._short(at_work, [edge for group in waiting for edge in group])
        ):
            due.append(waiting.popleft())
            at_work += [self.free + self._expected(edge) for edge in due[-1]]
        self.owed = waiting
        return due

    def _short(self, at_work: list[int], waiting: list[str]) -> bool:
        """If all of ``waiting`` wait for the next model: is a slot without a sender that could
        have one, or have it earlier, otherwise?
        """
        ready = [self.free + self._expected(edge) for edge in waiting]
        sooner, later = (
            sorted(at_work + ready),
            sorted(at_work + [slot + self.comm_slots for slot in ready]),
        )
        return any(
            late > self.turn_slot(place) and soon < late
            for place, (soon, late) in enumerate(zip(sooner, later))
        )

    def _expected(self, edge: str) -> int:
        """Slots that the edge will need, with the margin."""
        margin: int = self.options.margin_slots
        return max(self.took.get(edge, (0,))) + margin
