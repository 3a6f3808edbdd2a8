"""None"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from builders import S
from torch import nn
from torch.utils.data import DataLoader
from trainers import ANSWERS, ROWS, FakeTask, finished, half_square, linear_trainer

from edgefl.actor import COORDINATOR, Run, Send
from edgefl.data.dataset import cross_entropy
from edgefl.edges.edge import Edge, Phase
from edgefl.edges.training import (
    STEPS,
    LocalRun,
    Merge,
    Schedule,
    Trainer,
    TrainingPlan,
    tokens_by_step,
    training_failure,
)
from edgefl.jobs import Train
from edgefl.models.workspace import Workspace, initial
from edgefl.protocol.codec import decode_note, encode_note
from edgefl.protocol.messages import (
    MAX_NOTE,
    Acknowledged,
    Assignment,
    Fresh,
    TaskFailed,
)
from edgefl.strategies.asofed import ASOFedOptions, Memory
from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.fedac import CONTROL, Controlled, FedACOptions
from edgefl.strategies.feddyn import Dynamic, FedDynOptions
from edgefl.strategies.moon import Contrast, MoonOptions
from edgefl.streams import Streams
from emulator.compute import Rate


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def start_at(*numbers: float, **task: Any) -> FakeTask:
    return FakeTask({"weights": np.array(numbers, dtype=np.float32)}, **task)


def test_one_step_of_sgd_by_hand() -> None:
    """w = (0, 0, 5): residuals -1 and -2, gradient (-1, -4, 0), step 0.5."""
    rule = LocalRule(None)
    trainer = linear_trainer(TrainingPlan(epochs=1, batch_size=2, learning_rate=0.5))
    run = finished(trainer, rule, start_at(0, 0, 5))
    assert run.weights.tolist() == [0.5, 2.0, 5.0] and run.start.tolist() == [0, 0, 5]
    vectors, numbers = trainer.payload(run, rule)
    assert (
        vectors["weights"].tolist() == [0.5, 2.0, 5.0] and vectors["weights"].ctypes.data % 64 == 0
    )
    assert numbers == {"samples": 2, "steps": 1, "loss": 2.5}
    run.weights.zero_()
    assert vectors["weights"].tolist() == [0.5, 2.0, 5.0], "the payload is a copy"


def test_momentum_and_weight_decay_are_those_of_torch() -> None:
    plan = TrainingPlan(
        epochs=3, batch_size=2, learning_rate=0.125, weight_decay=0.25, momentum=0.5
    )
    run = finished(linear_trainer(plan), LocalRule(None), start_at(0, 0, 5))
    weight = torch.tensor([[0.0, 0.0, 5.0]], requires_grad=True)
    reference = torch.optim.SGD([weight], lr=0.125, weight_decay=0.25, momentum=0.5)
    for _ in range(3):
        reference.zero_grad()
        half_square(ROWS @ weight.T, ANSWERS).backward()
        reference.step()
    torch.testing.assert_close(run.weights, weight.detach()[0])


def test_the_last_batch_of_an_epoch_is_kept_and_samples_are_counted() -> None:
    rows = torch.eye(3).repeat(3, 1)[:7]
    trainer = linear_trainer(
        TrainingPlan(epochs=3, batch_size=3, learning_rate=0.0), rows, torch.zeros(7, 1)
    )
    rule = LocalRule(None)
    run = trainer.begin(start_at(0, 0, 0), rule, {})
    assert (run.steps, run.steps_per_epoch) == (9, 3)
    assert [run.samples_at(step) for step in range(10)] == [0, 3, 6, 7, 10, 13, 14, 17, 20, 21]
    assert sorted(run.order[:7].tolist()) == sorted(run.order[7:14].tolist()) == list(range(7))
    assert run.order[:7].tolist() != run.order[7:14].tolist(), "a new permutation each epoch"
    trainer.advance(run, rule, until_step=4)
    assert run.samples == 10 and run.samples_until(6) == 4


def test_a_last_batch_that_is_smaller_may_be_left_out() -> None:
    """Seven samples in batches of three: passes of 3 and 3; the seventh sample is left out."""
    rows = torch.eye(3).repeat(3, 1)[:7]
    plan = TrainingPlan(epochs=2, batch_size=3, learning_rate=0.0, drop_last=True)
    run = linear_trainer(plan, rows, torch.zeros(7, 1)).begin(
        start_at(0, 0, 0), LocalRule(None), {}
    )
    assert (run.steps, run.steps_per_epoch, plan.task_samples(7)) == (4, 2, 12)
    assert [run.samples_at(step) for step in range(5)] == [0, 3, 6, 9, 12]
    passes = run.order[:6].tolist(), run.order[6:].tolist()
    assert all(len(set(each)) == 6 for each in passes) and set(passes[0]) != set(passes[1])
    kept = TrainingPlan(epochs=2, batch_size=3, learning_rate=0.0)
    whole = linear_trainer(kept, rows, torch.zeros(7, 1)).begin(
        start_at(0, 0, 0), LocalRule(None), {}
    )
    assert whole.order[:6].tolist() == passes[0], "the same order of samples as without it"


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_batches_of_a_pass_are_those_of_torchs_data_loader(drop_last: bool) -> None:
    """But for fewer samples than a batch, where it would train on nothing."""
    for samples in range(1, 23):
        plan = TrainingPlan(1, 5, 0.0, drop_last=drop_last)
        loader = DataLoader(range(samples), batch_size=5, shuffle=True, drop_last=drop_last)
        sizes = [len(batch) for batch in loader] or [samples]
        run = linear_trainer(plan, torch.zeros(samples, 3), torch.zeros(samples, 1)).begin(
            start_at(0, 0, 0), LocalRule(None), {}
        )
        ends = [run.samples_at(step) for step in range(run.steps + 1)]
        assert np.diff(ends).tolist() == sizes and run.steps_per_epoch == len(sizes)


def test_an_extra_loss_is_added_but_not_reported() -> None:
    class Extra(LocalRule):
        def extra_loss(
            self, run: LocalRun, batch: tuple, output: torch.Tensor, forward: Callable
        ) -> torch.Tensor:
            assert (
                forward(run.start, batch[0]).tolist()
                == forward(run.start.numpy(), batch[0]).tolist()
            )
            return 2 * output.sum()  # gradient 2 * (1, 2, 0)

    trainer = linear_trainer(TrainingPlan(epochs=1, batch_size=2, learning_rate=0.5))
    run = finished(trainer, Extra(None), start_at(0, 0, 5))
    assert (
        run.weights.tolist() == [-0.5, 0.0, 5.0]
        and trainer.payload(run, Extra(None))[1]["loss"] == 2.5
    )


def test_a_rule_that_does_not_move_sends_one_gradient() -> None:
    class Gradient(LocalRule):
        moves = False

        def payload(self, run: LocalRun) -> tuple[dict, dict]:
            return {"gradient": run.gradient.numpy()}, {"kind": 7.0}

    trainer = linear_trainer(TrainingPlan(epochs=5, batch_size=2, learning_rate=0.5))
    run = finished(trainer, Gradient(None), start_at(0, 0, 5))
    finished(trainer, LocalRule(None), start_at(9, 9, 9))  # on the same workspace
    assert run.weights.tolist() == [0, 0, 5] and run.samples == 2
    vectors, numbers = trainer.payload(run, Gradient(None))
    assert vectors["gradient"].tolist() == [-1, -4, 0] and numbers == {
        "kind": 7.0,
        "samples": 2,
        "steps": 1,
        "loss": 2.5,
    }


class RowsOfBatch(LocalRule):
    """Records the rows of its one batch."""

    moves = False

    def extra_loss(self, run: LocalRun, batch: tuple, output: Any, forward: Any) -> None:
        self.rows = batch[0][:, 0].tolist()


@pytest.mark.parametrize("local_samples", [1, 3, 4, 5, 40])
@pytest.mark.slow
def test_a_gradient_is_of_a_whole_batch_drawn_uniformly_from_however_few_samples(
    local_samples: int,
) -> None:
    """Batches of 4, however few samples a device has: so all devices need the same time.

    Over many tasks every sample is drawn equally often; none is drawn again before all were drawn.
    """
    rows = torch.arange(float(local_samples))[:, None].repeat(1, 3)
    plan = TrainingPlan(epochs=1, batch_size=4, learning_rate=0.0)
    trainer = linear_trainer(plan, rows, torch.zeros(local_samples, 1))
    counts = np.zeros(local_samples)
    for number in range(400):
        rule = RowsOfBatch(None)
        run = trainer.begin(start_at(0, 0, 0, number=number), rule, {})
        assert run.steps == 1 and run.samples_until(1) == 4
        trainer.advance(run, rule)
        drawn = np.bincount(np.array(rule.rows, dtype=int), minlength=local_samples)
        assert len(rule.rows) == 4 and drawn.max() - drawn.min() <= 1
        counts += drawn
    expected = 1600 / local_samples
    assert counts == pytest.approx(np.full(local_samples, expected), abs=5 * expected**0.5)


class MergeHalfway(LocalRule):
    def checkpoint(self, run: LocalRun) -> int:
        return run.steps // 2

    def merge(self, run: LocalRun, fresh: np.ndarray, version: int) -> None:
        run.weights.copy_(torch.from_numpy(fresh) * version)


def test_a_fresher_model_is_merged_in_the_middle() -> None:
    trainer = linear_trainer(TrainingPlan(epochs=2, batch_size=2, learning_rate=0.5))
    rule = MergeHalfway(None)
    run = trainer.begin(start_at(0, 0, 5), rule, {})
    assert run.checkpoint == 1
    assert trainer.advance(run, rule, until_step=run.checkpoint) and run.step == 1
    fresh = Fresh(0, 2, {"weights": np.array([0, 1, 1], dtype=np.float32)})
    trainer.merge(run, rule, Merge(1, fresh))  # now (0, 2, 2): gradient (-1, 4, 0)
    assert trainer.advance(run, rule)
    assert run.weights.tolist() == [0.5, 0.0, 2.0]


def restless() -> nn.Module:
    """A model with every kind of state that could leak between runs.

    Statistics, batch counts that matter, random draws.
    """
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(16, 12),
        nn.BatchNorm1d(12, momentum=None),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(12, 3),
    )


def restless_trainer(workspace: Workspace, edge: str) -> Trainer:
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.standard_normal((26, 1, 4, 4), dtype=np.float32))
    targets = torch.from_numpy(rng.integers(0, 3, 26))
    plan = TrainingPlan(epochs=3, batch_size=8, learning_rate=0.1, momentum=0.9)
    return Trainer(workspace, inputs, targets, cross_entropy, plan, Streams(7), edge)


class Curious(LocalRule):
    def extra_loss(
        self, run: LocalRun, batch: tuple, output: torch.Tensor, forward: Callable
    ) -> torch.Tensor:
        return ((output - forward(run.start, batch[0])) ** 2).mean()


@pytest.mark.parametrize("rule", [LocalRule(None), Curious(None)])
def test_slices_in_turn_on_one_workspace_change_no_bit(rule: LocalRule) -> None:
    task = FakeTask({"weights": initial(restless, Streams(7))})
    alone = {
        edge: finished(restless_trainer(Workspace(restless), edge), rule, task)
        for edge in ("a", "b", "c")
    }
    shared = Workspace(restless)
    trainers = {edge: restless_trainer(shared, edge) for edge in alone}
    runs = {edge: trainer.begin(task, rule, {}) for edge, trainer in trainers.items()}
    torch.manual_seed(99)
    outside = torch.get_rng_state()
    unfinished = dict(runs)
    while unfinished:
        for edge, run in list(unfinished.items()):
            trainers["a"].forward(task.vectors["weights"], trainers["a"].inputs)
            if trainers[edge].advance(run, rule, deadline=lambda: True):
                del unfinished[edge]
    assert torch.equal(outside, torch.get_rng_state()), "the global generator is somebody else's"
    for edge, run in runs.items():
        assert run.step == run.steps == 12 and run.loss_sum == alone[edge].loss_sum
        assert run.weights.numpy().tobytes() == alone[edge].weights.numpy().tobytes()
    assert len({run.weights.numpy().tobytes() for run in runs.values()}) == 3


# ------------------------------------------------------------------ adamW, state that stays on the
ADAMW = TrainingPlan(1, 2, 0.5, optimizer="adamw", epsilon=1e-8)


def start_at_optimizers(*numbers: float, **task: Any) -> FakeTask:
    return FakeTask({"weights": np.array(numbers, dtype=np.float32)}, **task)


def torch_adamw(steps: int, start: list[float], **options: Any) -> torch.Tensor:
    weight = torch.tensor([start], requires_grad=True)
    reference = torch.optim.AdamW([weight], **options)
    for _ in range(steps):
        reference.zero_grad()
        half_square(ROWS @ weight.T, ANSWERS).backward()
        reference.step()
    return weight.detach()[0]


def test_adamw_is_that_of_torch() -> None:
    plan = replace(ADAMW, epochs=7, weight_decay=0.1, beta1=0.8, beta2=0.95, epsilon=1e-6)
    run = finished(linear_trainer(plan), LocalRule(None), start_at_optimizers(0, 0, 5))
    options = {"lr": 0.5, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}
    torch.testing.assert_close(run.weights, torch_adamw(7, [0.0, 0.0, 5.0], **options))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_two_tasks_with_kept_state_are_one_long_task(optimizer: Any) -> None:
    kept = TrainingPlan(2, 2, 0.1, optimizer=optimizer, keeps_state=True)
    kept = kept if optimizer == "adamw" else replace(kept, momentum=0.5)
    rule, trainer = LocalRule(None), linear_trainer(kept)
    first = finished(trainer, rule, start_at_optimizers(0, 0, 5))
    memory = trainer.remembered(first, rule)
    middle = start_at_optimizers(*first.weights.tolist(), number=2)
    second = finished(trainer, rule, middle, memory)
    whole = finished(linear_trainer(replace(kept, epochs=4)), rule, start_at_optimizers(0, 0, 5))
    assert second.weights.tolist() == whole.weights.tolist()
    assert memory[STEPS].tolist() == [2.0]
    fresh = finished(linear_trainer(replace(kept, keeps_state=False)), rule, middle, memory)
    assert fresh.weights.tolist() != whole.weights.tolist(), "the state would have no effect"


# ------------------------------------------------------------------ micro-batches
class Ignoring(nn.Module):
    """Logits of 3 words at 4 positions, from 2 inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 12)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.inner(inputs).view(len(inputs), 4, 3)


def over_positions(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return cross_entropy(outputs.flatten(0, 1), targets.flatten())


def test_micro_batches_have_the_gradient_of_the_batch_with_ignored_positions() -> None:
    torch.manual_seed(3)
    inputs, targets = torch.randn(6, 2), torch.randint(3, (6, 4))
    targets[0, 1:], targets[1], targets[4, :2] = -100, -100, -100

    def after(size: int | None) -> torch.Tensor:
        plan = TrainingPlan(2, 6, 0.5, micro_batch_size=size)
        trainer = Trainer(
            Workspace(Ignoring),
            inputs,
            targets,
            over_positions,
            plan,
            Streams(1),
            "e1",
            terms=lambda part: int((part != -100).sum()),
        )
        start = np.linspace(-1, 1, trainer.workspace.layout.size, dtype=np.float32)
        run = finished(trainer, LocalRule(None), FakeTask({"weights": start}))
        assert run.step == 2
        return torch.cat([run.weights, torch.tensor([run.loss_sum])])

    torch.testing.assert_close(after(4), after(None))
    torch.testing.assert_close(after(1), after(None))


# ------------------------------------------------------------------ schedules
def test_schedules_by_hand() -> None:
    linear = Schedule("linear", warmup_steps=1, total_steps=5)
    assert [linear.factor(step, 99) for step in range(7)] == [0.5, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    cosine = Schedule("cosine", end_share=0.2)
    assert [round(cosine.factor(step, 4), 6) for step in (0, 2, 4)] == [1.0, 0.6, 0.2]
    assert cosine.factor(1, 4) == pytest.approx(0.2 + 0.8 * (1 + math.sqrt(0.5)) / 2)
    assert [Schedule("constant", 3).factor(step, 4) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


# ------------------------------------------------------------------ the work of steps in tokens: w
LENGTHS = np.array([5, 2, 9, 4, 1])
PLAN = TrainingPlan(epochs=2, batch_size=2, learning_rate=0.1)


def test_tokens_count_with_padding() -> None:
    """Batches of 2, 2 and 1 texts: (5, 2), (9, 4), (1): 10 + 18 + 1 tokens."""
    run = linear_trainer(PLAN, torch.zeros(5, 3), torch.zeros(5, 1), lengths=LENGTHS).begin(
        FakeTask({"weights": np.zeros(3, np.float32)}), LocalRule(None), {}
    )
    assert tokens_by_step(np.array([0, 1, 2, 3, 4, 4, 3, 2, 1, 0]), LENGTHS, run) == [
        0,
        10,
        28,
        29,
        37,
        55,
        60,
    ]


# ------------------------------------------------------------------ an exception of an algorithm,
PLAN_FAILING = TrainingPlan(epochs=3, batch_size=1, learning_rate=0.1)  # 6 steps


class Raises(LocalRule):
    """Asks before step 2, and raises at the hook called ``options``."""

    remembers = ("kept",)

    def _at(self, hook: str, run: Any = None) -> None:
        if hook == self.options and (hook != "adjust" or run.step == 4):
            raise KeyError(f"in {hook}")

    def unpack(self, task: Any, layout: Any) -> np.ndarray:
        self._at("unpack")
        return super().unpack(task, layout)

    def begin(self, run: Any) -> None:
        self._at("begin")

    def adjust(self, run: Any, gradient: Any) -> None:
        self._at("adjust", run)

    def checkpoint(self, run: Any) -> int | None:
        self._at("checkpoint")
        return 2

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        self._at("merge")

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        self._at("payload")
        if self.options == "remembered":
            run.memory["kept"] = object()
        weights: Any = "none" if self.options == "vectors" else run.weights.numpy()
        numbers: dict[str, Any] = {"numbers": {"odd": "none"}, "counted": {"steps": 1.0}}
        return {"weights": weights}, numbers.get(self.options, {})


def task(**numbers: float) -> Assignment:
    return Assignment(7, 0, {"weights": np.zeros(3, np.float32)}, numbers)


def failing(hook: str) -> Edge[LocalRun]:
    return Edge("e1", linear_trainer(PLAN_FAILING), Raises(hook), Rate(1.0))


def carried_out(edge: Edge[LocalRun], outputs: list[Any], now: int = 0) -> tuple[Any, int]:
    """What the edge finally sends to the coordinator, and when; a fresher model arrives at once."""
    while True:
        for out in outputs:
            match out:
                case Run(job=Train() as job):
                    assert out.duration_ns is not None
                    now += out.duration_ns
                    assert edge.trainer.advance(job.run, edge.rule, job.until_step)
                    outputs = edge.job_done(job, None, now)
                case Send(message=message) if type(message).__name__ == "FreshRequest":
                    fresh = Fresh(7, 1, {"weights": np.ones(3, np.float32)})
                    outputs = edge.receive(fresh, now)
                case Send(to=to):
                    assert to == COORDINATOR and len(outputs) == 1
                    return out.message, now


@pytest.mark.parametrize(
    ("hook", "told_s", "where"),
    [
        ("unpack", 2, "before its first step: KeyError: 'in unpack'"),
        ("begin", 2, "before its first step: KeyError: 'in begin'"),
        ("checkpoint", 6, "before its first step: KeyError: 'in checkpoint'"),
        ("adjust", 6, "step 5 of 6, batch of 1 sample: KeyError: 'in adjust'"),
        ("merge", 6, "a fresher model before step 3: KeyError: 'in merge'"),
        ("payload", 6, "its update, after step 6: KeyError: 'in payload'"),
        ("vectors", 6, "its update, after step 6: ValueError: could not convert string"),
        ("numbers", 6, "its update, after step 6: ValueError: could not convert string"),
        ("counted", 6, "its update, after step 6: ValueError: payload returned steps: expected"),
        ("remembered", 6, "what it remembers, after step 6: TypeError"),
    ],
)
def test_a_hook_that_raises_is_a_failed_task(hook: str, told_s: int, where: str) -> None:
    """The failure is reported when the current work would have ended, at the request or at the end.

    A host that trains early and one that trains late report it at the same moment.
    """
    edge = failing(hook)
    told, now = carried_out(edge, edge.receive(task(), 0))
    assert isinstance(told, TaskFailed) and told.task == 7
    assert told.reason.startswith(where) and "Traceback" in told.trace
    assert now == told_s * S
    assert (edge.phase, edge.open_tasks, edge.run) == (Phase.IDLE, [7], None)
    assert edge.unacknowledged == {}
    edge.receive(Acknowledged(7), now)
    assert edge.open_tasks == [] and edge.memory == {}


@pytest.mark.parametrize("number", [0.4, -1.0])
def test_a_task_of_less_than_a_step_is_a_failed_task(number: float) -> None:
    edge = failing("nothing")
    told, _ = carried_out(edge, edge.receive(task(most_steps=number), 0))
    expected = f"task 7 asks for at most {number:g} steps, expected at least 1"
    assert told.reason == f"before its first step: ValueError: {expected}"


class Learns(LocalRule):
    remembers = ("finite", "model")

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        run.memory["finite"], run.memory["model"] = run.start * 0.0, run.weights
        return super().payload(run)


@pytest.mark.parametrize(
    "rule",
    [
        Learns(None),
        Memory(ASOFedOptions()),
        Controlled(FedACOptions()),
        Dynamic(FedDynOptions()),
        Contrast(MoonOptions()),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_a_model_that_became_infinite_leaves_the_memory_as_it_was(rule: LocalRule) -> None:
    """The coordinator acknowledges the update, too, which it then refuses."""
    edge = Edge("e1", linear_trainer(TrainingPlan(1, 2, math.inf)), rule, Rate(1.0))
    edge.memory = {name: np.ones(3, np.float32) for name in rule.remembers}
    weights, numbers = np.zeros(3, np.float32), {"alpha": 0.0, "step_factor": 1.0}
    given = Assignment(7, 0, {"weights": weights, CONTROL: weights.copy()}, numbers)
    sent, now = carried_out(edge, edge.receive(given, 0))
    assert not np.isfinite(sent.vectors["weights"]).all()
    edge.receive(Acknowledged(7), now)
    assert {name: kept.tolist() for name, kept in edge.memory.items()} == {
        name: [1, 1, 1] for name in rule.remembers
    }


@pytest.mark.parametrize("letter", ["x", "é", "\N{PILE OF POO}", "\ud800", "\x1b"])
def test_what_is_told_fits_into_a_note(letter: str) -> None:
    try:
        raise ValueError(letter * 10_000)
    except ValueError as error:
        failure = training_failure(error, "step 1 of 1", "")
    note = TaskFailed(2**62, failure.reason, failure.trace)
    data = encode_note(note)
    assert decode_note(data) == note and len(data) <= MAX_NOTE


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        (None, ()),
        (2, (2,)),
        ((1, 3), (1, 3)),
        (range(1, 6, 2), (1, 3, 5)),
        (np.array([0, 2]), (0, 2)),
        ((3, 3), "checkpoint returned 3, 3: expected steps from 0 on, each later than the one"),
        (-1, "checkpoint returned -1: expected steps from 0 on"),
        (1.5, "'float' object cannot be interpreted as an integer"),
    ],
)
def test_the_steps_before_which_a_rule_asks(steps: Any, found: Any) -> None:
    trainer, rule = linear_trainer(TrainingPlan(4, 2, 0.5)), MergeHalfway(None)
    rule.checkpoint = lambda run: steps
    run = trainer.begin(start_at(0, 0, 5), rule, {})
    if isinstance(found, str):
        assert run.failure is not None and found in run.failure.reason
    else:
        assert run.failure is None and run.checkpoints == found
        assert run.checkpoint == (found[0] if found else None)
