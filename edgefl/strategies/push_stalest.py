"""Push to the stalest: FedAsync; devices in training get the new model, as a byte budget allows.

The device with the oldest model comes first.

Age of information: the age of a device's model is the time since its version was made (Kaul,
Yates, Gruteser, "Real-time status: how often should one update?", IEEE INFOCOM 2012). The oldest
one first is the greedy policy of Kadota et al., "Scheduling policies for minimizing age of
information in broadcast wireless networks", IEEE/ACM Transactions on Networking 26(6), 2018, which
has the least mean age where all devices and links are alike.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from pydantic import Field

from edgefl.strategies.base.events_and_decisions import (
    Decision,
    Publish,
    SetAlarm,
    UpdateArrived,
)
from edgefl.strategies.dissemination.pushed import Pushing, PushingOptions
from emulator.units import NS_PER_S, to_ns

ALARM = "push"


class PushStalestOptions(PushingOptions):
    budget_byte_s: int = Field(100_000, ge=1)
    """Downlink bytes per second that pushes may take, all edges together. A push counts as the
    bytes of the model, without compression and headers.
    """
    most_saved_models: float = Field(1.0, ge=1, le=1e9)
    """What is not used is saved, up to the bytes of so many models: the largest burst."""
    least_age_versions: int = Field(1, ge=1)
    """An edge gets no push before its model is so many versions old."""
    least_age_s: float = Field(0.0, ge=0)
    """An edge gets no push before its model is so old: the time since its version was made."""


class PushStalest(Pushing):
    """Tokens b <- min(b + budget dt, depth), from b = 0. At each new version, and whenever b is
    enough again: while b >= model, push the current version to the edge in training with the oldest
    one ; b <- b - model.

    The age of edge k is t - t(v_k), with t(v) the moment of version v, and v_k the newest version
    that was sent to k. Of equally old ones, the first is the edge that
    got its model earliest.
    """

    Options = PushStalestOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tokens = 0  # bytes times NS_PER_S, as of ``counted_ns``
        self.counted_ns = 0
        self.made_ns: dict[int, int] = {0: 0}  # versions that edges in training have -> their time

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        decisions = super().arrived(update, now)
        if not any(isinstance(decision, Publish) for decision in decisions):
            return decisions
        in_use = {*self.training.values()}
        self.made_ns = {v: at_ns for v, at_ns in self.made_ns.items() if v in in_use}
        self.made_ns[self.version] = now
        return [*decisions, *self._spend(now)]

    def rang(self, name: str, now: int) -> list[Decision]:
        return self._spend(now) if name == ALARM else super().rang(name, now)

    def _spend(self, now: int) -> list[Decision]:
        """Push as far as the tokens go; set an alarm for the next push that can be foreseen."""
        options, model = self.options, self.weights.nbytes * NS_PER_S
        earned = (now - self.counted_ns) * options.budget_byte_s
        self.tokens = min(self.tokens + earned, int(options.most_saved_models * model))
        self.counted_ns = now
        old = [
            (self.made_ns[self.training[edge]] + to_ns(options.least_age_s), edge)
            for edge in self.behind()
            if self.version - self.training[edge] >= options.least_age_versions
        ]
        old.sort(key=itemgetter(0))  # equals stay in their order
        ripe = sum(from_ns <= now for from_ns, _ in old)
        count = min(ripe, self.tokens // model)
        self.tokens -= count * model
        decisions = self.push([edge for _, edge in old[:count]])
        if count < len(old):
            enough_ns = now + max(0, -((self.tokens - model) // options.budget_byte_s))
            decisions.append(SetAlarm(ALARM, max(enough_ns, old[count][0])))
        return decisions
