"""Build the parts of an experiment that need torch: data, task and model, trainers, evaluation."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from edgefl.catalog import called, find, load_dotted, own_code
from edgefl.clocks.setup.network import (
    DeviceMaker,
    devices,
    in_tokens,
    interruptions,
    task_jitters,
    training_plan,
)
from edgefl.clocks.setup.plan import options, packing
from edgefl.compiled.network import Unsuited, first_weights, network_of
from edgefl.config.experiment import Experiment
from edgefl.config.faults import slowed
from edgefl.config.file import kind_of
from edgefl.data import edge_data as material
from edgefl.data import encoding
from edgefl.data.dataset import Dataset, NormalisedRows, Task, check_finite, data_dir
from edgefl.data.edge_data import unlabelled
from edgefl.data.encoding import TOKENIZER_FILES
from edgefl.data.words import FILE as VOCABULARY
from edgefl.edges.edge import Edge, TrainerLike
from edgefl.edges.training import (
    Compiled,
    Course,
    NullTrainer,
    Trainer,
    TrainingPlan,
    sample_order,
    tokens_by_step,
)
from edgefl.errors import UserError
from edgefl.jobs import Evaluate, Scores, check_server_samples
from edgefl.models.pretrained_options import PretrainedOptions
from edgefl.strategies.base.strategy import LocalRule, Strategy, StrategyOptions
from edgefl.streams import Streams
from edgefl.vectors import Layout
from emulator.compute import Device

if TYPE_CHECKING:
    import torch

    from edgefl.compiled.step import CompiledStep
    from edgefl.models.workspace import Workspace

import csv
from typing import TYPE_CHECKING

from edgefl.record.files import EDGES
from emulator.compute import Drawn

if TYPE_CHECKING:
    import torch


class EdgeShares(Mapping[str, np.ndarray]):
    """Edge id -> indices of its training samples, in the order of the edges, as one array.

    100,000 arrays of two samples each would take more memory and time than their samples.

    ``indices``: those of all edges, one after the other. A share is a view of it.
    """

    def __init__(self, shares: Mapping[str, np.ndarray]) -> None:
        self._places = {edge: place for place, edge in enumerate(shares)}
        sizes = np.fromiter(map(len, shares.values()), np.int64, len(shares))
        self.indices = np.concatenate(list(shares.values())) if shares else np.zeros(0, np.int64)
        self._ends = np.cumsum(sizes)
        # by edge: how many samples; do not change it
        self.sizes: dict[str, int] = dict(zip(shares, sizes.tolist()))

    def __getitem__(self, edge: str) -> np.ndarray:
        end = int(self._ends[self._places[edge]])
        return self.indices[end - self.sizes[edge] : end]

    def __contains__(self, edge: object) -> bool:
        return edge in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


KINDS = {  # Dataset.tokens -> the texts in words, and a model that takes them
    "": ("texts without a tokenizer, or pictures", "textcnn or cnn"),
    "labels": ("encoded texts with labels", "bert_classifier"),
    "next": ("encoded prompts with answers", "causal_lm"),
}
SETS = "mrpc, agnews and sentences have labels; gsm8k, math_instruct and instructions have answers"


def check_texts(experiment: Experiment, build: Any, found: Dataset) -> None:
    """UserError unless the model takes the data set's kind of texts, in its own tokens.

    A model's file says so by ``TAKES``, in the words of ``Dataset.tokens``.
    """
    takes = getattr(sys.modules[build.__module__], "TAKES", "")
    if takes != found.tokens:
        have, model = KINDS[found.tokens]
        hint = f'such as {model}; a model of your own says TAKES = "{found.tokens}"'
        if takes:
            hint = f"for {KINDS[takes][0]}: {SETS}"
        raise UserError(
            f"model {experiment.model.name!r}: data set {experiment.data.name!r} has {have}:"
            f" expected a {'data set' if takes else 'model'} {hint}"
        )
    if takes == "next" and experiment.evaluation.by_label:
        raise UserError(
            "evaluation.by_label: expected false with a causal language model, which has no labels"
        )
    _check_tokenizer(experiment, found)


def _check_tokenizer(experiment: Experiment, found: Dataset) -> None:
    """UserError if the data has another tokenizer than the one next to the model's weights."""
    own, path = experiment.data.options().get("tokenizer"), experiment.model.options().get("path")
    if not (own and path) or own == path or not found.tokens:
        return
    directory = data_dir(experiment.data.dir, os.environ) / Path(path).expanduser()
    if not any((directory / name).is_file() for name in TOKENIZER_FILES):
        return
    if encoding.vocabulary_digest(encoding.tokenizer_at(directory)) != found.tokenizer:
        raise UserError(
            f"data.tokenizer: {own!r} has another vocabulary than the tokenizer of the model in"
            f" {directory}: expected that one (leave data.tokenizer out)"
        )


def own_task(experiment: Experiment, base: Path | None) -> tuple[Task, material.EdgeData] | None:
    """The user's own task, if the experiment names one."""
    if experiment.task is None:
        return None
    if experiment.data.source != "partition":
        raise UserError(
            'data.source: expected "partition" with a task of one\'s own, found'
            f" {experiment.data.source!r}"
        )
    if experiment.data.scale != "standard":
        raise UserError(
            'data.scale: expected "standard" with a task of one\'s own, found'
            f" {experiment.data.scale!r}"
        )
    build = load_dotted(experiment.task, base)
    with own_code(experiment.task, build):
        task = build()
    if not isinstance(task, Task):
        raise UserError(
            f"task {experiment.task!r} returned {type(task).__name__}, expected edgefl.api.Task"
        )
    material.check_details(f"task {experiment.task!r}", task.dataset)
    check_finite(task.dataset, f"of the task {experiment.task!r}")
    return task, material.EdgeData(task.dataset, material.cut(experiment, base, task.dataset))


def named_task(
    experiment: Experiment, base: Path | None, edges: Sequence[str] | None
) -> tuple[Task, material.EdgeData]:
    build = find("edgefl.models", experiment.model.name, "build", base, "model")
    values = material.checked_options(build, experiment.model, "model")
    if isinstance(values, PretrainedOptions):  # with its directory on this machine
        values = values.placed(data_dir(experiment.data.dir, os.environ))
    had = material.edge_data(experiment, base, edges)
    check_texts(experiment, build, had.dataset)

    def model() -> torch.nn.Module:
        import torch

        with own_code(experiment.model.name, build):
            built = called(build, values, had.dataset.shape, had.dataset.classes)
        if not isinstance(built, torch.nn.Module):
            raise UserError(
                f"model {experiment.model.name!r} returned {type(built).__name__}, expected"
                " torch.nn.Module"
            )
        return built

    plain = getattr(sys.modules[build.__module__], "network", None)
    network = None if plain is None else plain(values, had.dataset.shape, had.dataset.classes)
    if had.dataset.tokens != "next":
        return Task(had.dataset, model, network=network), had
    from edgefl.models.evaluate import counted_tokens, next_token_loss, right_tokens

    return Task(had.dataset, model, next_token_loss, right_tokens, counted_tokens), had


# With more, the weights are no longer in a core's cache, and torch is as fast (AlexNet, VGG-11).
MOST_PARAMETERS = 2_000_000


@dataclass(slots=True)
class Made:
    """What is made of data and model when it is first asked for, for the runs of all seeds.

    Tensors and module need torch, which a run whose steps are compiled does not load.
    """

    workspace: Workspace | None = None
    train: tuple[Any, Any] | None = None
    test: tuple[Any, Any] | None = None
    unlabelled: torch.Tensor | None = None
    device: torch.device | None = None  # where all these are; None: the CPU
    train_rows: NormalisedRows | None = None  # for the compiled step
    test_rows: NormalisedRows | None = None


@dataclass(slots=True)
class Learning:
    """One process's data and model. The trainers of all its edges share them.

    ``trains_itself``: what trains, if it is not our trainer that steps through torch's model.
    """

    trains_itself: ClassVar[str] = ""

    experiment: Experiment
    base: Path | None
    task: Task
    shards: EdgeShares  # what the edges train on
    # with evaluation.edges.held_out: what they are scored on, and all samples that they have
    held_out: EdgeShares | None = None
    whole: EdgeShares | None = None
    _made: Made = field(default_factory=lambda: Made(), repr=False)
    # by evaluation.train_samples
    _union: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict, repr=False)
    # by index of the experiment
    _chosen: dict[int, tuple[type[Strategy], StrategyOptions]] = field(
        default_factory=dict, repr=False
    )
    _tokens: np.ndarray | None = field(default=None, repr=False)
    _in_tokens: frozenset[str] | None = field(default=None, repr=False)
    # edge id -> device at the start of a run, if the warm parent has made them for its forks
    speeds: dict[str, Device] = field(default_factory=dict, repr=False)
    own_digest: str = ""  # of data that came in shares; otherwise data_digest computes it
    _frozen: str | None = field(default=None, repr=False)  # its digest, once it is computed
    # the server's samples without labels, as they are; None on an edge's own machine
    _rows: np.ndarray | None = field(default=None, repr=False)
    _compiled: tuple[Compiled | None, str] | None = None  # once it is known
    # the samples of the train loss and their labels, for the compiled step
    _seen: tuple[NormalisedRows, np.ndarray] | None = field(default=None, repr=False)

    @property
    def layout(self) -> Layout:
        network = self.task.network
        return self.workspace.layout if network is None else network.layout

    @property
    def workspace(self) -> Workspace:
        """The model in torch."""
        if self._made.workspace is None:
            from edgefl.models.torch_device import one_thread
            from edgefl.models.workspace import Workspace

            one_thread()
            self._made.workspace = Workspace(self.task.model)
        return self._made.workspace

    @property
    def train(self) -> tuple[Any, Any]:
        """Inputs and targets: tensors, or Samples, which are indexed like one."""
        if self._made.train is None:
            self._made.train = self.task.dataset.train()
        return self._made.train

    @property
    def test(self) -> tuple[Any, Any]:
        if self._made.test is None:
            self._made.test = self.task.dataset.test()
        return self._made.test

    @property
    def unlabelled(self) -> torch.Tensor | None:
        """The server's samples without labels, normalised; None on an edge's own machine."""
        if self._made.unlabelled is None and self._rows is not None:
            labels = np.zeros(len(self._rows), np.int64)
            alike = replace(self.task.dataset, test_x=self._rows, test_y=labels)
            self._made.unlabelled = alike.test()[0][:]
        return self._made.unlabelled

    @property
    def predicts_tokens(self) -> bool:
        """Whether the model is a causal language model: it predicts the next token everywhere."""
        return self.task.dataset.tokens == "next"

    @property
    def samples(self) -> dict[str, int]:
        return self.shards.sizes

    def on_cpu(self) -> bool:
        """Whether this machine trains on its CPU. It asks for GPUs only if the experiment does."""
        if on_cpu(self.experiment):
            return True
        from edgefl.models.torch_device import CPU, chosen

        return chosen(self.experiment.training.device) == CPU

    def place(self) -> None:
        """Move model and data to the experiment's device, unless they are there.

        Call it in the process that trains: one that uses a GPU must not be forked.
        """
        if on_cpu(self.experiment) and self._made.device is None:
            return
        import torch

        from edgefl.models.torch_device import CPU, chosen, make_repeatable

        device = chosen(self.experiment.training.device)
        self.workspace.to(device)
        if device == (self._made.device or CPU):
            return
        make_repeatable(device)
        # the fast kernels of attention warn as well, but their gradients do not repeat
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)
        self._made.device = device
        self._made.train, self._made.test = _on(device, self.train), _on(device, self.test)
        self._union = {size: _on(device, pair) for size, pair in self._union.items()}
        if self.unlabelled is not None:
            self._made.unlabelled = self.unlabelled.to(device)

    def device_facts(self) -> dict[str, str]:
        """Return what a run's facts say about the device; nothing for the CPU."""
        if on_cpu(self.experiment):
            return {}
        from edgefl.models.torch_device import chosen

        device = chosen(self.experiment.training.device)
        return {} if device.type == "cpu" else {"device": str(device)}

    @property
    def compiled(self) -> Compiled | None:
        """The model's compiled step; None: torch computes."""
        return self._compiled_or_why()[0]

    @property
    def step(self) -> CompiledStep | None:
        """Computes outputs and gradients in place of torch; None: torch does."""
        return None if self.compiled is None else self.compiled.step

    def _compiled_or_why(self) -> tuple[Compiled | None, str]:
        if self._compiled is None:
            self._compiled = _compiled(self)
        return self._compiled

    def engine(self, index: int) -> str:
        """What computes the steps of the strategy at ``index`` of the experiment: "compiled", or
        "torch" and why. UserError if the experiment asks for the compiled step and cannot have it.
        """
        why = self._compiled_or_why()[1] or Compiled.takes(self.rule(index))
        if not why:
            return "compiled"
        if self.experiment.training.engine == "compiled":
            name = self.experiment.strategies[index].name
            raise UserError(
                f'training.engine = "compiled": expected what the compiled step covers; {name}'
                f' needs torch: {why}; "auto" takes what fits'
            )
        return f"torch: {why}"

    def load_before_fork(self) -> None:
        """Load torch and make the model if any strategy's edges need them, so that forks share
        them.
        """
        plan, count = self.experiment.training, len(self.experiment.strategies)
        plain = self.compiled is not None and plan.optimizer == "sgd" and not plan.momentum
        if not plain or not all(Compiled.is_all(self.rule(index)) for index in range(count)):
            self.workspace, self.train  # noqa: B018  # made when they are first asked for

    def initial_weights(self) -> np.ndarray:
        """The first model w_0, the same for every strategy of the experiment."""
        if self.task.network is not None:
            return first_weights(self.task.network, Streams(self.experiment.seed))
        from edgefl.models.workspace import initial

        return initial(self.task.model, Streams(self.experiment.seed))

    def data_digest(self) -> str:
        """A digest that is equal in two processes with the same data and the same shares."""
        whole = {"": self.whole_shares.indices}  # the digest does not depend on where shares end
        return self.own_digest or material.digest(self.task.dataset, whole)

    @property
    def whole_shares(self) -> EdgeShares:
        """All samples of each edge, with those that it does not train on."""
        return self.shards if self.whole is None else self.whole

    def frozen_digest(self) -> str:
        """A digest of the weights that are neither trained nor sent; "" if there are none."""
        if self.task.network is not None:
            return ""
        if self._frozen is None:
            from edgefl.models.workspace import frozen_digest

            self._frozen = frozen_digest(self.workspace.model)
        return self._frozen

    def tokenizer(self) -> Any:
        """The tokenizer of transformers that has encoded the texts; None if there is none."""
        if not self.task.dataset.tokens:
            return None
        data, model = self.experiment.data, self.experiment.model
        options = encoding.TokenOptions(tokenizer=data.options().get("tokenizer"))
        chosen = options.placed(data_dir(data.dir, os.environ), model.options().get("path"))
        return encoding.tokenizer_at(Path(chosen.tokenizer or ""))

    def keep_beside(self, directory: Path) -> None:
        """Write what a run directory keeps of the data.

        This is the number of samples by edge and label, with ``evaluation.by_label``; and for
        texts, a copy of the words behind the token numbers.
        """
        if self.task.dataset.words is not None:
            shutil.copyfile(self.task.dataset.words, directory / VOCABULARY)
        if self.experiment.evaluation.by_label:
            found = self.task.dataset
            write_edges(
                directory,
                self.shards,
                found.train_y,
                found.classes,
                devices(self.experiment, self.samples),
            )

    @property
    def plan(self) -> TrainingPlan:
        return training_plan(self.experiment)

    @property
    def runs_jobs(self) -> bool:
        """Whether any strategy of the experiment may order jobs. Loads the strategies' code."""
        jobs = [options(entry, self.base)[0].runs_jobs for entry in self.experiment.strategies]
        return any(jobs)

    def some_unlabelled(self, samples: int | None) -> torch.Tensor:
        """Return this many of the server's samples without labels, evenly spaced; None: all.

        UserError if there are fewer.
        """
        have = 0 if self.unlabelled is None else len(self.unlabelled)
        if self.unlabelled is None or (samples or 0) > have:
            raise UserError(
                f"unlabelled.size: expected at least {samples or 1}, as a strategy needs, found"
                f" {have}"
            )
        if samples is None:
            return self.unlabelled
        return self.unlabelled[np.arange(samples) * have // samples]

    def trainer(self, edge: str) -> Trainer:
        self.place()
        kind = NullTrainer if self.experiment.training.trainer == "none" else Trainer
        return kind(
            (lambda: self.workspace) if self.on_cpu() else self.workspace,
            lambda: self.train[0],
            lambda: self.train[1],
            self.task.loss,
            self.plan,
            Streams(self.experiment.seed),
            edge,
            self.shards[edge],
            self._lengths(edge),
            self.task.terms,
            self.compiled,
            self.layout,
        )

    def tokens(self, edge: str) -> Callable[[Course], Sequence[int]] | None:
        """What computes the tokens of an edge's run by step; None if its speed is in samples."""
        lengths, streams = self._lengths(edge), Streams(self.experiment.seed)
        if lengths is None:
            return None

        def by_step(run: Course) -> Sequence[int]:
            order = sample_order(streams, edge, run.task.number, self.shards[edge], run)
            return tokens_by_step(order, lengths, run)

        return by_step

    def _lengths(self, edge: str) -> np.ndarray | None:
        """The tokens of each training sample, if the speed of the edge's device is in tokens."""
        if self._in_tokens is None:  # reading the groups is too slow to repeat for every task
            self._in_tokens = in_tokens(self.experiment)
        if edge not in self._in_tokens:
            return None
        if self._tokens is None:
            self._tokens = self.task.dataset.token_counts()
        return self._tokens

    def rule(self, index: int) -> LocalRule:
        """A new local rule of the strategy at ``index`` of the experiment."""
        if index not in self._chosen:
            # ``options`` searches a folder: too slow to repeat for every task
            self._chosen[index] = options(self.experiment.strategies[index], self.base)
        found, values = self._chosen[index]
        with own_code(self.experiment.strategies[index].strategy, found.rule):
            rule = found.rule(values)
        if self.experiment.medium.kind == "tdma":
            rule.on_request = "wait"  # half-duplex devices cannot compute while they receive
        return rule

    def edge_maker(
        self, index: int, trainer: Callable[[str], TrainerLike] | None = None
    ) -> Callable[[str], Edge]:
        """What makes an edge's actor for the strategy at ``index`` of the experiment.

        ``trainer(edge)`` makes its trainer; None: ``self.trainer``. Each gets a device of its own.
        """
        known, streams, made = self.speeds, Streams(self.experiment.seed), trainer or self.trainer
        faults = interruptions(self.experiment, self.base)
        maker = None if known else DeviceMaker(self.experiment, self.samples)
        packed = packing(self.experiment, index, self.layout, self.base)
        jitters = task_jitters(self.experiment)

        def make(name: str) -> Edge:
            device = deepcopy(known[name]) if maker is None else maker.of(name)
            device = slowed(device, faults, name, streams)
            return Edge(name, made(name), self.rule(index), device, packed, jitters.get(name))

        return make

    def evaluate(self, job: Evaluate) -> Scores:
        """Return train loss, test loss and test accuracy, then the further scores and each label's
        accuracy if asked for.

        The train loss is taken on the fixed sample of ``union``; None if that is empty. If the job
        is ``of_edges``: the scores on each edge's own samples instead.
        """
        self.place()
        if job.of_edges:
            return self._edge_scores(job.weights)
        section, task, step = self.experiment.evaluation, self.task, self.step
        if step is not None and not section.by_label and not section.further:
            return self._compiled_scores(step, job)
        from edgefl.models.evaluate import evaluate

        counted = LabelCounts(task.metric, task.dataset.classes)
        counts = section.by_label or "f1" in section.further

        def evaluated(samples: tuple[Any, Any], of: Any) -> tuple[float, float]:
            how = {"metric": of, "terms": task.terms, "step": step}
            return evaluate(self.workspace, job.weights, *samples, task.loss, **how)

        test_loss, accuracy = evaluated(self.test, counted if counts else task.metric)
        union = self.union()
        train_loss = evaluated(union, task.metric)[0] if len(union[0]) else None
        measured: dict[str, Callable[[], float]] = {
            "f1": lambda: counted.f1,
            "perplexity": lambda: perplexity(test_loss),
            "exact_match": lambda: self._exact_match(job.weights),
        }
        more = [measured[name]() for name in section.further]
        if section.by_label:
            more += counted.shares
        return train_loss, test_loss, accuracy, *more

    def _compiled_scores(self, step: CompiledStep, job: Evaluate) -> Scores:
        """Train loss, test loss and test accuracy, without torch."""
        dataset = self.task.dataset
        if self._made.test_rows is None:
            self._made.test_rows = NormalisedRows(dataset, dataset.test_x)
        loss, accuracy = step.scores(job.weights, self._made.test_rows, dataset.test_y)
        if self._seen is None:
            picked = self._picked()
            self._seen = NormalisedRows(dataset, dataset.train_x[picked]), dataset.train_y[picked]
        if not len(self._seen[1]):
            return None, loss, accuracy
        return step.scores(job.weights, *self._seen)[0], loss, accuracy

    def _edge_scores(self, weights: np.ndarray) -> Scores:
        """Loss, accuracy and number of samples of each edge, one edge after the other.

        With cross-entropy the samples of all edges go through the model in batches of one size. A
        loss or a metric of one's own is only known of whole batches: then edge by edge.
        """
        shares = self.shards if self.held_out is None else self.held_out
        sizes = np.array(list(shares.sizes.values()))
        if self.task.classifies:
            of = np.repeat(np.arange(len(sizes)), sizes)
            sums = [np.bincount(of, each, len(sizes)) for each in self._by_sample(weights, shares)]
            none = np.full((2, len(sizes)), np.nan)
            means = np.divide(sums, sizes, out=none, where=sizes > 0).T.tolist()
        else:
            means = [self._scores_on(weights, rows) for rows in shares.values()]
        table = [number for mean, size in zip(means, sizes.tolist()) for number in (*mean, size)]
        return cast(Scores, tuple(table))

    def _by_sample(self, weights: np.ndarray, shares: EdgeShares) -> tuple[np.ndarray, np.ndarray]:
        """Cross-entropy, and whether the answer is right, of all samples of these shares."""
        made = self.compiled
        if made is not None:
            return made.step.by_sample(weights, made.inputs, made.labels, shares.indices)
        from edgefl.models.evaluate import by_sample

        return by_sample(self.workspace, weights, *self.train, shares.indices)

    def _scores_on(self, weights: np.ndarray, rows: np.ndarray) -> tuple[float, float]:
        """Mean loss and metric of these training samples; nan without any."""
        if not len(rows):
            return math.nan, math.nan
        from edgefl.models.evaluate import evaluate

        task, (inputs, targets) = self.task, self.train
        return evaluate(
            self.workspace,
            weights,
            inputs[rows],
            targets[rows],
            task.loss,
            metric=task.metric,
            terms=task.terms,
        )

    def _exact_match(self, weights: np.ndarray) -> float:
        section = self.experiment.evaluation
        from edgefl.models.evaluate import exact_match

        tokenizer = self.tokenizer()
        assert tokenizer is not None, "checked before the run"
        return exact_match(
            self.workspace,
            weights,
            self.test[0],
            tokenizer,
            section.answer_tokens,
            section.match_samples,
        )

    def union(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The fixed sample of all devices' data for the train loss: drawn once, empty if the
        config asks for none.
        """
        size = self.experiment.evaluation.train_samples
        if size not in self._union:
            picked = self._picked()
            self._union[size] = self.train[0][picked], self.train[1][picked]
        return self._union[size]

    def _picked(self) -> np.ndarray:
        """The rows of the training data on which the train loss is taken."""
        size = self.experiment.evaluation.train_samples
        if not size or not self.shards:
            return np.zeros(0, np.int64)
        picked: np.ndarray = np.sort(self.shards.indices)
        if size < len(picked):
            rng = Streams(self.experiment.seed).rng("train loss")
            picked = picked[np.sort(rng.choice(len(picked), size, replace=False))]
        return picked


def on_cpu(experiment: Experiment) -> bool:
    """Whether the experiment names the CPU, so that torch need not be asked for a GPU."""
    return experiment.training.device in (None, "cpu")


def _compiled(learned: Learning) -> tuple[Compiled | None, str]:
    """The compiled step for a task, or why there is none."""
    training, task = learned.experiment.training, learned.task
    dataset = task.dataset
    if training.engine == "torch":
        return None, 'training.engine = "torch"'
    if training.trainer == "none":
        return None, 'training.trainer = "none"'
    if not learned.on_cpu():
        return None, "a GPU computes"
    if (training.tasks_at_once or 1) > 1:
        return None, f"training.tasks_at_once = {training.tasks_at_once}"
    if not task.classifies:
        return None, "the task has a loss or a metric of its own"
    for labels in (dataset.train_y, dataset.test_y):
        if len(labels) and not 0 <= labels.min() <= labels.max() < dataset.classes:
            return None, "some labels are no classes"
    try:
        from edgefl.compiled.step import CompiledStep

        network = task.network or network_of(learned.workspace.model, dataset.shape)
        if training.engine == "auto" and network.parameters > MOST_PARAMETERS:
            return None, f"it has more than {MOST_PARAMETERS:,} parameters"
        step = CompiledStep(network)
    except Unsuited as reason:
        return None, str(reason)
    labels = np.ascontiguousarray(dataset.train_y, dtype=np.int64)
    made = learned._made
    if made.train_rows is None:
        made.train_rows = NormalisedRows(dataset, dataset.train_x)
    return Compiled(step, labels, made.train_rows), ""


def _on(device: torch.device, pair: tuple[Any, Any]) -> tuple[Any, Any]:
    return pair[0].to(device), pair[1].to(device)


def with_experiment(learned: Learning, experiment: Experiment) -> Learning:
    """The same data and model for another experiment, such as one with another seed.

    Its task, data, model and unlabelled samples must be the same. The shares are cut anew, unless
    they came with the data.
    """
    anew: dict[str, Any] = {"_union": {}, "_chosen": {}, "_in_tokens": None, "speeds": {}}
    anew |= {"_compiled": None, "_seen": None}
    if learned.own_digest:
        shares: Mapping[str, np.ndarray] = learned.whole_shares
    else:
        _check_server_samples(experiment, learned.base, len(learned.task.dataset.train_x))
        shares = material.cut(experiment, learned.base, learned.task.dataset)
    return replace(learned, experiment=experiment, **_divided(experiment, shares), **anew)


def _divided(experiment: Experiment, shares: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return ``shards``, ``held_out`` and ``whole`` of a ``Learning``."""
    if not experiment.held_out:
        return {"shards": EdgeShares(shares), "held_out": None, "whole": None}
    parts = material.divided(shares, experiment.held_out, Streams(experiment.seed))
    trained, scored = map(EdgeShares, parts)
    return {"shards": trained, "held_out": scored, "whole": EdgeShares(shares)}


def learning(
    experiment: Experiment, base: Path | None, edges: Sequence[str] | None = None
) -> Learning:
    """Load the data of ``edges`` (``edgefl.data.edge_data``) and build the model."""
    kind = kind_of(experiment.task)
    if kind is not None:
        learned: Learning = kind.learning(experiment, base)
        return learned
    if not on_cpu(experiment):
        from edgefl.models.torch_device import chosen

        chosen(experiment.training.device)  # a missing GPU is told here, before the run
    with _every_share(experiment, edges) as here:
        task, had = own_task(experiment, base) or named_task(experiment, base, here)
    if not edges and not len(task.dataset.test_y):  # this process evaluates
        name = experiment.data.name if experiment.task is None else experiment.task
        raise UserError(
            f"data {name!r}: no samples in test_x, expected at least one for the accuracy"
        )
    rows = None if edges else unlabelled(experiment, base, task.dataset)
    if not edges and experiment.data.source == "partition":
        _check_server_samples(experiment, base, len(task.dataset.train_x))
    _check_scores(experiment, task.dataset)
    made = Learning(
        experiment,
        base,
        task,
        own_digest=had.own_digest,
        _rows=rows,
        **_divided(experiment, had.shares),
    )
    if task.network is None:
        made.workspace  # noqa: B018  # what is wrong with the model is told here, before the run
    return made


@contextmanager
def _every_share(
    experiment: Experiment, edges: Sequence[str] | None
) -> Iterator[Sequence[str] | None]:
    """Yield the edges whose data to load: all, if this process scores the model on theirs.

    UserError if it lacks some.
    """
    if edges or experiment.evaluation.edges is None:
        yield edges
        return
    try:
        yield None
    except UserError as error:
        if edges is None or experiment.data.source == "partition":
            raise
        raise UserError(
            "evaluation.edges: expected the samples of all edges on the coordinator's machine,"
            f" where the model is scored on them: {error}"
        ) from error


def _check_scores(experiment: Experiment, dataset: Dataset) -> None:
    """UserError for a score that the data set's answers do not have."""
    further = experiment.evaluation.further
    if "exact_match" in further and dataset.tokens != "next":
        raise UserError(
            'evaluation: "exact_match" is of decoded answers: expected a causal language model with'
            " its data, such as gsm8k"
        )
    if "f1" in further and dataset.tokens == "next":
        raise UserError('evaluation: "f1" is of labels: expected data with labels, such as mrpc')


def _check_server_samples(experiment: Experiment, base: Path | None, have: int) -> None:
    """Raise UserError before the run starts, not only when the strategy's first job runs."""
    for number, entry in enumerate(experiment.strategies):
        strategy, given = options(entry, base)
        key = f"strategies[{number}].server_samples"
        check_server_samples(key, strategy.server_samples(given), have)


# ---------------------------------------------------------------------- scores
# That of each label, F1 and perplexity. The accuracy of each label, and the labels of each edge,
# show whether the global model learns labels that only some edges have.
POSITIVE = 1  # the label whose F1 counts if there are two: "paraphrase" of MRPC, as in GLUE


class LabelCounts:
    """A metric that also counts how often each label is given, is right, and both.

    A model may have more outputs than labels: an answer beyond the labels is wrong, and in no
    column. Use one object for one pass over the test samples.
    """

    def __init__(self, metric: Callable[[Any, Any], Any], classes: int) -> None:
        self.metric = metric
        # rows: right answers, answers, samples; a column for each label
        self.counts = np.zeros((3, classes), np.int64)

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> Any:
        import torch

        given = outputs.argmax(dim=1)
        for row, labels in enumerate((targets[given == targets], given, targets)):
            classes = self.counts.shape[1]
            counted = torch.bincount(labels, minlength=classes)[:classes]
            self.counts[row] += counted.numpy(force=True)
        return self.metric(outputs, targets)

    @property
    def shares(self) -> list[float]:
        """The share of right answers for each label; nan for a label without samples."""
        right, _, samples = self.counts.tolist()
        return [part / whole if whole else math.nan for part, whole in zip(right, samples)]

    @property
    def f1(self) -> float:
        """F1 = 2 right / (answers + samples), of label 1 with two labels, else the mean over the
        labels that occur. 0 where a label is neither given nor right.
        """
        right, answers, samples = self.counts
        whole = answers + samples
        values = np.divide(2.0 * right, whole, out=np.zeros(len(right)), where=whole > 0)
        return float(values[POSITIVE] if len(values) == 2 else values[whole > 0].mean())


def perplexity(loss: float) -> float:
    """Return e to a mean cross-entropy; infinite if that is too large for a float."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def write_edges(
    directory: Path,
    shards: Mapping[str, np.ndarray],
    labels: np.ndarray,
    classes: int,
    devices: Mapping[str, Device],
) -> None:
    """Write edges.csv: one row per edge, with its runtime class and its samples of each label.

    The runtime class is empty if devices have none.
    """
    with (directory / EDGES).open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["edge", "runtime", *(f"label_{label}" for label in range(classes))])
        for edge, indices in shards.items():
            device = devices[edge]
            runtime = device.runtime.name if isinstance(device, Drawn) else ""
            rows.writerow(
                [edge, runtime, *np.bincount(labels[indices], minlength=classes).tolist()]
            )
