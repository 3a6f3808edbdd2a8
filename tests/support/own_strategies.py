"""Strategies for tests only, which experiments name like a user's own code.

For example ``../support/own_strategies.py:Fresher`` from tests/examples.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgefl.strategies.base.events_and_decisions import (
    Cancel,
    Decision,
    FreshRequested,
    Push,
    SendFresh,
    SetAlarm,
    TaskClosed,
    UpdateArrived,
    Urge,
)
from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.fedasync import FedAsync, FedAsyncOptions
from edgefl.strategies.fedavg import FedAvg
from edgefl.strategies.tdma_fl import TdmaFL
from emulator.units import to_ns


class Halfway(LocalRule):
    """A rule that asks for a fresher model in the middle of the run and replaces its own by it."""

    def checkpoint(self, run: Any) -> int:
        return run.steps // 2

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        run.weights.numpy()[:] = fresh

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        return {"weights": run.weights.numpy()}, {"checkpoint": float(self.checkpoint(run))}


class Fresher(FedAsync):
    """FedAsync that answers such requests."""

    rule = Halfway

    def fresh_requested(self, event: FreshRequested, now: int) -> list[Decision]:
        newer = self.weights if self.version > event.base_version else None
        return [SendFresh(event.edge, event.task, newer)]


class GoesOn(Halfway):
    """A rule that continues training while it waits; ``merged_at``: step of the merge, or -1."""

    on_request = "train_on"
    merged_at = -1

    def begin(self, run: Any) -> None:
        self.merged_at = -1

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        super().merge(run, fresh, version)
        self.merged_at = run.step

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        return {"weights": run.weights.numpy()}, {"merged_at": float(self.merged_at)}


class Onwards(Fresher):
    """Fresher whose edges do not wait for the answer."""

    rule = GoesOn


class Later(Onwards):
    """Onwards that answers when the next model is published. Its rule reports no "merged"."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asking: dict[str, FreshRequested] = {}

    def fresh_requested(self, event: FreshRequested, now: int) -> list[Decision]:
        self.asking[event.edge] = event
        return []

    def closed(self, event: TaskClosed, now: int) -> list[Decision]:
        self.asking.pop(event.edge, None)
        return super().closed(event, now)

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        self.asking.pop(update.edge, None)
        return [*super().arrived(update, now), *self.answers()]

    def answers(self) -> list[Decision]:
        asking, self.asking = self.asking, {}
        return [SendFresh(each.edge, each.task, self.weights) for each in asking.values()]


class SaysMerged(GoesOn):
    """A rule that says that it has always merged."""

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        vectors, numbers = super().payload(run)
        return vectors, numbers | {"merged": 1.0}


class Talkative(Later):
    """Later that answers each request twice, and whose rule reports what is false."""

    rule = SaysMerged

    def answers(self) -> list[Decision]:
        return [answer for answer in super().answers() for _ in range(2)]


class HalfPushed(LocalRule):
    """A rule that takes the mean of its own model and a pushed one."""

    def pushed(self, run: Any, model: np.ndarray, version: int, numbers: Any) -> None:
        own = run.weights.numpy()
        own[:] = numbers.get("keep", 0.5) * own + (1 - numbers.get("keep", 0.5)) * model


class RestartPushed(LocalRule):
    on_push = "restart"


class AskingPushed(HalfPushed):
    """It asks before steps 1 and 3, too, and waits."""

    def checkpoint(self, run: Any) -> tuple[int, ...]:
        return (1, 3)

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        run.weights.numpy()[:] = fresh


class RestlessPushed(AskingPushed):
    on_request = "train_on"


class RestartAsking(AskingPushed):
    on_push = "restart"


class RestartRestless(RestlessPushed):
    on_push = "restart"


class WonderingPushed(AskingPushed):
    """It asks where the sign of a weight has changed since the last time."""

    def begin(self, run: Any) -> None:
        self.start = run.start.numpy().copy()

    def asks(self, run: Any) -> bool:
        return bool(run.weights[0] < self.start[0])


class WonderingRestless(WonderingPushed):
    on_request = "train_on"


class PusherOptions(FedAsyncOptions):
    push_s: float = 0.35
    times: int = 1  # pushes at one moment
    replaces: bool = True
    keep: float = 0.5  # 0: not sent


class Pusher(FedAsync):
    """FedAsync that pushes the current model every ``push_s`` to the edges at work that do not
    have it yet.
    """

    Options = PusherOptions
    rule = HalfPushed
    options: PusherOptions

    def started(self, now: int) -> list[Decision]:
        return [*super().started(now), SetAlarm("push", now + to_ns(self.options.push_s))]

    def rang(self, name: str, now: int) -> list[Decision]:
        if name != "push":
            return super().rang(name, now)
        again = SetAlarm("push", now + to_ns(self.options.push_s))
        edges = tuple(edge for edge in sorted(self.running) if self.running[edge] < self.version)
        self.mark_running(list(edges))
        numbers = {"keep": self.options.keep}
        push = Push(edges, {"weights": self.weights}, numbers, replaces=self.options.replaces)
        return [again, *[push] * (self.options.times if edges else 0)]


class RestartPusher(Pusher):
    rule = RestartPushed


class AskingPusher(Pusher):
    rule = AskingPushed


class RestlessPusher(Pusher):
    rule = RestlessPushed


class RestartAskingPusher(Pusher):
    rule = RestartAsking


class RestartRestlessPusher(Pusher):
    rule = RestartRestless


class WonderingPusher(Pusher):
    rule = WonderingPushed


class WonderingRestlessPusher(Pusher):
    rule = WonderingRestless


class HurriedPusher(Pusher):
    """Pusher that urges each edge ``push_s`` after a push."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.urged: set[str] = set()

    def rang(self, name: str, now: int) -> list[Decision]:
        decisions = super().rang(name, now)
        if name == "push":
            decisions = [
                *(Urge(edge) for edge in sorted(self.urged & set(self.running))),
                *decisions,
            ]
            pushes = [each for each in decisions if isinstance(each, Push)]
            self.urged = {edge for push in pushes for edge in push.edges}
        return decisions

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        self.urged.discard(update.edge)
        return super().arrived(update, now)

    def closed(self, event: TaskClosed, now: int) -> list[Decision]:
        self.urged.discard(event.edge)
        return super().closed(event, now)


class SlottedPusher(TdmaFL):
    """TDMA-FL that pushes each new model to all edges that compute, in the slots behind it."""

    rule = HalfPushed

    def _end_round(self, now: int) -> list[Decision]:
        before, decisions = self.version, super()._end_round(now)
        edges = tuple(edge for edge in sorted(self.computing) if self.running[edge] < self.version)
        if self.version == before or not edges:
            return decisions
        first = max(self.timetable.next_at(now), self.free)
        self.free = first + self.timetable.transfer_slots
        slots = tuple(range(first, self.free))
        return [*decisions, Push(edges, {"weights": self.weights}, broadcast=slots)]


class Hasty(FedAsync):
    """FedAsync that cancels task 0 ``period_s`` after the start and gives the edge another."""

    def started(self, now: int) -> list[Decision]:
        return [*super().started(now), SetAlarm("hurry", to_ns(self.options.period_s))]

    def rang(self, name: str, now: int) -> list[Decision]:
        self.running.clear()
        return [Cancel("a", 0), *self._refill()]


class First(FedAsync):
    """FedAsync in which edge a's first delivery cancels b's first task."""

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        if update.task != 0:
            return super().arrived(update, now)
        del self.running["b"]
        return [Cancel("b", 1), *super().arrived(update, now)]


class SendsControl(LocalRule):
    """A rule whose control variate covers the trainable elements, as in SCAFFOLD."""

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        control = run.trainable.numpy().copy()
        return {"weights": run.weights.numpy(), "control": control}, {}


class Control(FedAvg):
    """FedAvg that expects a control variate as long as the model: wrong if it has buffers."""

    rule = SendsControl


class Broken(FedAvg):
    """FedAvg that fails when it makes the second model."""

    def aggregate(self, updates: list[UpdateArrived]) -> np.ndarray:
        if self.version == 1:
            raise ArithmeticError("out of weights")
        return super().aggregate(updates)


class Changed(FedAvg):
    """FedAvg until version 2, then different, as if the file was edited before a replay."""

    def aggregate(self, updates: list[UpdateArrived]) -> np.ndarray:
        weights = super().aggregate(updates)
        return weights if self.version < 2 else weights * np.float32(1.0000001)


class Hooked(FedAsync):
    """It keeps what no checkpoint can hold."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.hook = lambda: None
