"""Training tasks that are described first (``DeferredRun``) and trained later (``Executor``).

The virtual clock's edges hold descriptions instead of models. The outcome of a task is a pure
function of (strategy, edge, task, the edge's memory, the fresher models merged during training). So
a task can be trained at any real time between its emulated start and end, in any worker, and again
if a worker is lost.

An ``Engine`` trains them; ``InProcessEngine`` does so in this process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from edgefl.clocks.setup.learning import Learning
from edgefl.edges.training import (
    Course,
    LocalRun,
    Merge,
    Trainer,
    TrainingFailure,
    TrainingPlan,
    asks_now,
    set_checkpoints,
)
from edgefl.errors import Bug, UserError
from edgefl.jobs import Evaluate, Train
from edgefl.protocol.messages import Assignment
from edgefl.strategies.base.strategy import LocalRule, owns
from edgefl.vectors import aligned_copy


@dataclass(slots=True, eq=False)
class RunOutcome:
    """What a run sends (vectors, numbers) and what the edge remembers, or why the run failed."""

    vectors: dict[str, np.ndarray] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    remembered: dict[str, np.ndarray] = field(default_factory=dict)
    failure: TrainingFailure | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class DeferredRun(Course):
    """A run without its weights.

    ``step``: the steps done in emulated time. ``outcome`` is set once the run has ended, or before
    that if it was trained together with others.
    """

    index: int  # of the strategy
    edge: str
    kept: Mapping[str, np.ndarray]  # the edge's memory when the run began
    # copies of ``kept`` that the rule reads while it computes its checkpoint
    memory: dict[str, Any] = field(default_factory=dict)
    merges: list[Merge] = field(default_factory=list)
    asks: bool = False  # whether its rule asks for a fresher model at ``step``
    outcome: RunOutcome | None = None

    def end(self, outcome: RunOutcome) -> None:
        """Set the outcome: the run is trained, or it has failed."""
        self.outcome = outcome
        self.failure = self.failure or outcome.failure


class Describer:
    """A trainer that only makes deferred runs: it copies no model and draws no batches."""

    def __init__(
        self,
        index: int,
        edge: str,
        plan: TrainingPlan,
        samples: int,
        tokens: Callable[[Course], Sequence[int]] | None = None,
    ) -> None:
        """``tokens(run)``: the tokens of a run by step, if the device's speed is in tokens."""
        self.index, self.edge, self.plan, self.samples = index, edge, plan, samples
        self.tokens = tokens

    def begin(
        self, task: Assignment, rule: LocalRule, memory: Mapping[str, np.ndarray]
    ) -> DeferredRun:
        """Make a deferred run.

        Of the rule's hooks, only ``checkpoint`` is called. It gets copies, because the real run
        will call it, too.
        """
        names = (*rule.remembers, *self.plan.remembers)
        kept = {name: memory[name] for name in names if name in memory}
        steps = self.plan.steps(task, rule, self.samples)
        run = DeferredRun(
            task=task,
            plan=self.plan,
            local_samples=self.samples,
            steps=steps,
            whole_batches=not rule.moves,
            index=self.index,
            edge=self.edge,
            kept=kept,
        )
        if self.tokens is not None:
            run.tokens = self.tokens(run)
        if owns(rule, "checkpoint"):
            if kept:
                from edgefl.models.workspace import wrap  # a rule that remembers reads tensors

                run.memory = {name: wrap(aligned_copy(vector)) for name, vector in kept.items()}
            set_checkpoints(run, rule)
            run.memory = {}
        return run

    def kept(self, run: DeferredRun) -> DeferredRun:
        """Return the run unchanged: nothing beyond its step has been trained."""
        return run

    def certain(self, run: DeferredRun, kept: DeferredRun) -> DeferredRun:
        return kept

    def merge_at(self, run: DeferredRun, merge: Merge) -> None:
        run.merges.append(merge)

    def asks(self, run: DeferredRun, rule: LocalRule) -> bool:
        return run.asks

    def payload(
        self, run: DeferredRun, rule: LocalRule
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        assert run.outcome is not None
        return run.outcome.vectors, run.outcome.numbers

    def remembered(self, run: DeferredRun, rule: LocalRule) -> dict[str, np.ndarray]:
        assert run.outcome is not None
        return run.outcome.remembered


@dataclass(slots=True, eq=False)
class Stretch:
    """Train a task to step ``until``, with all merges on the way.

    ``task`` None: continue the run from its checkpoint; otherwise train from the task's start.
    """

    index: int
    edge: str
    task: Assignment | None
    kept: Mapping[str, np.ndarray]
    merges: Sequence[Merge]
    until: int


@dataclass(slots=True, eq=False)
class Standing:
    """A run with its rule and trainer. ``merged``: how many models were merged into it."""

    run: LocalRun
    rule: LocalRule
    trainer: Trainer
    merged: int = 0


class Executor:
    """Runs stretches and jobs one after the other. Each worker of an engine has one.

    It has its process's data and model, and the runs that have stopped at a checkpoint.
    """

    def __init__(self, learned: Learning) -> None:
        self.learned = learned
        self._standing: dict[Any, Standing] = {}
        self._trainers: dict[str, Trainer] = {}  # by edge; they keep nothing between tasks
        self._untrained = learned.experiment.training.trainer == "none"
        self._only_sends: dict[int, bool] = {}  # by strategy: see ``only_sends``

    def begin(self, stretch: Stretch) -> Standing:
        """Begin a stretch's task, with a rule of its own."""
        assert stretch.task is not None
        edge, learned = stretch.edge, self.learned
        learned.place()
        trainer = self._trainers.get(edge)
        if trainer is None:
            trainer = self._trainers[edge] = learned.trainer(edge)
        rule = learned.rule(stretch.index)
        return Standing(trainer.begin(stretch.task, rule, stretch.kept), rule, trainer)

    def train(
        self, key: Any, stretch: Stretch, given_up: Callable[[], bool] | None = None
    ) -> RunOutcome | bool | None:
        """Train a stretch, and return the outcome, which may be a failure.

        If the run has stopped before its end (kept under ``key``), whether its rule ``asks`` there.
        None if ``given_up()``, called after each step, returns True.
        """
        if self._untrained and (outcome := self._returned(stretch)) is not None:
            return outcome
        standing = self._standing.pop(key, None) if stretch.task is None else self.begin(stretch)
        assert standing is not None, "this worker does not have the run"
        run, rule, trainer = standing.run, standing.rule, standing.trainer
        for merge in stretch.merges[standing.merged :]:
            if not trainer.advance(run, rule, merge.step, given_up):
                return None
            trainer.merge(run, rule, merge)
            standing.merged += 1
        if not trainer.advance(run, rule, stretch.until, given_up):
            return None
        if run.step < run.steps and run.failure is None:
            asks = owns(rule, "asks") and asks_now(run, rule)
            if run.failure is None:
                self._standing[key] = standing
                return asks
        return ended(standing)

    def _returned(self, stretch: Stretch) -> RunOutcome | None:
        """The outcome of an untrained task that returns its model; None: its rule does more."""
        learned, index = self.learned, stretch.index
        if index not in self._only_sends:
            self._only_sends[index] = only_sends(learned.rule(index)) and not learned.plan.remembers
        if stretch.task is None or not self._only_sends[index]:
            return None
        model = stretch.task.vectors["weights"]
        if model.size != learned.layout.size or model.dtype != np.float32:
            return None
        samples, steps = float(learned.samples[stretch.edge]), float(stretch.until)
        numbers = {"samples": samples, "steps": steps, "loss": 0.0}
        return RunOutcome({"weights": aligned_copy(model)}, numbers)

    def forget(self, key: Any) -> None:
        """Drop the run that is kept under ``key``."""
        self._standing.pop(key, None)

    def do(self, job: Any) -> Any:
        """Do any other job: ``job.work(learned)``, or an evaluation, which returns its scores and
        the seconds that it took.
        """
        self.learned.place()
        try:
            if isinstance(job, Evaluate):
                began_s = time.monotonic()
                return self.learned.evaluate(job), time.monotonic() - began_s
            return job.work(self.learned)
        except (UserError, Bug, KeyboardInterrupt):
            raise
        except BaseException as error:  # also SystemExit
            raise Bug(f"a worker failed at a job ({type(job).__name__})", []) from error

    def warm_up(self) -> None:
        """Train one step, so that torch is set up before workers are forked.

        Also draw the sample for the train loss, so that the workers share it. With a GPU each
        worker sets up its own torch: CUDA does not survive a fork.
        """
        if self.learned.compiled is None:
            self.learned.union()
        if not self.learned.on_cpu():
            return
        self.learned.load_before_fork()
        edge = next(iter(self.learned.shards))
        trainer, rule = self.learned.trainer(edge), LocalRule(None)
        trainer.advance(
            trainer.begin(Assignment(0, 0, {"weights": self.learned.initial_weights()}), rule, {}),
            rule,
            1,
        )


def only_sends(rule: LocalRule) -> bool:
    """Whether a rule sends the model without training as it was received."""
    hooks = ("unpack", "begin", "checkpoint", "asks", "merge", "pushed", "payload")
    return rule.moves and not rule.remembers and not any(owns(rule, hook) for hook in hooks)


def ended(standing: Standing) -> RunOutcome:
    """Return the outcome of a run that has done its last step, or has failed."""
    run, rule, trainer = standing.run, standing.rule, standing.trainer
    outcome = RunOutcome(*trainer.payload(run, rule), trainer.remembered(run, rule))
    return outcome if run.failure is None else RunOutcome(failure=run.failure)


A_TASK_FAILED = "a task of the group failed"


class GroupCounts:
    """The counts of one run, and of its part before it was broken off.

    ``together``: groups whose steps were merged, by their number of tasks. ``one_by_one``: groups
    that were trained again task by task, because their merged steps failed; by reason.
    """

    def __init__(self) -> None:
        self.begin(lambda line: None)

    def begin(self, say: Callable[[str], None], so_far: Mapping[str, Any] | None = None) -> None:
        """Count a run from here on. ``say`` gets a line about its first failure of merged steps.

        ``so_far``: the section of the run before it was broken off.
        """
        before = so_far or {}
        self._say, self._told = say, False
        self.together = Counter({int(n): count for n, count in before.get("together", {}).items()})
        self.one_by_one = Counter(before.get("one_by_one", {}))

    def failed(self, reason: str, line: str) -> None:
        """Count a group whose merged steps failed; ``line`` tells it.

        A failed task tells its own reason, so it is counted only.
        """
        self.one_by_one[reason] += 1
        if reason != A_TASK_FAILED and not self._told:
            self._told = True
            self._say(line)

    def section(self) -> dict[str, Any]:
        """Return the section of summary.json, plain JSON."""
        return {
            "together": {str(tasks): count for tasks, count in sorted(self.together.items())},
            "one_by_one": dict(sorted(self.one_by_one.items())),
        }


# ---------------------------------------------------------------------- engines
class Engine(Protocol):
    """Does jobs at some real time between ``start`` and ``finish``.

    Results depend only on the jobs, not on the engine, the workers or the order. A ``Train``
    advances ``job.run`` (a DeferredRun) to ``until_step``, or the run fails. Other jobs return a
    result.
    """

    workers: int
    note: str | None
    """A line for the user if something differs from the request."""
    groups: GroupCounts | None
    """How tasks were trained together; None: this engine trains each alone."""

    @property
    def busy(self) -> int:
        """How many workers work now."""
        ...

    def start(self, job: Any, due_ns: int) -> None:
        """Announce a job whose result is due at ``due_ns`` (emulated).

        A new Train of a run replaces one that was not finished.
        """
        ...

    def ready(self, job: Any) -> bool:
        """Whether ``finish`` would return at once."""
        ...

    def finish(self, job: Any) -> Any:
        """Wait for the result and return it; start the job if needed.

        Raises the error that the job raised.
        """
        ...

    def drop(self, run: DeferredRun) -> None:
        """Forget this run."""
        ...

    def clear(self) -> None:
        """Forget all started jobs."""
        ...


class InProcessEngine:
    """Trains in this process, and only when the result is due.

    So cancelled runs cost nothing, and only one run at a time has weights. For
    ``training.tasks_at_once`` there is ``merged.MergedEngine``.
    """

    workers = 1
    busy = 1
    groups: GroupCounts | None = None

    def __init__(self, learned: Learning, note: str | None = None) -> None:
        self.note = note
        self._executor = Executor(learned)
        self._standing: set[DeferredRun] = set()

    def start(self, job: Any, due_ns: int) -> None:
        pass

    def ready(self, job: Any) -> bool:
        return True

    def finish(self, job: Any) -> Any:
        if not isinstance(job, Train):
            return self._executor.do(job)
        run: DeferredRun = job.run
        stretch = Stretch(
            run.index,
            run.edge,
            None if run in self._standing else run.task,
            run.kept,
            run.merges,
            job.until_step,
        )
        outcome = self._executor.train(run, stretch)
        assert outcome is not None, "nothing gives it up"
        run.step = job.until_step
        if isinstance(outcome, bool):
            run.asks = outcome
            self._standing.add(run)
        else:
            run.end(outcome)
            self._standing.discard(run)
        return None

    def drop(self, run: DeferredRun) -> None:
        self._standing.discard(run)
        self._executor.forget(run)

    def clear(self) -> None:
        for run in list(self._standing):
            self.drop(run)
