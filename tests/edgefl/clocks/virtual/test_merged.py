"""Steps of several runs in one call of torch: against the formula, and against single runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import torch
from builders import vector
from kills import files_of, killed_run, some, whole_run
from pools import bytes_of, learned_of
from safetensors.numpy import load_file
from torch import nn
from trainers import FakeTask, half_square

from edgefl.clocks.choices import EngineName, Power
from edgefl.clocks.setup.learning import Learning
from edgefl.clocks.virtual.pool.engine import A_TASK_FAILED, InProcessEngine
from edgefl.clocks.virtual.pool.merged import MergedEngine, MergedSteps
from edgefl.clocks.virtual.run import Saving, in_process, run_virtual
from edgefl.clocks.virtual.run_batch import BatchRun, RunBatch, open_pool
from edgefl.data.dataset import cross_entropy
from edgefl.edges.training import LocalRun, Trainer, TrainingPlan
from edgefl.errors import UserError
from edgefl.models.torch_device import CPU, chosen, make_repeatable
from edgefl.models.workspace import Workspace
from edgefl.results.read import read_csv, read_events
from edgefl.strategies.base.strategy import LocalRule
from edgefl.streams import Streams

NO_CUDA = "this torch finds no GPU"
RNG = np.random.Generator(np.random.PCG64(3))
INPUTS = torch.from_numpy(RNG.normal(size=(60, 1, 12, 12)).astype(np.float32))
TARGETS = torch.from_numpy(RNG.integers(0, 3, 60))
# rows of the samples: whole batches and smaller last ones of 3, 2 and 3 samples; less than a batch
MEMBERS = [np.arange(*ends) for ends in ((0, 19), (19, 37), (10, 29), (40, 45), (0, 24))]


class Pull(LocalRule):
    """g <- g + 0.1 (w - w_start)."""

    def adjust(self, run: Any, gradient: Any) -> None:
        gradient.add_(run.weights[: run.parameters] - run.start[: run.parameters], alpha=0.1)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As ``learning`` sets it: threads of small tensors wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(100, 3)
    )


def trainers(
    space: Workspace, plan: TrainingPlan, device: torch.device, members: list[np.ndarray]
) -> list[Trainer]:
    space.to(device)
    samples = INPUTS.to(device), TARGETS.to(device)
    return [
        Trainer(space, *samples, cross_entropy, plan, Streams(1), f"e{number}", rows)
        for number, rows in enumerate(members)
    ]


def begun(
    of: list[Trainer], rule: LocalRule, numbers: list[dict[str, float]] | None = None
) -> list[LocalRun]:
    size = of[0].workspace.layout.size
    return [
        trainer.begin(
            FakeTask(
                {"weights": np.linspace(-0.2, 0.1 * (number + 1), size, dtype=np.float32)},
                numbers=numbers[number] if numbers else {},
            ),
            rule,
            {},
        )
        for number, trainer in enumerate(of)
    ]


def merged_and_single(
    plan: TrainingPlan, rule: LocalRule, device: torch.device = CPU, **more: Any
) -> tuple[list[LocalRun], list[LocalRun]]:
    of = trainers(Workspace(convolutions), plan, device, more.pop("members", MEMBERS))
    together, alone = begun(of, rule, **more), begun(of, rule, **more)
    MergedSteps(of[0].workspace, cross_entropy).train(of[0], together, [rule] * len(of))
    for trainer, run in zip(of, alone):
        assert trainer.advance(run, rule) and run.failure is None
    return together, alone


def assert_close(together: list[LocalRun], alone: list[LocalRun]) -> None:
    for merged, single in zip(together, alone):
        apart, moved = merged.weights - single.weights, single.weights - single.start
        assert float(apart.norm()) <= 1e-4 * float(moved.norm()) > 0
        assert (merged.step, merged.optimizer.steps) == (single.step, single.optimizer.steps)
        assert merged.loss_sum == pytest.approx(single.loss_sum, rel=1e-4)
        assert torch.equal(merged.trainable, merged.weights[: merged.parameters])


def test_two_linear_models_do_one_step_by_hand() -> None:
    space = Workspace(lambda: nn.Linear(2, 1, bias=False))
    inputs, targets = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[1.0], [2.0]])
    plan = TrainingPlan(1, 1, 0.1, weight_decay=0.5)
    of = [
        Trainer(space, inputs, targets, half_square, plan, Streams(1), "e", np.array([row]))
        for row in (0, 1)
    ]
    starts, rates = [vector(1.0, 1.0), vector(2.0, -1.0)], [0.1, 0.2]
    runs = [
        trainer.begin(
            FakeTask({"weights": start}, numbers={"learning_rate": rate}), LocalRule(None), {}
        )
        for trainer, start, rate in zip(of, starts, rates)
    ]
    MergedSteps(space, half_square).train(of[0], runs, [LocalRule(None)] * 2)
    # w <- w - rate ((w x - y) x + 0.5 w): errors 3 - 1 = 2 and 6 - 2 = 4
    assert runs[0].weights.tolist() == pytest.approx([1 - 0.1 * (2 + 0.5), 1 - 0.1 * (4 + 0.5)])
    assert runs[1].weights.tolist() == pytest.approx([2 - 0.2 * (12 + 1.0), -1 - 0.2 * -0.5])
    assert [run.loss_sum for run in runs] == [2.0, 8.0]
    assert starts[0].tolist() == [1.0, 1.0]  # what was received is unchanged


@pytest.mark.parametrize(
    "plan",
    [
        TrainingPlan(3, 8, 0.1, weight_decay=0.01, momentum=0.9),
        TrainingPlan(2, 8, 0.05, batches_per_epoch=4),
    ],
)
@pytest.mark.parametrize("rule", [LocalRule, Pull])
@pytest.mark.slow
def test_runs_of_all_lengths_and_batch_sizes_end_as_alone(
    plan: TrainingPlan, rule: Callable[[Any], LocalRule]
) -> None:
    together, alone = merged_and_single(plan, rule(None))
    assert len({run.steps for run in alone}) > 1 or plan.batches_per_epoch
    assert_close(together, alone)


def strange_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return outputs.sum() if float(outputs.sum()) > 0 else -outputs.sum()


@pytest.mark.parametrize(
    ("model", "loss", "reason"),
    [
        (convolutions, cross_entropy, None),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 3), nn.Dropout(0.5)), cross_entropy,
         "the model draws random numbers in training"),
        (lambda: nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(144, 3)), cross_entropy,
         "training changes buffers of the model"),
        (lambda: nn.Sequential(nn.GroupNorm(1, 1), nn.Flatten(), nn.Linear(144, 3)), cross_entropy,
         None),
        (convolutions, strange_loss, r"torch.func.vmap cannot merge .*\(RuntimeError: "),
        (lambda: nn.Linear(5, 3), cross_entropy, r"two samples cannot be trained \(RuntimeError"),
    ],
)  # fmt: skip  # a table
def test_models_that_cannot_be_merged_are_found(model: Any, loss: Any, reason: str | None) -> None:
    space, before = Workspace(model), torch.get_rng_state()
    start = torch.linspace(-0.1, 0.1, space.layout.size)
    kept = start.clone()
    found = MergedSteps(space, loss).reason_against(start, (INPUTS, TARGETS))
    assert (found is None) == (reason is None)
    assert reason is None or re.search(reason, str(found))
    assert torch.equal(start, kept) and torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(not torch.cuda.device_count(), reason=NO_CUDA)
def test_a_gpu_merges_the_same_twice_and_close_to_the_cpu() -> None:
    device = chosen("cuda")
    make_repeatable(device)
    plan = TrainingPlan(2, 8, 0.1, momentum=0.5)
    there, again = (merged_and_single(plan, Pull(None), device)[0] for _ in range(2))
    _, here = merged_and_single(plan, Pull(None))
    for merged, repeated, single in zip(there, again, here):
        found, wanted = merged.weights.numpy(force=True), single.weights.numpy()
        assert torch.equal(merged.weights, repeated.weights)
        assert np.linalg.norm(found - wanted) <= 1e-4 * np.linalg.norm(wanted)


# ------------------------------------------------------------------ training.tasks_at_once: runs w
EDGES: dict[str, Any] = {
    "task": None,
    "data": {"name": "digits"},
    "model": {"name": "mlp", "hidden": [8]},
    "partition": {"name": "dirichlet", "alpha": 0.5},
    "edges": {"count": 8},
    "devices": {"samples_per_s": 400.0, "slowest_ratio": 4.0},
    "links": {"up_mbit_s": 1.0, "down_mbit_s": 3.0, "latency_ms": 10.0},
    "stop": {"updates": 16},
    "evaluation": {"every_versions": 3},
}
BUFFERED = {"strategy": "fedbuff", "concurrency": 5, "buffer_size": 3}
ROUNDS = {"strategy": "fedavg", "clients_per_round": 4}
RESNET = {"model": {"name": "resnet20"}, "stop": {"updates": 2}, "edges": {"count": 60}}
OWN = "../support/merged_strategies.py"
MOST = 4


def learned(strategy: dict[str, Any], at_once: int | None = MOST, **more: Any) -> Learning:
    # with tasks_at_once torch trains all tasks, so that is what they are compared with
    training = {"epochs": 2, "batch_size": 16, "engine": "torch", **more.pop("training", {})}
    if at_once is not None:
        training["tasks_at_once"] = at_once
    return learned_of(**{**EDGES, "training": training, "strategies": [strategy], **more})


def played(folder: Path, of: Learning) -> InProcessEngine:
    engine = in_process(of)
    run_virtual(of, 0, folder, None, engine)
    return engine


def merged_groups(engine: InProcessEngine) -> dict[int, int]:
    assert engine.groups is not None
    return dict(engine.groups.together)


def told_groups(folder: Path) -> tuple[dict[str, int], dict[str, int], list[str]]:
    """From summary.json: groups by their tasks, those one by one by reason, and warnings."""
    summary = orjson.loads((folder / "summary.json").read_bytes())
    groups = summary["tasks_at_once"]
    return groups["together"], groups["one_by_one"], summary["warnings"]


def weights(folder: Path) -> np.ndarray:
    tensors = load_file(folder / "model.safetensors")
    return np.concatenate([tensors[name].ravel() for name in sorted(tensors)])


@pytest.mark.parametrize(
    ("strategy", "training"),
    [
        (ROUNDS, {"momentum": 0.5, "optimizer_state": "kept"}),
        (BUFFERED, {"weight_decay": 0.01}),
        ({"strategy": "feddyn", "clients_per_round": 4}, {}),
    ],
    ids=["fedavg", "fedbuff", "feddyn"],
)
@pytest.mark.slow
def test_a_run_is_that_of_tasks_one_by_one(
    tmp_path: Path, strategy: dict[str, Any], training: dict[str, Any]
) -> None:
    played(tmp_path / "alone", learned(strategy, None, training=training))
    engine = played(tmp_path / "merged", learned(strategy, training=training))
    again = played(tmp_path / "again", learned(strategy, training=training))
    assert bytes_of(tmp_path / "merged") == bytes_of(tmp_path / "again")
    groups = merged_groups(engine)
    assert groups == merged_groups(again) and sum(groups.values()) > 1 and max(groups) == MOST
    assert engine.note is None
    together, one_by_one, warned = told_groups(tmp_path / "merged")
    assert {int(tasks): count for tasks, count in together.items()} == groups
    assert not one_by_one and not warned
    assert "tasks_at_once" not in (tmp_path / "alone/summary.json").read_text()
    found, wanted = weights(tmp_path / "merged"), weights(tmp_path / "alone")
    assert np.linalg.norm(found - wanted) <= 1e-4 * np.linalg.norm(wanted)
    # times do not depend on weights: every event and every transfer is at the same moment
    links = [(tmp_path / name / "links.csv").read_bytes() for name in ("alone", "merged")]
    assert links[0] == links[1]
    events = [
        [
            (row["t"], row.get("event"), row.get("fact"), row.get("edge"))
            for row in read_events(tmp_path / name / "events.jsonl")
        ]
        for name in ("alone", "merged")
    ]
    assert events[0] == events[1]
    losses = [
        [float(row["test_loss"]) for row in read_csv(tmp_path / name / "metrics.csv")]
        for name in ("alone", "merged")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize(
    ("strategy", "more", "note"),
    [
        ({"strategy": "moon"}, {}, "moon: its local rule adds a term to the loss"),
        (ROUNDS, RESNET, "all strategies: training changes buffers of the model"),
        (ROUNDS, {"training": {"optimizer": "adamw"}}, 'with training.optimizer = "adamw"'),
    ],
    ids=["moon", "batch-norm", "adamw"],
)
@pytest.mark.slow
def test_what_cannot_be_merged_is_trained_as_before(
    tmp_path: Path, strategy: dict[str, Any], more: dict[str, Any], note: str
) -> None:
    played(tmp_path / "alone", learned(strategy, None, **more))
    engine = played(tmp_path / "merged", learned(strategy, **more))
    assert bytes_of(tmp_path / "merged") == bytes_of(tmp_path / "alone")
    assert not merged_groups(engine)
    told = f"training.tasks_at_once = {MOST}: trained one by one are the tasks of "
    assert engine.note is not None and "\n" not in engine.note
    assert engine.note.startswith(told) and note in engine.note


@pytest.mark.parametrize("name", ["FailingSteps", "FailingBegins"])
@pytest.mark.slow
def test_a_task_that_fails_fails_alone(tmp_path: Path, name: str) -> None:
    failing = {"strategy": f"{OWN}:{name}", "clients_per_round": 4}
    played(tmp_path / "alone", learned(failing, None))
    engine = played(tmp_path / "merged", learned(failing))
    together, one_by_one, warned = told_groups(tmp_path / "merged")
    assert together and merged_groups(engine)
    if name == "FailingSteps":
        assert one_by_one == {A_TASK_FAILED: 1}
        assert A_TASK_FAILED in warned[-1] and "no second step of task 2" in warned[0]
    else:  # the others of its group are trained together
        assert not one_by_one and len(warned) == 1
    failures = [
        [
            row
            for row in read_events(tmp_path / where / "events.jsonl")
            if "training_failed" in row.values()
        ]
        for where in ("alone", "merged")
    ]
    assert len(failures[0]) == 1 and failures[0] == failures[1]
    found, wanted = weights(tmp_path / "merged"), weights(tmp_path / "alone")
    assert np.linalg.norm(found - wanted) <= 1e-4 * np.linalg.norm(wanted)


@pytest.mark.slow
def test_a_rule_that_draws_random_numbers_keeps_its_own(tmp_path: Path) -> None:
    noisy = {"strategy": f"{OWN}:Noisy", "clients_per_round": 4}
    played(tmp_path / "alone", learned(noisy, None))
    engine = played(tmp_path / "merged", learned(noisy))
    assert bytes_of(tmp_path / "merged") == bytes_of(tmp_path / "alone")
    assert not merged_groups(engine)
    (reason,) = told_groups(tmp_path / "merged")[1]
    assert reason == "a local rule draws random numbers"


def break_merged_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> None:
        raise RuntimeError("no merged step\nand more")

    monkeypatch.setattr(MergedSteps, "train", broken)


@pytest.mark.slow
def test_a_group_that_fails_is_trained_one_by_one_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(tmp_path / "alone", learned(BUFFERED, None))
    of = learned(BUFFERED)
    engine = in_process(of)
    break_merged_steps(monkeypatch)
    for name in ("merged", "next"):  # one engine does several runs: each has its own counts
        said: list[str] = []
        run_virtual(of, 0, tmp_path / name, None, engine, saving=Saving(say=said.append))
        assert bytes_of(tmp_path / name) == bytes_of(tmp_path / "alone")
        assert not merged_groups(engine)
        together, one_by_one, warned = told_groups(tmp_path / name)
        assert not together and list(one_by_one) == ["RuntimeError: no merged step"]
        (count,) = one_by_one.values()
        assert count > 1
        (line,) = said  # once, not for each group
        assert "tasks_at_once = 4" in line and "fedbuff" in line and "\n" not in line
        assert "RuntimeError: no merged step" in line and "one by one" in line
        assert warned == [
            f"{count} of {count} groups of tasks (training.tasks_at_once) were trained again"
            " one by one: RuntimeError: no merged step"
        ]


def test_too_little_memory_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(MergedSteps, "train", full)
    with pytest.raises(UserError, match=r"tasks_at_once = 4: 4 tasks together need more memory"):
        played(tmp_path / "run", learned(ROUNDS))


def mark_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each task's weights tell with which others it was trained."""
    real = MergedSteps.train

    def train(steps: Any, trainer: Any, runs: Sequence[LocalRun], rules: Any) -> None:
        real(steps, trainer, runs, rules)
        for place, run in enumerate(runs):
            run.weights[0] += 1e-3 * place + 1e-5 * sum(other.task.number for other in runs)

    monkeypatch.setattr(MergedSteps, "train", train)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups do not change: what was trained ahead of its moment is part of the checkpoint."""
    mark_groups(monkeypatch)
    of = learned(BUFFERED)
    steps = whole_run(of, tmp_path / "whole")
    killed_run(of, tmp_path / "killed", some(range(4, steps + 1), 8), 3)
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "whole")


def test_it_needs_one_worker(tmp_path: Path) -> None:
    of, workers, engine, found = learned(ROUNDS), 2, EngineName.local, "--workers 2"
    wanted = re.escape("training.tasks_at_once = 4: expected only with one worker")
    with pytest.raises(UserError, match=f"{wanted}.*{found}"), open_pool(of, workers, engine.value):
        pass
    batch = RunBatch(
        [BatchRun(of.experiment, 0, tmp_path / "run", lambda: of)],
        Power(workers, engine),
        None,  # type: ignore[arg-type]  # it says nothing before the check
    )
    with pytest.raises(UserError, match=f"{wanted}.*{found}"):
        batch.run()
    with open_pool(of, 1) as pool:
        assert isinstance(pool, MergedEngine)
