"""The two sides of an algorithm: ``Strategy`` at the server, ``LocalRule`` on the edges.

Neither reads a clock or does I/O.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Generator, Iterable, Mapping, MutableMapping
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import AliasChoices, BaseModel, ConfigDict, field_validator, model_validator
from sortedcontainers.sortedlist import SortedList

from edgefl.errors import UserError
from edgefl.jobs import Job, Result
from edgefl.strategies.base.events_and_decisions import (
    AlarmRang,
    Assign,
    Decision,
    EdgeJoined,
    EdgeLost,
    Evaluated,
    Event,
    Finish,
    FreshRequested,
    JobDone,
    JobFailed,
    Push,
    RunStarted,
    SendFresh,
    TaskClosed,
    UpdateArrived,
    UpdateReady,
)
from edgefl.strategies.selection.random import RandomSelector
from edgefl.strategies.selection.selector import Selection, Selector
from edgefl.streams import Streams
from edgefl.vectors import SMALLEST_RATE, Layout


def owns(rule: LocalRule, hook: str) -> bool:
    """Whether the rule has such a hook of its own."""
    return hook in vars(rule) or getattr(type(rule), hook) is not getattr(LocalRule, hook)


def takes_pushes(rule: LocalRule) -> bool:
    """Whether a run of this rule can take pushed models."""
    return rule.on_push == "restart" or owns(rule, "pushed")


def faded(rate: float, decay: float, version: int) -> str:
    """Why the run ends: the factor ``decay`` of ``training.decay`` makes this rate 0; "": it does
    not.
    """
    if rate * decay < SMALLEST_RATE <= rate:
        return f"training.decay: the learning rate has fallen to 0 at version {version}"
    return ""


class LocalRule:
    """The edge side of an algorithm: what an edge does differently from plain SGD.

    Every member is optional: the default is local SGD, and the edge sends its weights.

    ``run`` is a ``LocalRun`` (edgefl.edges.training): ``run.start`` and ``run.weights`` are flat
    tensors over the whole layout, ``run.parameters`` the number of trainable elements at their
    front, ``run.step`` the steps done, ``run.steps`` the steps planned, ``run.task`` the task with
    its numbers, ``run.layout`` the vectors' layout, ``run.memory`` the dict of vectors that the
    edge keeps between tasks. ``run.weights_array()`` is ``run.weights`` as a numpy array; a rule
    that asks for no tensor needs no torch. On a GPU (``training.device``) all tensors are there:
    ``tensor.numpy(force=True)`` copies one from it, and on the CPU shares its memory.
    """

    # names of vectors kept on the edge between tasks; from a task after which one of them is not
    # finite, none is kept
    remembers: tuple[str, ...] = ()
    # False: one gradient at the received model, and no step. The batch has training.batch_size
    # samples, drawn uniformly, without replacement while the device has enough samples
    moves: bool = True
    # what training does after a request: "wait" for the answer, or "train_on"; then the run may be
    # taken back to the request
    on_request: str = "wait"
    # what a pushed model does to the run: "go_on", as ``pushed`` says, or "restart": the task
    # begins anew from the pushed model, at a step boundary, and its update counts from that
    # version. Then ``begin`` is called again, and ``pushed`` is not
    on_push: str = "go_on"
    # what ``extra_loss`` gets from the model: its "outputs", or its "features": the flat input of
    # its last linear layer
    sees: str = "outputs"
    # emulated compute time of a step, as a multiple of a plain SGD step
    work: float = 1.0

    def __init__(self, options: Any) -> None:
        self.options = options

    def unpack(self, task: Any, layout: Layout) -> np.ndarray:
        """Return the model to start from, over the whole layout, from the received task."""
        weights: np.ndarray = task.vectors["weights"]
        return weights

    def begin(self, run: Any) -> None:
        """Prepare the run. Called once, before the first step."""

    def extra_loss(self, run: Any, batch: tuple[Any, Any], output: Any, forward: Any) -> Any | None:
        """Return a term that is added to the batch loss, or None.

        ``forward(weights, inputs)`` computes ``output`` for another flat vector of weights.
        """
        return None

    @property
    def proximal_weight(self) -> float:
        """mu of a proximal term (mu / 2) ||w - w_start||^2 that is added to the loss.

        Its gradient mu (w - w_start) is added before ``adjust``. Normalisation buffers are not
        pulled.
        """
        return 0.0

    def adjust(self, run: Any, gradient: Any) -> None:
        """Change the flat gradient (trainable elements only) in place before the step."""

    def checkpoint(self, run: Any) -> int | Iterable[int] | None:
        """Return the step before which to ask for a fresher global model, or several; None: never.

        Called once, after ``begin``. Of several steps each is later than the one before. With
        ``on_request = "train_on"``, a step that comes while a request is open is passed over.
        """
        return None

    def asks(self, run: Any) -> bool:
        """Whether to ask for a fresher global model now: called at each boundary of two steps.

        It takes the place of ``checkpoint``. It costs time: such a run is trained step by step, not
        in one piece, and under the virtual clock each step waits for the one before it.
        """
        return False

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        """Merge a fresher global model (flat, version > the task's) into ``run.weights``, in place.

        ``run.probe(weights)`` returns the loss of the next batch at other weights, and its gradient
        (trainable elements).
        """

    def pushed(
        self, run: Any, model: np.ndarray, version: int, numbers: Mapping[str, float]
    ) -> None:
        """Take a model that the server has pushed: merge it into ``run.weights`` in place, replace
        them by it, or ignore it.

        Called at the first step boundary at or after its arrival, if a step follows; while the run
        waits for an answer, at once. ``model``: flat, over the whole layout, as ``unpack`` makes
        it. ``run.pushed`` has all vectors of the Push, and ``run.probe`` is as in ``merge``. What
        the rule counts belongs into ``run.memory``: the run may be taken back to an earlier step.
        A strategy whose rule has no such hook may not push.
        """

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Return what the edge sends: named float32 vectors and named numbers.

        The edge adds samples, steps, loss and pushes to the numbers: other names are the rule's.
        """
        return {"weights": run.weights_array()}, {}


# After so many rounds in a row without a delivery (or as many tasks as these rounds have) the run
# ends. An example is a learning rate that makes every model infinite.
MOST_FAILED = 100


class ProximalRule(LocalRule):
    """g <- g + mu (w - w_start): the gradient of the proximal term (mu/2) ||w - w_start||^2."""

    @property
    def proximal_weight(self) -> float:
        weight: float = self.options.mu
        return weight


class _NotedKeys(UserDict[str, int]):
    """A dict that notes in ``touched`` which keys were set or removed since that was emptied."""

    def __init__(self, given: Mapping[str, int] | None = None) -> None:
        self.touched: set[str] = set()
        super().__init__(given)

    def __setitem__(self, key: str, value: int) -> None:
        self.touched.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.touched.add(key)

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]  # as dict has it
        self.update(other)
        return self


class StrategyOptions(BaseModel):
    """Base of all strategy options: immutable; unknown keys are errors.

    A renamed option also accepts its old name, with a warning: ``Field(..., validation_alias=
    AliasChoices("new", "old"))``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def old_keys(cls) -> dict[str, str]:
        """Map the old names of options to the current ones."""
        return {
            key: name
            for name, field in cls.model_fields.items()
            if isinstance(field.validation_alias, AliasChoices)
            for key in field.validation_alias.choices
            if isinstance(key, str) and key != name
        }

    @model_validator(mode="before")
    @classmethod
    def _one_key_per_option(cls, given: Any) -> Any:
        for old, name in cls.old_keys().items():
            if isinstance(given, Mapping) and old in given and name in given:
                raise ValueError(
                    f"{old} is the old name of {name}: expected {name} alone, found both"
                )
        return given


class SelectingOptions(StrategyOptions):
    """Base of the options of a strategy that calls ``select``."""

    selection: Selection = Selection(name="random")
    """Which of the idle edges get work: the name of a selection, such as `"oldest_first"`, or a
    table with options, such as `{name = "oort", exploration = 0.5}`. It matters only if fewer
    edges work at the same time than there are.
    """

    @field_validator("selection", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, (str, Mapping, Selection)):
            raise ValueError(
                'expected a name, such as "oort", or a table with a name, such as {name = "oort"},'
                f" found {value!r}"
            )
        return {"name": value} if isinstance(value, str) else value


class Strategy:
    """The server side of an algorithm: ``handle(event, now)`` returns decisions.

    This base tracks which edges are connected and which work, and calls one method per event.

    An algorithm selects from ``idle`` and ``running``. A subclass overrides the methods below
    ``handle`` that it needs.
    """

    Options: ClassVar[type[StrategyOptions]] = StrategyOptions
    rule: ClassVar[type[LocalRule]] = LocalRule
    # True: the paper's equations were not available; all listings and tables mark the strategy
    reconstructed: ClassVar[bool] = False
    delivers: ClassVar[str] = "weights"  # the vector that every update has
    # True: the algorithm answers each UpdateReady with a Grant
    schedules_uplink: ClassVar[bool] = False
    # True: on a TDMA channel, transfers use only the slots that its Grant and Assign name
    schedules_slots: ClassVar[bool] = False
    # True: it computes gradients from the steps of plain SGD, (w_start - w_end) / (eta n)
    needs_plain_sgd: ClassVar[bool] = False
    needs_loss: ClassVar[bool] = False  # True: updates without a loss are discarded
    needs_unlabelled: ClassVar[bool] = False  # True: its jobs use the samples of [unlabelled]
    # True: it may decide RunJob, so the hosts keep a worker for jobs
    runs_jobs: ClassVar[bool] = False
    # True: it hears of each evaluation (Evaluated), so the virtual clock waits for the scores
    hears_evaluations: ClassVar[bool] = False
    # options for the number of edges at work at the same time; the number of edges bounds them
    edges_at_work: ClassVar[tuple[str, ...]] = ()
    # attributes that the program sets anew when a run is resumed: not a part of ``state``
    set_anew: ClassVar[tuple[str, ...]] = ("layout", "options", "streams")
    # what selects edges; the program sets the one that ``options.selection`` names
    selector: Selector = RandomSelector()

    def __init__(self, weights: np.ndarray, layout: Layout, options: Any, streams: Streams) -> None:
        self.weights = weights
        self.layout = layout
        self.options = options
        self.streams = streams
        self.version = 0
        self.samples: dict[str, int] = {}  # connected edges -> size of their data
        self.known: dict[str, int] = {}  # all edges that have ever joined -> size of their data
        self.closed_for = ""  # why the latest closed task had no update
        # edges with an open task -> version that they started from
        self.running: MutableMapping[str, int] = _NotedKeys()
        self._idle = SortedList()  # as of the last call of ``_now_idle``
        self._moved: set[str] = set()  # edges that joined or left since then

    @classmethod
    def concurrency(cls, options: Any, edges: int) -> int:
        """Return the largest number of edges that train at once, to check the host's speed."""
        return edges

    @classmethod
    def warnings(cls, options: Any, epochs: int) -> list[str]:
        """Return warnings about these options, to show before a run.

        ``epochs``: passes over an edge's data in one task.
        """
        return []

    @classmethod
    def server_samples(cls, options: Any) -> int:
        """Return the number of training samples that the server needs for its jobs."""
        return 0

    @classmethod
    def submodel_parameters(cls, options: Any, layout: Layout) -> int:
        """Return the number of trainable elements in each sub-model that is sent; 0: not known.

        They come before the sub-model's buffers, and compression packs them alone. With 0,
        sub-models of a model with buffers travel whole.
        """
        return 0

    @classmethod
    def refuses(cls, options: Any, edges: int, medium: str, frames: bool) -> tuple[str, str] | None:
        """Return (key, problem) if these options cannot work in this network, else None.

        ``edges``: number of edges; ``medium``: kind of the medium; ``frames``: whether the medium
        is divided into frames.
        """
        return None

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs: all attributes but those ``set_anew``.

        Values may be numbers, texts, vectors, containers, random generators, and objects of your
        own classes; not open files or torch modules. Override it to leave out an attribute that
        ``__init__`` makes anew, or to save it in another form; then ``restore`` must match.
        """
        return {name: value for name, value in vars(self).items() if name not in self.set_anew}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned. Called on a new strategy before any event."""
        vars(self).update(state)

    @property
    def idle(self) -> list[str]:
        """Connected edges without an open task, sorted, as a new list."""
        return list(self._now_idle())

    def _now_idle(self) -> SortedList:
        """Update and return the idle edges.

        Only edges that joined, left, started or ended are looked at, so that an event costs the
        same with thousands of idle edges and with a few.
        """
        if not isinstance(self.running, _NotedKeys):  # a strategy has set a dict of its own
            self.running = _NotedKeys(self.running)
            self._moved |= self.known.keys()
        for edge in sorted(self._moved | self.running.touched):
            self._idle.discard(edge)
            is_idle = edge in self.samples and edge not in self.running
            if is_idle:
                self._idle.add(edge)
            if self.selector.observes:
                self.selector.moved(edge, is_idle)
        self._moved.clear()
        self.running.touched.clear()
        return self._idle

    def handle(self, event: Event, now: int) -> list[Decision]:
        """Return the decisions for ``event`` at ``now`` (emulated ns)."""
        if not self.selector.observes:
            return self._handled(event, now)
        self.selector.observe(event, self.version, now)
        decisions = self._handled(event, now)
        if isinstance(decisions, list):  # else the coordinator says what is wrong
            self.selector.decided(decisions)
        return decisions

    def _handled(self, event: Event, now: int) -> list[Decision]:
        match event:
            case EdgeJoined():
                self.samples[event.edge] = self.known[event.edge] = event.samples
                self._moved.add(event.edge)
                return self.joined(event, now)
            case RunStarted():
                return self.started(now)
            case EdgeLost():
                self.samples.pop(event.edge, None)
                self._moved.add(event.edge)
                return []
            case TaskClosed():
                self.closed_for = event.reason
                self.running.pop(event.edge, None)
                return self.closed(event, now)
            case UpdateArrived():
                self.running.pop(event.edge, None)
                return self.arrived(event, now)
            case UpdateReady():
                return self.ready(event, now)
            case FreshRequested():
                return self.fresh_requested(event, now)
            case AlarmRang():
                return self.rang(event.name, now)
            case JobDone():
                return self.job_done(event, now)
            case JobFailed():
                return self.job_failed(event, now)
            case Evaluated():
                return self.evaluated(event, now)
        raise TypeError(f"no such event: {event!r}")

    def started(self, now: int) -> list[Decision]:
        """Handle the start: all expected edges have joined."""
        return []

    def joined(self, event: EdgeJoined, now: int) -> list[Decision]:
        """Handle a new edge. Before ``started`` there is nothing to do."""
        return []

    def closed(self, event: TaskClosed, now: int) -> list[Decision]:
        """Handle a task that ended without an update."""
        return []

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        """Handle an update. It is finite and has the right length."""
        return []

    def ready(self, event: UpdateReady, now: int) -> list[Decision]:
        """Handle an edge that asks for the uplink. Called only if ``schedules_uplink``."""
        return []

    def fresh_requested(self, event: FreshRequested, now: int) -> list[Decision]:
        """Answer a request with the newest model, if it is newer than the edge's.

        Called only if the rule has ``checkpoint`` or ``asks``. Without an answer, an edge with
        ``on_request = "wait"`` would wait forever.
        """
        return [
            SendFresh(
                event.edge, event.task, self.weights if self.version > event.base_version else None
            )
        ]

    def hopeless(self, what: str) -> list[Decision]:
        """End the run, because too many tasks in a row had no update."""
        return [Finish(": ".join(part for part in (what, self.closed_for) if part))]

    def rang(self, name: str, now: int) -> list[Decision]:
        """Handle an alarm of this strategy."""
        return []

    def job_done(self, event: JobDone, now: int) -> list[Decision]:
        """Handle the finite result of a job of this strategy."""
        return []

    def job_failed(self, event: JobFailed, now: int) -> list[Decision]:
        """Handle a job of this strategy that has no result."""
        return []

    def evaluated(self, event: Evaluated, now: int) -> list[Decision]:
        """Handle the scores of a model. Called only if ``hears_evaluations``."""
        return []

    def rehearsal(self) -> Generator[tuple[str, Job], Result, None]:
        """Yield one job of each kind with the option that has its emulated cost.

        The caller sends in the result of each job. For `edgefl jobs`.
        """
        yield from ()

    def update_size(self, edge: str, name: str) -> int:
        """Return the number of elements that vector ``name`` of this edge's update must have."""
        return self.layout.size

    def select(self, count: int, trigger: int) -> list[str]:
        """Select at most ``count`` idle edges, as ``options.selection`` says; sorted by id.

        Each ``trigger`` has its own random stream.
        """
        idle = self._now_idle()
        count, stream = min(count, len(idle)), partial(self.streams.rng, "selection", trigger)
        chosen = self.selector.choose(idle, count, stream)
        if not (
            isinstance(chosen, list)
            and len({*chosen}) == len(chosen) <= count
            and all(edge in self.samples and edge not in self.running for edge in chosen)
        ):
            raise UserError(
                f"{type(self.selector).__name__}.choose: expected a list of at most {count}"
                f" different idle edges, found {chosen!r}"
            )
        return sorted(chosen)

    def assign(self, edges: list[str]) -> list[Decision]:
        """Assign the current version to the edges.

        Override it if edges need other vectors, or numbers of their own.
        """
        self.mark_running(edges)
        return [Assign(tuple(edges), {"weights": self.weights})]

    def push(self, edges: list[str]) -> list[Decision]:
        """Push the current version to these edges, all of which have an open task."""
        return [Push(tuple(edges), {"weights": self.weights})] if edges else []

    def mark_running(self, edges: list[str]) -> None:
        """Record that the edges run the current version."""
        for edge in edges:
            self.running[edge] = self.version
