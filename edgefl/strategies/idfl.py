"""IDFL, intentional delay: a TDMA group waits for a later model, and still sends on time.

A group that needs d* = ceil(tau_comp / (r (S + 1))) rounds to compute does not have to start G - 1
rounds before its turn. With alpha = G - d* - 1 it gets the model of alpha rounds later, and its
updates are d* rounds old. No slot is lost: every round has S updates, and no round ends later.
Group j of the waiting groups has its turn j rounds from now. Source: Song, Hong, algorithm 2 and
proposition 1.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

from pydantic import Field

from edgefl.errors import UserError
from edgefl.strategies.base.slotted import Slotted, SlottedOptions, Timetable


class IdflOptions(SlottedOptions):
    alpha: int | Literal["auto", "adaptive"] = "auto"
    """Intentional delay in rounds. `"auto"`: the longest delay that loses no slot (every round has
    S updates, and no round ends later; proposition 1); `"adaptive"` (not in the paper): from
    measured computing times.
    """
    compute_slots: int | None = Field(None, ge=0, le=10**12)
    """Slots that a task takes to compute (tau_comp), for `alpha = "auto"`; none: from the devices'
    speeds and data.
    """
    margin_slots: int = Field(1, ge=0)
    """Slots before its turn by which an edge should be ready, for `alpha = "adaptive"`."""
    memory: int = Field(5, ge=1)
    """Number of an edge's last computing times, of which the longest is expected next, for
    `alpha = "adaptive"`.
    """


class Idfl(Slotted):
    """w_{k+1} goes to S_{k-alpha}; with "adaptive", to the waiting groups that would be late for
    their slots if they waited for the next model.
    """

    Options = IdflOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.took: dict[str, deque[int]] = {}  # edge -> its last computing times in slots

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
                'alpha = "auto": the computing time of these devices is not known in advance;'
                ' expected compute_slots as well, or alpha = "adaptive"'
            )
        super().use(timetable)

    def first_groups(self, edges: list[str]) -> tuple[list[str], list[list[str]]]:
        """Start groups 0 to G - alpha - 1 from w_0; "adaptive" starts all, because nothing is
        measured yet.
        """
        groups = self.groups(edges)
        # if edges are missing, there may be fewer groups than the config's alpha needs
        first = groups[: max(1, len(groups) - self._delay(edges))]
        return [edge for group in first for edge in group], groups[len(first) :]

    def next_groups(self) -> list[list[str]]:
        return self._just_in_time() if self.options.alpha == "adaptive" else super().next_groups()

    def finished(self, edge: str, slots: int) -> None:
        self.took.setdefault(edge, deque(maxlen=self.options.memory)).append(slots)

    def _delay(self, edges: list[str]) -> int:
        if self.options.alpha != "auto":
            return 0 if self.options.alpha == "adaptive" else self.options.alpha
        per_round = min(self.size, len(edges))
        return self.timetable.auto_delay(len(edges), per_round, self._compute_slots(edges))

    def _compute_slots(self, edges: list[str]) -> int:
        """Return tau_comp of the slowest device."""
        given: int | None = self.options.compute_slots
        if given is not None:
            return given
        return max(
            self.timetable.compute_slots(edge, self.samples[edge], self.steps) or 0
            for edge in edges
        )

    def _just_in_time(self) -> list[list[str]]:
        """Return the groups to start now: those that have waited longest come first.

        A group starts if waiting for the next model would leave an upload slot without a sender.
        Upload slot i from now on needs i + 1 devices that are ready by then, out of those at work
        and those that wait. The next broadcast comes before all of them. Who waits computes after
        it, who is at work during it, so all slots here count from its end.
        """
        behind = self.timetable.transfer_slots
        waiting = deque(
            group
            for group in ([edge for edge in group if edge in self.samples] for group in self.owed)
            if group
        )
        at_work = [self.free] * len(self._ready()) + [
            max(begun + self._expected(edge) - behind, self.free)
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
        """Return whether a slot loses its sender, or has it later, if all of ``waiting`` wait for
        the next model.
        """
        ready = [self.free + self._expected(edge) for edge in waiting]
        sooner = sorted(at_work + ready)
        later = sorted(at_work + [slot + self.comm_slots for slot in ready])
        return any(
            late > self.turn_slot(place) and soon < late
            for place, (soon, late) in enumerate(zip(sooner, later))
        )

    def _expected(self, edge: str) -> int:
        """Return the slots that the edge will need, with the margin."""
        margin: int = self.options.margin_slots
        return max(self.took.get(edge, (0,))) + margin
