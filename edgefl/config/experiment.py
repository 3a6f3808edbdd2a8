"""The schema of the experiment file: frozen sections, strict types, unknown keys refused.

The names of keys contain their units. ``edgefl.config.file`` reads the file from TOML. The text
below each key is its entry in the generated reference (docs/reference/generated/config.md). The
sections of links and devices are in ``links.py``, those of faults and availability in
``faults.py``.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, field_validator, model_validator

from edgefl.config.faults import Availability, FaultEntry
from edgefl.config.links import LINK_DEFAULTS, Devices, Group, Links, Medium
from edgefl.config.scores import ACCURACY, SCORES, Score, measured
from edgefl.config.section import (
    EDGE_ID,
    RUN_NAME,
    Loc,
    PlugInName,
    Section,
    Source,
    is_set,
    validated,
)
from edgefl.errors import nearest
from emulator import profiles
from emulator.capacity.trace import Start, Trace, read_trace
from emulator.errors import BadValue
from emulator.units import FOREVER, to_ns

Code = str | Callable[..., Any]  # of a plug-in: its name, or what it names
MOST_AUTO_SPEED = 1.0
MOST_SPEED = 1e6  # with a higher speed, moments do not fit into a message


class Named(Section):
    """A plug-in, chosen by `name`. The other keys of the table are the options of this plug-in."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    name: PlugInName
    """Name of the plug-in: one of the catalog, or your own, such as `"my_model.py:build"` or
    `"my_split.py:split"`. Its options are further keys of this table.
    """

    if TYPE_CHECKING:  # for users' files: mypy cannot know of extra="allow"

        def __init__(self, *, name: Code, **options: Any) -> None: ...

    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Data(Named):
    """The data set, its files, which part of it an edge has, and the scaling of pictures."""

    name: PlugInName = "digits"
    """Name of the data set: one of `edgefl datasets`, or your own, such as `"my_data.py:load"`. Its
    options are further keys of this table.
    """
    dir: str | None = None
    """Directory of the data set's files, relative to the directory in which edgefl starts. Default:
    the environment variable `EDGEFL_DATA`, or `data/` if it is not set.
    """
    source: Literal["partition", "shard", "local"] = "partition"
    """Where an edge gets its samples. `"partition"`: it loads the whole data set and uses its share
    of it. `"shard"`: it loads its own file, made by `edgefl data shard`. `"local"`: it has a data
    set of its own and uses all training samples of that.
    """
    scale: Literal["raw", "unit", "standard"] = "standard"
    """Scaling of pictures before the model gets them. `"raw"`: pixels as stored, 0 to 255
    (`digits`: 0 to 16). `"unit"`: 0 to 1. `"standard"`: minus the mean of the data set and divided
    by its standard deviation, per channel in most data sets.
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: Code = ...,
            dir: str | None = ...,
            source: Literal["partition", "shard", "local"] = ...,
            scale: Literal["raw", "unit", "standard"] = ...,
            **options: Any,
        ) -> None: ...


class Unlabelled(Section):
    """Samples without labels at the server, for strategies that distil.

    Without this table there are none.
    """

    data: PlugInName = "held_out"
    """Source of the samples: the name of a data set (its unlabelled part if it has one, else its
    training part), or `"held_out"`: training samples that no edge gets. Held-out samples are from
    the same domain (`in_domain` in `summary.json`). A sample that is also a test sample is an
    error.
    """
    size: int = Field(default=2000, ge=1)
    """Number of samples. They are evenly spaced in the source, so every seed uses the same ones."""
    transform: Literal["none", "fit"] = "none"
    """Conversion of another data set's pictures. `"none"`: used as they are. `"fit"`: converted to
    the channels (grey or colour) and the size of the pictures in `[data]`.
    """


class Edges(Section):
    """The number of edges, or their ids."""

    count: int = Field(default=10, ge=1, le=100_000)
    """Number of edges. Their ids are e000, e001, ... Not used if `names` is given."""
    names: tuple[Annotated[str, Field(pattern=EDGE_ID)], ...] = Field(default=(), strict=False)
    """Ids of the edges, such as `["pi-1", "pi-2"]`, instead of `count`. An id has at most 32
    characters from a-z, 0-9, `_` and `-`, and begins with a letter or a digit.
    """
    per_process: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """How many edges of a host share a process on the wall clock: each has its own socket, session
    and actor; they share the model that trains, one task after the other, and a process that dies
    takes all of them. `"auto"`: 1 for up to 100 edges on a host; more edges share four processes
    for each core, or fewer if memory is short. Native devices always have a process each.
    """
    availability: Availability | None = None

    def ids(self) -> list[str]:
        """Return the ids of all edges.

        The position of an edge in this list selects its share of the data and its device.
        """
        return list(self.names or _numbered(self.count))

    def places(self) -> Mapping[str, int]:
        """Return the position of each edge in ``ids``. Do not change it: it is made once."""
        return _places(self.names, 0 if self.names else self.count)


@lru_cache(maxsize=4)
def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"e{number:03d}" for number in range(count))


@lru_cache(maxsize=4)
def _places(names: tuple[str, ...], count: int) -> Mapping[str, int]:
    return {edge: place for place, edge in enumerate(names or _numbered(count))}


class StopTarget(Section):
    """A score at which the run ends. Without this table the score of a model ends no run."""

    metric: str | None = Field(default=None, examples=["test_loss"])
    """A score of `metrics.csv`: `"accuracy"`, `"test_loss"`, `"train_loss"`, or one of
    `evaluation.metrics`. Losses and the perplexity are reached from above. Default:
    `evaluation.metric`.
    """
    value: float | None = Field(default=None, gt=0)
    """The score to reach. Default: `evaluation.target`, if that is of the same metric."""
    for_evaluations: int = Field(default=1, ge=1)
    """The run ends when so many evaluations in a row have reached the target."""


class Stop(Section):
    """When the run ends: at the first of these limits. At least one must be given."""

    versions: int | None = Field(default=None, ge=1)
    """End the run at this version of the global model."""
    updates: int | None = Field(default=None, ge=1)
    """End the run after this many updates were received and not discarded."""
    emulated_s: float | None = Field(
        default=None, gt=0, le=9e9
    )  # a moment in ns must fit into 63 bits
    """End the run after this many emulated seconds."""
    target_joules: float | None = Field(default=None, gt=0)
    """End the run when all edges together have used this much modelled energy, in joules. Needs
    `[devices.energy]` or `[links.radio]`.
    """
    target: StopTarget | None = None
    no_progress_s: float | None = Field(default=None, gt=0, le=9e9)
    """End the run when the best score has not improved for this many emulated seconds, from one
    evaluated model to another. The score is `stop.target.metric`, or `evaluation.metric`.
    """

    @property
    def at_ns(self) -> int:
        """The last moment of the run (ns); ``FOREVER`` if ``emulated_s`` is not given."""
        return FOREVER if self.emulated_s is None else to_ns(self.emulated_s)

    @property
    def by_score(self) -> bool:
        """Whether the scores of models may end the run."""
        return self.target is not None or self.no_progress_s is not None

    @model_validator(mode="after")
    def _one_given(self) -> Stop:
        if all(getattr(self, limit) is None for limit in Stop.model_fields):
            raise ValueError(f"give at least one of {', '.join(Stop.model_fields)}")
        return self


class UpdatesSection(Section):
    """Which updates the coordinator accepts."""

    norm_bound: float | None = Field(default=None, gt=0)
    """Discard an update if the L2 norm of its change is larger than this (in the units of the
    weights). For `"weights"`, the change is the difference from the model that the edge received;
    for any other vector, such as a gradient, it is the vector itself. Protects the model from a
    single extreme update.
    """


class Compression(Section):
    """Smaller messages. Without this table, models and updates travel whole.

    An edge sends the packed change of its model, or its packed gradient. Other vectors of a message
    travel whole, and so do a model's buffers, such as the running statistics of BatchNorm.
    """

    up: Named | None = None
    """Method for updates: `"float16"`, `"int8"`, `"top_k"`, `"random_k"`, `"sign"`, or your own,
    such as `"my_method.py:build"`. A table has options: `{name = "top_k", share = 0.01}`.
    """
    down: Named | None = None
    """Method for models: `"float16"` or `"int8"`."""
    cost_samples: float = Field(default=0.0, ge=0)
    """What packing an update costs a device, as the time of training on so many samples."""

    @field_validator("up", "down", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) or callable(value) else value


class RecordSection(Section):
    """What a run keeps in addition to its tables."""

    payloads: bool = False
    """Keep every array of the journal, so that `edgefl replay` can check the run."""
    durability: Literal["off", "process", "power"] = "process"
    """On the wall clock: what an acknowledged update survives. `"process"`: a crash of the
    coordinator. `"power"`: a loss of power, too; the coordinator waits for the disk before it
    answers. `"off"`: no journal is kept, and the run cannot be resumed.
    """
    keep_state: bool = False
    """Keep what a run that has reached its end needs to be lengthened (`--resume DIR
    stop.KEY=VALUE`): its newest checkpoints, and on the wall clock its journal. Without them a run
    under the virtual clock begins anew when it is lengthened, which leaves the same bytes, and one
    on the wall clock cannot be lengthened.
    """
    keep: Annotated[int, Field(ge=1)] | Literal["all"] = "all"
    """A table (`events.jsonl`, `links.csv`, ...) goes on in a new file when it has 64 MiB, and its
    rows so far are compressed. So many of these parts stay; older ones are deleted.
    """


class FidelityLimits(Section):
    """When a run on the wall clock is called strained.

    See docs/explanation/verdict.md.
    """

    transfer_lag_ms: float = Field(default=5.0, gt=0)
    """Lateness in ms that is always accepted. A transfer or a task is late if it ends later than
    this *and* later than `transfer_lag_share` of its own length. The run is strained if more than 1
    % of its transfers are late.
    """
    transfer_lag_share: float = Field(default=0.02, ge=0)
    """Lateness that is always accepted, as a share of the length of the transfer or task; see
    `transfer_lag_ms`.
    """
    overrun_share: float = Field(default=0.01, ge=0)
    """The run is strained if more than this share of its tasks is late; `transfer_lag_ms` says when
    a task is late.
    """


class StrategyEntry(Section):
    """A strategy of the comparison. Keys other than these two are the options of the strategy, such
    as `selection`: which of the idle edges get work.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    strategy: PlugInName
    """Name of the strategy: one of `edgefl strategies`, or your own, such as `"my_algo.py:MyAlgo"`.
    """
    label: str | None = None
    """Name of the entry in tables, and of its directory. Required if the same strategy is listed
    twice.
    """

    if TYPE_CHECKING:

        def __init__(self, *, strategy: Code, label: str | None = ..., **options: Any) -> None: ...

    @property
    def name(self) -> str:
        """The name of this entry in tables, and of its directory."""
        return self.label or self.strategy.split(":")[-1].lower()

    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


SHORTEST_REPORT_S = 2.0


class NetworkSection(Section):
    """Sockets and timers.

    Timers count wall-clock seconds, except `grace_s` and `task_timeout_s`: these count emulated
    seconds, because they are part of the experiment.
    """

    host: str = "127.0.0.1"
    """Address on which the coordinator listens, of IPv4 or IPv6 (`"::1"`). `"0.0.0.0"`: all of
    IPv4, `"::"`: all of both. An address other than loopback needs `--keys DIR` or `--insecure`.
    """
    port: int = Field(default=0, ge=0, le=65535)
    """TCP port of the coordinator; 0: any free port."""
    join_timeout_s: float = Field(default=60.0, gt=0)
    """Wall-clock seconds to wait for edges. The run starts when all edges have joined, or after
    this time with those that have joined.
    """
    heartbeat_s: float = Field(default=0.5, gt=0)
    """Wall-clock seconds between two heartbeats."""
    liveness_s: float = Field(default=4.0, gt=0)
    """Wall-clock seconds without a message after which an edge is lost; at least 3 x `heartbeat_s`.
    An edge that does not answer pings is lost two heartbeats later, even if it sends other
    messages.
    """
    grace_s: float = Field(default=10.0, ge=0)
    """Emulated seconds for which the task of a lost edge stays open, so that the edge can rejoin.
    """
    task_timeout_s: float | None = Field(default=None, ge=0)
    """Emulated seconds that the download, training and upload of a task may take together. After
    this time, the task is closed and its edge is free. Waiting for a grant, for slots or for a
    newer model does not count. 0: no limit. Default: each of the three phases has its own limit, 3
    x its emulated time and at least `liveness_s` longer. The emulated time of a transfer is that of
    the link alone, times the number of edges that share it. Native devices and links have no
    default limit.
    """
    window_ms: float = Field(default=50.0, gt=0)
    """How far the sent bytes may be ahead of the emulated link, in addition to the round trip: the
    bytes that the link carries in this many wall-clock ms.
    """
    piece_ms: float = Field(default=20.0, gt=0)
    """Size of a piece of a transfer on the wire: the bytes that the link carries in this many
    wall-clock ms. While 32 or more emulated transfers are under way, pieces are longer: by this
    length for each further 32, up to 3.8 x `window_ms`. A long piece's last byte is early by at
    most the window, and its first byte late by at most 2.8 x `window_ms`; the end of a transfer is
    never later for that.
    """
    pacing: Literal["auto", "kernel", "process"] = "process"
    """Who spaces the bytes of emulated links. `"process"`: the coordinator wakes up for each piece.
    `"kernel"`: the kernels of both ends do (Linux, no privileges). The coordinator wakes up less
    often and earlier, which takes .3 to .5 of its CPU time with 100 links of 2 Mbit/s. This
    concerns tasks and updates that take their link about 0.65 s or more (1 s below 1 Mbit/s, or
    with 100 edges), at a constant rate of about 0.6 to 10 Mbit/s (on one machine up to 70). The
    rest is spaced as with `"process"`. The run is strained if a kernel cannot. `"auto"`: as
    `"kernel"`, where it is possible.
    """
    max_edges: int = Field(default=100_000, ge=1)
    """Largest number of connected edges; further ones are refused. At least the number of edges."""
    realtime: Literal["auto", "off"] = "auto"
    """Real-time priority (SCHED_FIFO) of the coordinator's threads and its sockets. `"auto"`:
    used where the system allows it. `"off"`: not used. Processes that they start have normal
    priority.
    """

    report_s: float = Field(default=2.0, ge=0)
    """Wall-clock seconds between two reports of an edge about its host (processor, temperature,
    throttling, memory, bytes of its network interface), for `hosts.csv`, the live display and the
    verdict: at least 2. 0: no reports.
    """

    @model_validator(mode="after")
    def _reports_are_rare(self) -> NetworkSection:
        if 0 < self.report_s < SHORTEST_REPORT_S:
            raise ValueError(
                f"report_s: expected 0 or at least {SHORTEST_REPORT_S:g}, found {self.report_s:g}"
            )
        return self

    @model_validator(mode="after")
    def _a_heartbeat_may_be_late(self) -> NetworkSection:
        if to_ns(self.liveness_s) < 3 * to_ns(self.heartbeat_s):  # in ns, because 3 * 0.1 > 0.3
            raise ValueError(
                f"liveness_s: expected at least 3 times heartbeat_s ({3 * self.heartbeat_s:g}),"
                f" found {self.liveness_s:g}"
            )
        return self


class EdgeScores(Section):
    """The scores of the global model on each edge's own samples, for `clients.csv`: whether it
    serves every edge, or only most. Without this table they are not measured.

    The last model is always scored. Scoring takes no emulated time.
    """

    every_versions: int = Field(default=0, ge=0)
    """Also score the first model and every this many versions; 0: not by version."""
    every_s: float | None = Field(default=None, ge=1e-9)
    """Also score the first model and the current one every this many emulated seconds."""
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """Share of each edge's samples that it does not train on, and on which it is scored: of n
    samples the nearest whole number, at least 1 and at most n - 1. Each seed draws others. An edge
    with a single sample trains on it and has no scores. 0: an edge trains on all its samples and
    is scored on them.
    """


class Evaluation(Section):
    """When the global model is evaluated, what is measured, and how long that takes."""

    every_versions: int = Field(default=1, ge=0)
    """Evaluate every this many versions of the global model; 0: not by version. The first and the
    last model are always evaluated.
    """
    every_s: float | None = Field(default=None, ge=1e-9)  # less is 0 ns: time would never advance
    """Also evaluate every this many emulated seconds."""
    cost_s: float = Field(default=0.0, ge=0, le=9e9)
    """Emulated seconds from the moment at which a model is evaluated until its scores are known to
    strategies that hear of evaluations, and to `stop.target` and `stop.no_progress_s`; nothing else
    waits for them. 0: at the same emulated moment, after all that is due then. On the wall clock an
    evaluation takes its real time: if that is longer, the scores are known when it ends.
    """
    metric: Literal["accuracy", "f1", "perplexity", "exact_match"] = "accuracy"
    """The score that the target, the summary, tables, figures and the live page refer to.
    `"accuracy"`: share of right answers; of a causal language model, of right next tokens. `"f1"`:
    of label 1 with two labels, else the mean over labels. `"perplexity"`: e to the test loss.
    `"exact_match"`: share of answers of a causal language model, decoded greedily, whose last
    number is that of the test sample.
    """
    metrics: tuple[Literal["f1", "perplexity", "exact_match"], ...] = Field(
        default=(), strict=False
    )
    """Further scores to measure. Each one, and `metric`, is a column of `metrics.csv`."""
    target: float | None = Field(default=None, gt=0)
    """Target for `metric`. The time to target is the moment at which a model first reaches it."""
    target_accuracy: float | None = Field(default=None, gt=0, le=1)
    """Target for the test accuracy, as a share of 1: the same as `target` with `metric =
    "accuracy"`. The time to target is the moment at which a model first reaches it.
    """
    match_samples: int | None = Field(default=None, ge=1)
    """`"exact_match"`: number of test samples to decode, evenly spaced. Default: all."""
    answer_tokens: int = Field(default=256, ge=1, le=1_000_000)
    """`"exact_match"`: largest number of tokens of a decoded answer."""
    train_samples: int = Field(default=2000, ge=0)
    """Number of training samples for `train_loss`, a fixed sample of the edges' data; 0: no
    `train_loss`.
    """
    by_label: bool = False
    """Also measure the accuracy of each label, and write `labels.csv`, `edges.csv` (which edge has
    which labels) and `figures/runtimes.png`.
    """
    edges: EdgeScores | None = None

    @property
    def score(self) -> Score:
        """The score that the target refers to."""
        return SCORES[self.metric]

    @property
    def goal(self) -> float | None:
        """The target for ``score``."""
        return self.target_accuracy if self.target is None else self.target

    @property
    def further(self) -> tuple[str, ...]:
        """The scores besides the accuracy, in the order of their columns."""
        return tuple(name for name in SCORES if name in {*self.metrics, self.metric} - {"accuracy"})

    @model_validator(mode="after")
    def _one_target(self) -> Evaluation:
        if self.target_accuracy is not None:
            if self.score is not ACCURACY:
                raise ValueError(
                    f'target_accuracy: expected metric = "accuracy", found "{self.metric}"; write'
                    " target"
                )
            if self.target is not None:
                raise ValueError("expected target or target_accuracy, found both")
        if self.target is not None and self.target > self.score.largest:
            raise ValueError(
                f"target: expected at most {self.score.largest:g}, as a share of 1, found"
                f" {self.target:g}"
            )
        if len(set(self.metrics)) < len(self.metrics):
            raise ValueError("metrics: expected different names")
        return self


class LearningRateSchedule(Section):
    """How the learning rate changes over the steps of local training.

    Without this table it stays the same. Steps are counted from the start of the task; with
    `optimizer_state = "kept"`, over all tasks of the edge.
    """

    kind: Literal["constant", "linear", "cosine"] = "linear"
    """What follows the warm-up: `"constant"`, or a fall that is `"linear"` or follows a
    `"cosine"`.
    """
    warmup_steps: int = Field(default=0, ge=0)
    """Number of steps in which the learning rate grows evenly to its full value; step k of n has
    the share k / (n + 1).
    """
    total_steps: int | None = Field(default=None, ge=1)
    """Step at which the fall ends, counted from the first step of the warm-up; more than
    `warmup_steps`. Default: the steps of the task. Required with `optimizer_state = "kept"`.
    """
    end_share: float = Field(default=0.0, ge=0, le=1)
    """Learning rate after the fall, as a share of the full one."""

    @model_validator(mode="after")
    def _falls_after_the_warmup(self) -> LearningRateSchedule:
        if self.total_steps is not None and self.total_steps <= self.warmup_steps:
            raise ValueError(
                f"total_steps: expected more than warmup_steps ({self.warmup_steps}), found"
                f" {self.total_steps}"
            )
        return self


class LearningRateDecay(Section):
    """How the learning rate falls over the run.

    Without this table it does not. The coordinator computes a factor when it assigns a task, from
    the version of the global model or from the emulated time, and sends it with the task, whose
    learning rate stays the same to its end. It multiplies whatever rate the strategy has chosen,
    and `schedule` still applies to the steps of the task. In strategies whose edges send gradients
    and make no step, the factor multiplies the server's step (`server_learning_rate`), from the
    version or the time of that step.

    x is the number of whole periods of `every_versions` or `every_s` so far.
    """

    name: Literal["exponential", "inverse_sqrt", "steps", "linear"]
    """The factor. `"exponential"`: `factor`^x. `"inverse_sqrt"`: 1 / sqrt(1 + x). `"steps"`:
    `factor` to the power of the number of milestones so far (`at_versions` or `at_s`). `"linear"`:
    it falls evenly from 1 to `floor` until `over_versions` or `over_s`.
    """
    factor: float | None = Field(default=None, gt=0, le=1)
    """With `"exponential"`, of each period; with `"steps"`, of each milestone."""
    every_versions: int | None = Field(default=None, ge=1)
    """Length of a period in versions of the global model: with a synchronous strategy, in rounds.
    Default, if `every_s` is not given: 1.
    """
    every_s: float | None = Field(default=None, ge=1e-9)  # a shorter period is 0 ns
    """Length of a period in emulated seconds, instead of `every_versions`."""
    at_versions: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(), strict=False)
    """With `"steps"`: the versions from which on the rate is multiplied by `factor` once more, in
    order.
    """
    at_s: tuple[Annotated[float, Field(gt=0)], ...] = Field(default=(), strict=False)
    """With `"steps"`: milestones in emulated seconds, instead of `at_versions`."""
    over_versions: int | None = Field(default=None, ge=1)
    """With `"linear"`: the version at which the factor has fallen to `floor`."""
    over_s: float | None = Field(default=None, ge=1e-9)
    """With `"linear"`: the emulated time at which it has, instead of `over_versions`."""
    floor: float = Field(default=0.0, ge=0, lt=1)
    """The smallest factor. A learning rate that falls to 0 (below the smallest normal float32
    number) is an error if `stop` tells that it will, and otherwise ends the run there.
    """

    @property
    def counts_versions(self) -> bool:
        """Whether the factor depends on the version; otherwise on the emulated time."""
        return self.every_s is None and self.over_s is None and not self.at_s

    def at(self, version: int, now_ns: int) -> float:
        """The factor for what begins at ``version`` and at ``now_ns`` (emulated)."""
        if self.name == "steps":
            passed = [at_s for at_s in self.at_s if to_ns(at_s) <= now_ns]
            passed += [at for at in self.at_versions if at <= version]
            assert self.factor is not None
            return max(self.floor, self.factor ** len(passed))
        if self.name == "linear":
            if self.over_s is not None:
                share = now_ns / to_ns(self.over_s)
            else:
                share = version / (self.over_versions or 1)
            return self.floor + (1.0 - self.floor) * max(0.0, 1.0 - share)
        if self.every_s is not None:
            periods = now_ns // to_ns(self.every_s)
        else:
            periods = version // (self.every_versions or 1)
        if self.name == "inverse_sqrt":
            return max(self.floor, 1.0 / math.sqrt(1 + periods))
        assert self.factor is not None
        return max(self.floor, self.factor**periods)

    @model_validator(mode="after")
    def _whole(self) -> LearningRateDecay:
        keys = {
            "exponential": ("factor", "every_versions", "every_s"),
            "inverse_sqrt": ("every_versions", "every_s"),
            "steps": ("factor", "at_versions", "at_s"),
            "linear": ("over_versions", "over_s"),
        }
        for key in dict.fromkeys(key for of in keys.values() for key in of):
            if is_set(self, key) and key not in keys[self.name]:
                names = " or ".join(f'"{name}"' for name, of in keys.items() if key in of)
                raise ValueError(f'{key}: expected name = {names}, found "{self.name}"')
        of_versions, of_s = keys[self.name][-2:]
        if is_set(self, of_versions) and is_set(self, of_s):
            raise ValueError(f"expected {of_versions} or {of_s}, found both")
        if "factor" in keys[self.name] and self.factor is None:
            raise ValueError(f'factor: missing; name = "{self.name}" needs it')
        needed = self.name in ("steps", "linear")
        if needed and not (is_set(self, of_versions) or is_set(self, of_s)):
            raise ValueError(f'{of_versions}: missing; name = "{self.name}" needs it, or {of_s}')
        for key, found in (("at_versions", self.at_versions), ("at_s", self.at_s)):
            if list(found) != sorted(set(found)):
                raise ValueError(f"{key}: expected larger and larger numbers, found {list(found)}")
        return self


class Training(Section):
    """Local training on an edge. A strategy may override epochs and the learning rate for its
    tasks.
    """

    epochs: int = Field(default=1, ge=1, le=1_000_000)
    """Epochs in one task. An epoch is a pass over the edge's samples, or `batches_per_epoch`."""
    batches_per_epoch: int | None = Field(default=None, ge=1, le=10_000)
    """Steps of the optimizer in one epoch; none: a pass over the edge's samples. The batches are
    those of shuffled passes. With 1, as some papers print their equations, an epoch is one
    mini-batch. Refresh points count epochs.
    """
    batch_size: int = Field(default=32, ge=1, le=10_000_000)
    """Samples per step of the optimizer."""
    drop_last: bool = False
    """Leave out the last batch of each pass over the samples if it is smaller than `batch_size`, as
    `drop_last` of torch's `DataLoader` does. Normalisation over a batch (BatchNorm) fails on a last
    batch of one sample. The samples are shuffled before each pass, so that others are left out each
    time. An edge with fewer samples than a batch trains on all of them, in one batch.
    """
    micro_batch_size: int | None = Field(default=None, ge=1, le=10_000_000)
    """Samples that go through the model at one time; the gradients of a batch's parts are
    accumulated. A smaller value needs less memory, and the gradient stays that of the whole batch
    (but normalisation layers see one part at a time). Default: the whole batch.
    """
    learning_rate: float = Field(default=0.05, gt=0)
    """Learning rate of local training."""
    schedule: LearningRateSchedule | None = None
    decay: LearningRateDecay | None = None
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """The optimizer on the edges: `"sgd"`, or `"adamw"`, which is usual for transformers.
    Strategies that compute gradients from an edge's change of weights need `"sgd"`.
    """
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """Momentum of SGD. The momentum buffer starts at 0 in each task, or see `optimizer_state`.
    Strategies that compute gradients from an edge's change of weights need 0.
    """
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of AdamW's first moment."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of AdamW's second moment."""
    epsilon: float = Field(default=1e-8, gt=0)
    """Added to the root of AdamW's second moment, to avoid a division by 0."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Weight decay. SGD adds it to the gradient (L2 penalty); AdamW shrinks the weights by it times
    the learning rate.
    """
    optimizer_state: Literal["fresh", "kept"] = "fresh"
    """State of the optimizer (momentum, moments, number of steps) when a task begins. `"fresh"`: it
    starts anew. `"kept"`: it stays on the edge from the last task whose update was acknowledged.
    """
    trainer: Literal["sgd", "none"] = "sgd"
    """`"sgd"`: edges train, with the optimizer above. `"none"`: tasks take their emulated time but
    return the received model unchanged. Use `"none"` for studies of timing and scheduling only.
    """

    engine: Literal["auto", "compiled", "torch"] = "auto"
    """What computes training, evaluation and the server's jobs on a CPU. `"compiled"`: machine code
    made for the model, several times as fast for small networks: any `nn.Sequential` of
    convolutions, max pooling, ReLU and linear layers, with cross-entropy. `"torch"`: eager torch.
    `"auto"`: the compiled step where it fits, otherwise torch; `summary.json` says which. The two
    differ in the last bits of each sum.
    """
    device: str | None = Field(default=None, examples=["cuda", "cuda:1", "auto"])
    """Where models are trained and evaluated and jobs run: `"cpu"`, the default; `"cuda"`, the
    first GPU; `"cuda:N"`, GPU N, counted from 0; or `"auto"`, the first GPU of each machine that
    has one, otherwise its CPU. Each machine of a run may have another one.
    """
    tasks_at_once: int | None = Field(default=None, ge=1, le=10_000, examples=[10])
    """Virtual clock, with one worker: up to so many tasks that are under way at the same time are
    trained together, in one call of torch for a step of all of them. It is meant for GPUs.
    Strategies whose devices do plain SGD allow it; the others train one by one, and the run says
    why. Default: 1.
    """

    @field_validator("device")
    @classmethod
    def _device_exists(cls, device: str | None) -> str | None:
        if device is not None and not re.fullmatch(r"cpu|auto|cuda(:(0|[1-9]\d?))?", device):
            raise ValueError(f'expected "cpu", "cuda", "cuda:N" or "auto", found {device!r}')
        return device

    @model_validator(mode="after")
    def _keys_of_the_optimizer(self) -> Training:
        strange = ("momentum",) if self.optimizer == "adamw" else ("beta1", "beta2", "epsilon")
        of = "sgd" if self.optimizer == "adamw" else "adamw"
        for key in strange:
            if is_set(self, key):
                raise ValueError(f'{key}: expected only with optimizer = "{of}"')
        schedule = self.schedule
        if (
            schedule is not None
            and schedule.kind != "constant"
            and schedule.total_steps is None
            and self.optimizer_state == "kept"
        ):
            raise ValueError(
                'schedule.total_steps: missing; optimizer_state = "kept" counts the steps of all'
                " tasks of an edge"
            )
        return self


Count = Annotated[int, Field(ge=1, le=10**9)]


class FlowerSection(Section):
    """A Flower app as the task (`task = "flower:PATH"`): what it does not say itself."""

    samples: Count | Annotated[tuple[Count, ...], Field(strict=False)]
    """Training samples of each edge: one number, or one for each edge. A task takes the emulated
    time of `samples` times `training.epochs`. An edge's reported `num-examples` counts up to this
    number.
    """
    run_config: dict[str, Any] = Field(default_factory=dict)
    """Other values for keys of the app's `[tool.flwr.app.config]`, as `flwr run --run-config`
    gives.
    """
    loss: str | None = None
    """Name of the loss among the metrics that the app's evaluation returns. Default: the only one
    whose name contains "loss".
    """
    accuracy: str | None = None
    """Name of the accuracy among the metrics that the app's evaluation returns. Default: the only
    one whose name contains "acc".
    """

    def samples_of(self, count: int) -> list[int]:
        """The samples of each of ``count`` edges, in order."""
        return [self.samples] * count if isinstance(self.samples, int) else list(self.samples)


class Experiment(Section):
    """The keys and tables of an experiment file."""

    name: str = Field(default="run", pattern=RUN_NAME)
    """Name of the experiment, and of the directory of its runs: at most 64 characters from A-Z,
    a-z, 0-9, `_`, `.` and `-`, beginning with a letter or a digit.
    """
    seed: int = Field(default=1, ge=0)
    """Seed of the partition, the first model, the devices, the selection of edges and the batches.
    All strategies of the file use the same seed.
    """
    seeds: (
        Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1, strict=False)] | None
    ) = None
    """Several seeds instead of `seed`, such as `[1, 2, 3]`. Every strategy runs once with each
    seed.
    """
    speed: Annotated[float, Field(gt=0, le=MOST_SPEED)] | Literal["auto"] = 1.0
    """Emulated seconds per wall-clock second. `"auto"`: the highest speed up to 1 that the host can
    keep, chosen at the start of the run. No effect under the virtual clock.
    """
    task: PlugInName | None = None
    """Your own data, model and loss instead of `[data]` and `[model]`, as `"my_task.py:build"` or
    `"my_pkg.my_task:build"`; or a Flower app, as `"flower:PATH"` with the app's folder.
    """
    flower: FlowerSection | None = None
    data: Data = Data()
    partition: Named = Named(name="iid")
    """How the training samples are divided among the edges."""
    unlabelled: Unlabelled | None = None
    model: Named = Named(name="mlp")
    """The model that is trained."""
    training: Training = Training()
    edges: Edges = Edges()
    links: Links = Links()
    devices: Devices = Devices()
    groups: tuple[Group, ...] = Field(default=(), strict=False)
    medium: Medium = Medium()
    network: NetworkSection = NetworkSection()
    stop: Stop
    evaluation: Evaluation = Evaluation()
    updates: UpdatesSection = UpdatesSection()
    compression: Compression = Compression()
    record: RecordSection = RecordSection()
    fidelity: FidelityLimits = FidelityLimits()
    faults: tuple[FaultEntry, ...] = Field(default=(), strict=False)
    strategies: tuple[StrategyEntry, ...] = Field(min_length=1, strict=False)

    @property
    def held_out(self) -> float:
        """The share of each edge's samples that it does not train on."""
        section = self.evaluation.edges
        return 0.0 if section is None else section.held_out

    @property
    def stop_score(self) -> Score:
        """The score that ``stop.target`` and ``stop.no_progress_s`` refer to."""
        target, scores = self.stop.target, measured(self.evaluation)
        name = self.evaluation.metric if target is None else target.metric
        return scores[name or self.evaluation.metric]

    @property
    def stop_value(self) -> float | None:
        """The value of ``stop.target``; None if there is none."""
        target, evaluation = self.stop.target, self.evaluation
        if target is None:
            return None
        if target.value is None and self.stop_score is evaluation.score:
            return evaluation.goal
        return target.value

    @property
    def chosen_speed(self) -> float:
        """``speed`` as a number.

        "auto" counts as its upper limit. This is its value under the virtual clock, and before the
        start of a run chooses one.
        """
        return MOST_AUTO_SPEED if self.speed == "auto" else self.speed

    @model_validator(mode="after")
    def _names_differ(self) -> Experiment:
        names = [entry.name for entry in self.strategies]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"two strategies are named {twice[0]!r}: give one of them another label"
            )
        return self

    @model_validator(mode="after")
    def _seeds_differ(self) -> Experiment:
        if self.seeds is None:
            return self
        if self.seed != Experiment.model_fields["seed"].default:
            raise ValueError(
                f"give seed or seeds, not both (found seed = {self.seed}, seeds ="
                f" {list(self.seeds)})"
            )
        twice = next((seed for seed in self.seeds if self.seeds.count(seed) > 1), None)
        if twice is not None:
            raise ValueError(f"seeds: expected different numbers, found {twice} twice")
        return self

    def by_seed(self) -> list[Experiment]:
        """Return this experiment once for each of its seeds, in order, each with ``seed`` alone."""
        if self.seeds is None:
            return [self]
        return [self.model_copy(update={"seed": seed, "seeds": None}) for seed in self.seeds]

    @model_validator(mode="after")
    def _room_for_all(self) -> Experiment:
        edges = len(self.edges.ids())
        if self.network.max_edges < edges:
            raise ValueError(
                f"network.max_edges: expected at least the number of edges ({edges}), found"
                f" {self.network.max_edges}"
            )
        return self

    @model_validator(mode="after")
    def _native_devices_share_no_process(self) -> Experiment:
        shared = self.edges.per_process
        kinds = [group.devices.get("kind", self.devices.kind) for group in self.groups]
        if shared not in ("auto", 1) and "native" in (kinds or [self.devices.kind]):
            raise ValueError(
                f'edges.per_process: expected 1 or "auto" with native devices, found {shared}:'
                " their training takes the time that the hardware needs for one of them"
            )
        return self

    @model_validator(mode="after")
    def _groups_are_all_edges(self) -> Experiment:
        names, edges = [group.name for group in self.groups], len(self.edges.ids())
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"groups: two groups are named {twice[0]!r}")
        counted = sum(group.count for group in self.groups)
        if self.groups and counted != edges:
            raise ValueError(
                f"groups: their counts add up to {counted}, expected the number of edges ({edges})"
            )
        return self


# ---------------------------------------------------------------------- groups
# The links and devices of each edge: the base sections with the overrides of its group.

# keys that a profile sets: a group with a profile does not inherit them from the base section
ONE_PROFILE = {
    "links": (
        "up_mbit_s",
        "down_mbit_s",
        "latency_ms",
        "jitter_ms",
        "loss",
        "trace_up",
        "trace_down",
    ),
    "devices": ("samples_per_s",),
}
CHECKED = Source("config")  # for a valid experiment: no error will name this source
# keys of a speed, which a group with another unit does not inherit
# a key that is said later replaces another one, which would hide it or contradict it
INSTEAD = {
    "seed": "seeds",
    "seeds": "seed",
    "links.up_mbit_s": "trace_up",
    "links.down_mbit_s": "trace_down",
    "devices.samples_per_s": "samples_per_slot",
}
SPEEDS = ("samples_per_s", "tokens_per_s", "samples_per_slot", "profile")
WITHOUT_CAPS = ("bottleneck", "tdma")  # media on which edges have no rate of their own
TRACES = ("trace_up", "trace_down")
Table = TypeVar("Table", bound=Section)


@dataclass(frozen=True, slots=True)
class Part:
    """Edges with the same links and devices.

    ``name`` is empty if the experiment has no groups. ``at``: where its tables are in the file.
    """

    name: str
    at: Loc
    ids: tuple[str, ...]
    links: Links
    devices: Devices


def parts(experiment: Experiment, source: Source = CHECKED) -> list[Part]:
    """Return the groups in order, or one part with all edges.

    UserError if a key of a group is invalid.
    """
    ids = experiment.edges.ids()
    if not experiment.groups:
        return [Part("", (), tuple(ids), experiment.links, experiment.devices)]
    found: list[Part] = []
    first = 0
    for index, group in enumerate(experiment.groups):
        at = ("groups", index)
        links = _merged(Links, experiment.links, group, "links", at, source)
        devices = _merged(Devices, experiment.devices, group, "devices", at, source)
        mine = tuple(ids[first : first + group.count])
        found.append(Part(group.name, at, mine, links, devices))
        first += group.count
    return found


class PartFinder:
    """Finds an edge's part, and its place in it, without a table of all edges."""

    def __init__(self, experiment: Experiment) -> None:
        self.parts, self._places = parts(experiment), experiment.edges.places()
        self._firsts = [0]
        for part in self.parts[:-1]:
            self._firsts.append(self._firsts[-1] + len(part.ids))

    def find(self, edge: str) -> tuple[int, int]:
        """Return (index in ``parts``, place in its ids). KeyError if there is no such edge."""
        place = self._places[edge]
        index = bisect_right(self._firsts, place) - 1
        return index, place - self._firsts[index]

    def part(self, edge: str) -> Part:
        return self.parts[self.find(edge)[0]]


def _merged(
    kind: type[Table], base: Table, group: Group, table: str, loc: Loc, source: Source
) -> Table:
    said: dict[str, Any] = getattr(group, table)
    whole = base.model_dump(exclude_none=True)
    if "profile" in said:
        whole = {key: value for key, value in whole.items() if key not in ONE_PROFILE[table]}
    if "unit" in said:
        whole = {key: value for key, value in whole.items() if key not in SPEEDS}
    if "spread" in said:
        whole = {
            key: value
            for key, value in whole.items()
            if key not in ("slowest_ratio", "sigma", "long", "gamma", "task_samples", "sampler")
        }
    for key in said:
        other = INSTEAD.get(f"{table}.{key}")
        if other is not None and other not in said:
            whole.pop(other, None)
    return validated(kind, whole | said, source, (*loc, table))


def check_groups(experiment: Experiment, source: Source, base: Path | None) -> None:
    """Check groups, traces and the medium together; UserError for the first problem.

    Without ``base``, trace files are not read.
    """
    _check_traces(experiment.medium, ("medium",), source, base)
    found = parts(experiment, source)
    modelled = any(part.devices.energy or part.links.radio for part in found)
    if experiment.stop.target_joules is not None and not modelled:
        said = "expected with [devices.energy] or [links.radio]: without, no energy is modelled"
        raise source.error(("stop", "target_joules"), said)
    for part in found:
        loc = (*part.at, "links")
        if part.links.kind == "native":
            continue
        if experiment.medium.kind in WITHOUT_CAPS:
            _check_no_own_rate(part.links, loc, experiment.medium, source)
        _check_traces(part.links, loc, source, base)


def _check_traces(table: Links | Medium, loc: Loc, source: Source, base: Path | None) -> None:
    for key in TRACES:
        name = getattr(table, key)
        if name is not None and base is not None:
            try:
                trace(name, base)
            except BadValue as error:
                raise source.error((*loc, key), f"{error}{_near(base / name)}") from error


def trace(name: str, base: Path, start: Start = "run") -> Trace:
    """Read a trace file; ``name`` is relative to ``base``, the config's directory.

    BadValue if it is missing or not a trace.
    """
    return read_trace(base / Path(name).expanduser(), start)


def traces(experiment: Experiment) -> list[str]:
    """The names of all trace files, each once."""
    tables: list[Medium | Links] = [
        experiment.medium,
        *(part.links for part in parts(experiment) if part.links.kind == "emulated"),
    ]
    return list(
        dict.fromkeys(
            name for one in tables for name in (one.trace_up, one.trace_down) if name is not None
        )
    )


def availability_file(experiment: Experiment) -> list[str]:
    """The name of the file with the edges' availability, if there is one."""
    section = experiment.edges.availability
    return [] if section is None or section.file is None else [section.file]


def group_warnings(experiment: Experiment, base: Path) -> list[str]:
    """Return warnings about traces, and about keys that have no effect on the chosen medium."""
    found: list[str] = []
    for read in (trace(name, base) for name in traces(experiment)):
        found += read.warnings
        if experiment.stop.emulated_s is None or read.period_ns < to_ns(experiment.stop.emulated_s):
            found.append(f"{read.name} {read.repeats}")
    return found + _unused(experiment)


def _unused(experiment: Experiment) -> list[str]:
    medium = experiment.medium
    if medium.kind not in WITHOUT_CAPS:
        return []
    links = [part.links for part in parts(experiment) if part.links.kind == "emulated"]
    rates = dict.fromkeys(rate for one in links for rate in _rates_said(one, medium.shared))
    named = dict.fromkeys(
        one.profile for one in links if one.profile is not None and one.loss is None
    )
    unused = [f"the loss of profile {name}" for name in named if profiles.link_profile(name).loss]
    if rates:
        unused.append(", ".join(rates))
    return [
        f'links: {what} has no effect on a medium of kind "{medium.kind}", where edges have no'
        " rate of their own"
        for what in unused
    ]


def _rates_said(links: Links, ways: tuple[str, ...]) -> list[str]:
    """The rates that differ from the defaults, for messages."""
    keys = [f"{way}_mbit_s" for way in ways]
    values = {key: getattr(links, key) for key in keys if getattr(links, key) is not None}
    unsaid = LINK_DEFAULTS if links.profile is None else {}
    return [f"{key} = {value:g}" for key, value in values.items() if value != unsaid.get(key)]


def _check_no_own_rate(links: Links, loc: Loc, medium: Medium, source: Source) -> None:
    for key in (*(f"trace_{way}" for way in medium.shared), "loss"):
        if getattr(links, key):
            or_medium = (
                f" (or medium.{key}: the shared rate)"
                if key in TRACES and medium.kind == "bottleneck"
                else ""
            )
            said = (
                f'edges on a medium of kind "{medium.kind}" have no rate of their own: expected'
                f' kind = "cell"{or_medium}, or no {key}'
            )
            raise source.error((*loc, key), said)


def _near(path: Path) -> str:
    return (
        ""
        if path.exists()
        else nearest(
            path.name, [file.name for file in path.parent.glob("*") if file.suffix == path.suffix]
        )
    )
