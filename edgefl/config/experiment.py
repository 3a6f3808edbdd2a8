"""The experiment file, typed and strict: frozen sections, unknown keys refused, units in the key
names.

``edgefl.loading.file`` reads it from TOML; the reference in ``docs`` is made from the texts here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from edgefl.config.faults import FaultEntry
from edgefl.config.links import Devices, Group, Links, Medium
from edgefl.config.section import Section
from emulator.units import FOREVER, to_ns

MOST_AUTO_SPEED = 1.0
MOST_SPEED = 1e6  # beyond, moments do not fit into a message
EDGE_ID = r"^[a-z0-9][a-z0-9_-]{0,31}$"
RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
PATTERNS = {  # in words
    EDGE_ID: "at most 32 of a-z, 0-9, _ and -, beginning with a letter or digit",
    RUN_NAME: (
        "at most 64 of A-Z, a-z, 0-9, _, . and -, beginning with a letter or digit: it names a"
        " directory"
    ),
}


class Named(Section):
    """A part whose ``name`` picks a file of a folder; its other keys are that file's own
    ``Options``.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    name: str
    """A name of the catalog, or your own, such as `"my_model.py:build"`; its options stand next to
    it.
    """

    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Data(Named):
    """Which data set, where its files lie (else $EDGEFL_DATA, else data/), what an edge has of it
    (``edgefl.data.edge_data``), and what a model sees of a picture (``Dataset.scaled``).
    """

    name: str = "digits"
    """Data set: one of `edgefl datasets`, or your own, `"my_data.py:load"`."""
    dir: str | None = None
    """Directory of its files, relative to the one in which edgefl starts; none: `$EDGEFL_DATA`,
    else `data/`.
    """
    source: Literal["partition", "shard", "local"] = "partition"
    """What an edge has of it: `"partition"`, the whole set, of which it takes its share; `"shard"`,
    its own file of `edgefl data shard`; `"local"`, a data set of its own.
    """
    scale: Literal["raw", "unit", "standard"] = "standard"
    """What a model sees of a picture: `"raw"`, the pixels as they are, 0 to 255 (`digits`: 0 to
    16); `"unit"`, 0 to 1; `"standard"`, less the set's mean and divided by its deviation, in
    most sets by channel.
    """


class Unlabelled(Section):
    """What the server has for distillation: ``data`` is a data set's name, or "held_out":
    training samples that no edge gets (in-domain).
    """

    data: str = "held_out"
    """Samples without labels at the server, for strategies that distil: a data set by name (its
    unlabelled part if it has one, else its training part), or `"held_out"`: training samples
    that no edge gets, so from the same domain (`summary.json` says `in_domain`). None of them
    may be a test sample. Without a table `[unlabelled]` there are none.
    """
    size: int = Field(2000, ge=1)
    """How many, evenly spaced through that set: the same for every seed."""
    transform: Literal["none", "fit"] = (
        "none"  # "fit": another set's pictures get the channels and the size of ours
    )
    """`"fit"`: another set's pictures get the channels (grey or colour) and the size of ours."""


class Training(Section):
    """Local SGD on an edge; a strategy may override it for all its tasks."""

    epochs: int = Field(1, ge=1)
    """Passes over an edge's samples in one task."""
    batch_size: int = Field(32, ge=1)
    """Samples per step."""
    learning_rate: float = Field(0.05, gt=0)
    """Of local SGD."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """Of local SGD, below 1; starts anew with each task."""
    weight_decay: float = Field(0.0, ge=0)
    """Of local SGD."""
    trainer: Literal["sgd", "none"] = "sgd"  # "none": tasks take their time and change nothing
    """Or `"none"`: tasks take their emulated time and change nothing, for what depends on time and
    turns alone.
    """


class Edges(Section):
    """How many edges; their ids are e000, e001, ..., unless ``names`` gives them (then ``count``
    says nothing).
    """

    count: int = Field(10, ge=1, le=100_000)
    """Number of edges; their ids are e000, e001, ..."""
    names: tuple[Annotated[str, Field(pattern=EDGE_ID)], ...] = Field((), strict=False)
    """Ids of the edges instead (`count` then says nothing), as `["pi-1", "pi-2"]`: at most 32 of
    a-z, 0-9, `_` and `-`.
    """

    def ids(self) -> list[str]:
        """Every edge's id; its place in the list is its share of the data and its device."""
        return list(self.names) or [f"e{number:03d}" for number in range(self.count)]


class NetworkSection(Section):
    """The real sockets. Timers are wall seconds, but ``grace_s`` and ``task_timeout_s`` are
    emulated: they are part of the scheme.
    """

    host: str = "127.0.0.1"
    """Address that the coordinator listens on; off loopback it wants `--keys DIR` or `--insecure`.
    """
    port: int = Field(0, ge=0, le=65535)  # 0: any free port
    """TCP port; 0: any free one."""
    join_timeout_s: float = Field(60.0, gt=0)
    """The run starts when all edges have joined, or after this many wall seconds with those that
    have.
    """
    heartbeat_s: float = Field(0.5, gt=0)
    """Wall seconds between signs of life."""
    liveness_s: float = Field(4.0, gt=0)
    """Wall seconds of silence after which an edge counts as lost; at least three heartbeats. An
    edge that answers no ping is lost two heartbeats later, whatever else it sends.
    """
    grace_s: float = Field(10.0, ge=0)
    """Emulated seconds that a lost edge's task stays open."""
    task_timeout_s: float | None = Field(None, ge=0)
    """Emulated seconds that a task's download, training and upload may take together before it is
    closed and its edge is free for another. Waiting for a grant, for slots or for a fresher model
    does not count. Default: each of the three has a limit of its own, 3 x its emulated time and at
    least `liveness_s` longer (a transfer's: that of its link alone, as often as edges share it);
    native devices and links have none. 0: no limit.
    """
    # how far bytes may run ahead of the service curve, besides the round trip
    window_ms: float = Field(50.0, gt=0)
    """How far bytes may run ahead of the emulated link, besides the round trip, ms of link time."""
    piece_ms: float = Field(20.0, gt=0)
    """Size of a piece on the wire, ms of link time."""
    max_edges: int = Field(100_000, ge=1)
    """More sessions than this are refused; at least the number of edges."""
    realtime: Literal["auto", "off"] = "auto"  # "auto": where the system allows it
    """Real-time priority (SCHED_FIFO) of the coordinator's two threads and its sockets: `"auto"`,
    where the system allows it; `"off"`. What they start has normal priority.
    """

    @model_validator(mode="after")
    def _a_heartbeat_may_be_late(self) -> NetworkSection:
        if to_ns(self.liveness_s) < 3 * to_ns(self.heartbeat_s):  # in ns: 3 * 0.1 is more than 0.3
            raise ValueError(
                f"liveness_s: expected at least 3 times heartbeat_s ({3 * self.heartbeat_s:g}),"
                f" found {self.liveness_s:g}"
            )
        return self


class Stop(Section):
    """The run ends at the first of these that is reached; at least one must be given."""

    versions: int | None = Field(None, ge=1)
    """End at this version of the global model. Of the three `stop` keys at least one must be given;
    the first that is reached ends the run.
    """
    updates: int | None = Field(None, ge=1)
    """End after this many updates that were received and not discarded."""
    emulated_s: float | None = Field(None, gt=0, le=9e9)  # moments have 63 bits
    """End after this many emulated seconds."""

    @property
    def at_ns(self) -> int:
        """The last moment of the run, as far as it is known."""
        return FOREVER if self.emulated_s is None else to_ns(self.emulated_s)

    @model_validator(mode="after")
    def _one_given(self) -> Stop:
        if self.versions is None and self.updates is None and self.emulated_s is None:
            raise ValueError("give at least one of versions, updates, emulated_s")
        return self


class Evaluation(Section):
    """When snapshots are evaluated; never on the emulated clock."""

    every_versions: int = Field(1, ge=0)  # 0: the first and the last model only
    """Evaluate every so many versions; 0: not by version (the first and the last model always are).
    """
    every_s: float | None = Field(None, ge=1e-9)  # below a nanosecond its moment would never pass
    """Evaluate every so many emulated seconds, too."""
    target_accuracy: float | None = Field(None, gt=0, le=1)
    """Test accuracy (0 to 1) whose first crossing is the time to target."""
    # size of the fixed sample for train_loss; 0: no train_loss
    train_samples: int = Field(2000, ge=0)
    """Size of the fixed sample of the devices' data for `train_loss`; 0: no `train_loss`."""
    by_label: bool = (
        False  # accuracy of each label too: labels.csv, and edges.csv says who holds which
    )
    """Accuracy of each label too: `labels.csv`, `edges.csv`, `figures/runtimes.png`."""


class UpdatesSection(Section):
    """What the coordinator takes from an edge. ``norm_bound``: the largest L2 norm of the change
    from the model that the edge was given, and of each vector that is no model (a gradient).
    """

    norm_bound: float | None = Field(None, gt=0)
    """Updates whose change has a larger L2 norm than this, in units of the weights, are discarded:
    `"weights"` is compared with the model that the edge was given, any other vector (a gradient)
    with 0. One update of 3e38 can ruin a model.
    """


class RecordSection(Section):
    """What is kept besides the tables; ``payloads`` keeps every array, so that the run can be
    replayed.
    """

    payloads: bool = False
    """Keep every array of the journal, so that `edgefl replay` can check the run."""


class FidelityLimits(Section):
    """When a run is called strained (docs/explanation/verdict.md)."""

    transfer_lag_ms: float = Field(5.0, gt=0)
    """Strained if the 99th percentile of transfers' lateness is above this ..."""
    transfer_lag_share: float = Field(0.02, ge=0)
    """... and above this share of the transfer's time."""
    overrun_share: float = Field(0.01, ge=0)
    """Strained if more than this share of tasks took longer than their emulated time."""


class StrategyEntry(Section):
    """One scheme of the comparison; keys besides these two are the strategy's own options."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    strategy: str
    """A scheme to compare: one of `edgefl strategies`, or your own, `"my_algo.py:MyAlgo"`; its
    options follow in the same table.
    """
    label: str | None = None
    """Names its directory and its row; needed if one strategy is there twice."""

    @property
    def name(self) -> str:
        """The directory and table name of this entry."""
        return self.label or self.strategy.split(":")[-1].lower()

    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Experiment(Section):
    """A whole experiment file."""

    name: str = Field("run", pattern=RUN_NAME)
    """Names the run's directory; letters, digits, `_` `.` `-`."""
    seed: int = Field(1, ge=0)
    """Of partition, first model, devices, selection and batches; the same for every strategy of the
    file.
    """
    # instead of seed: a run for each
    seeds: (
        Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1, strict=False)] | None
    ) = None
    """Several, in place of `seed`, as `[1, 2, 3]`: every strategy runs once with each."""
    # emulated seconds per real second, on the wall clock; "auto": the start of the run chooses it
    speed: Annotated[float, Field(gt=0, le=MOST_SPEED)] | Literal["auto"] = 1.0
    """Emulated seconds per real second, on the wall clock; `"auto"`: the highest up to 1 that this
    host keeps up with. Under the virtual
    clock it has no effect.
    """
    task: str | None = None  # "my_task.py:build": own data and model instead of [data] and [model]
    """Your own data, model and loss instead of `[data]` and `[model]`: `"my_task.py:build"` or
    `"my_pkg.my_task:build"`.
    """
    data: Data = Data()
    partition: Named = Named(name="iid")
    unlabelled: Unlabelled | None = None
    model: Named = Named(name="mlp")
    training: Training = Training()
    edges: Edges = Edges()
    links: Links = Links()
    devices: Devices = Devices()
    groups: tuple[Group, ...] = Field((), strict=False)
    medium: Medium = Medium()
    network: NetworkSection = NetworkSection()
    stop: Stop
    evaluation: Evaluation = Evaluation()
    updates: UpdatesSection = UpdatesSection()
    record: RecordSection = RecordSection()
    fidelity: FidelityLimits = FidelityLimits()
    faults: tuple[FaultEntry, ...] = Field((), strict=False)
    strategies: tuple[StrategyEntry, ...] = Field(min_length=1, strict=False)

    @property
    def chosen_speed(self) -> float:
        """``speed`` as a number. "auto" counts as the highest that it can choose where no host has
        to keep up: under the virtual clock, and before the start of a run has chosen.
        """
        return MOST_AUTO_SPEED if self.speed == "auto" else self.speed

    @model_validator(mode="after")
    def _names_differ(self) -> Experiment:
        names = [entry.name for entry in self.strategies]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two strategies are called {twice[0]!r}: give one of them a label")
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
            raise ValueError(f"seeds: expected numbers that differ, found {twice} twice")
        return self

    def by_seed(self) -> list[Experiment]:
        """This experiment once for each of its seeds, in order, every one as if it had been
        given that ``seed`` alone.
        """
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
    def _groups_are_all_edges(self) -> Experiment:
        names, edges = [group.name for group in self.groups], len(self.edges.ids())
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"groups: two are called {twice[0]!r}")
        counted = sum(group.count for group in self.groups)
        if self.groups and counted != edges:
            raise ValueError(
                f"groups: their counts add up to {counted}, expected the number of edges ({edges})"
            )
        return self
