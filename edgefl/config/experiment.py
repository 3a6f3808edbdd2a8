"""The schema of the experiment file: frozen sections, strict types, unknown keys refused.

The names of keys contain their units. ``edgefl.loading.file`` reads the file from TOML. The text
below each key is its entry in the generated reference (docs/reference/generated/config.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from edgefl.config.availability import Availability
from edgefl.config.evaluation import Evaluation
from edgefl.config.faults import FaultEntry
from edgefl.config.flower import FlowerSection
from edgefl.config.links import Devices, Group, Links, Medium
from edgefl.config.network import NetworkSection
from edgefl.config.section import Section
from edgefl.config.training import Training
from emulator.units import FOREVER, to_ns

MOST_AUTO_SPEED = 1.0
MOST_SPEED = 1e6  # with a higher speed, moments do not fit into a message
EDGE_ID = r"^[a-z0-9][a-z0-9_-]{0,31}$"
RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
PATTERNS = {  # the patterns in words, for error messages
    EDGE_ID: "at most 32 of a-z, 0-9, _ and -, beginning with a letter or digit",
    RUN_NAME: (
        "at most 64 of A-Z, a-z, 0-9, _, . and -, beginning with a letter or digit: it names a"
        " directory"
    ),
}


class Named(Section):
    """A plug-in, chosen by `name`. The other keys of the table are the options of this plug-in."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    name: str
    """Name of the plug-in: one of the catalog, or your own, such as `"my_model.py:build"`. Its
    options are further keys of this table.
    """

    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Data(Named):
    """The data set, its files, which part of it an edge has, and the scaling of pictures."""

    name: str = "digits"
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


class Unlabelled(Section):
    """Samples without labels at the server, for strategies that distil.

    Without this table there are none.
    """

    data: str = "held_out"
    """Source of the samples: the name of a data set (its unlabelled part if it has one, else its
    training part), or `"held_out"`: training samples that no edge gets. Held-out samples are from
    the same domain (`in_domain` in `summary.json`). A sample that is also a test sample is an
    error.
    """
    size: int = Field(2000, ge=1)
    """Number of samples. They are evenly spaced in the source, so every seed uses the same ones."""
    transform: Literal["none", "fit"] = "none"
    """Conversion of another data set's pictures. `"none"`: used as they are. `"fit"`: converted to
    the channels (grey or colour) and the size of the pictures in `[data]`.
    """


class Edges(Section):
    """The number of edges, or their ids."""

    count: int = Field(10, ge=1, le=100_000)
    """Number of edges. Their ids are e000, e001, ... Not used if `names` is given."""
    names: tuple[Annotated[str, Field(pattern=EDGE_ID)], ...] = Field((), strict=False)
    """Ids of the edges, such as `["pi-1", "pi-2"]`, instead of `count`. An id has at most 32
    characters from a-z, 0-9, `_` and `-`, and begins with a letter or a digit.
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


class Stop(Section):
    """When the run ends: at the first of these limits. At least one must be given."""

    versions: int | None = Field(None, ge=1)
    """End the run at this version of the global model."""
    updates: int | None = Field(None, ge=1)
    """End the run after this many updates were received and not discarded."""
    emulated_s: float | None = Field(None, gt=0, le=9e9)  # a moment in ns must fit into 63 bits
    """End the run after this many emulated seconds."""
    target_joules: float | None = Field(None, gt=0)
    """End the run when all edges together have used this much modelled energy, in joules. Needs
    `[devices.energy]` or `[links.radio]`.
    """

    @property
    def at_ns(self) -> int:
        """The last moment of the run (ns); ``FOREVER`` if ``emulated_s`` is not given."""
        return FOREVER if self.emulated_s is None else to_ns(self.emulated_s)

    @model_validator(mode="after")
    def _one_given(self) -> Stop:
        limits = (self.versions, self.updates, self.emulated_s, self.target_joules)
        if all(limit is None for limit in limits):
            raise ValueError("give at least one of versions, updates, emulated_s, target_joules")
        return self


class UpdatesSection(Section):
    """Which updates the coordinator accepts."""

    norm_bound: float | None = Field(None, gt=0)
    """Discard an update if the L2 norm of its change is larger than this (in the units of the
    weights). For `"weights"`, the change is the difference from the model that the edge received;
    for any other vector, such as a gradient, it is the vector itself. Protects the model from a
    single extreme update.
    """


class Compression(Section):
    """Smaller messages. Without this table, models and updates travel whole.

    An edge sends the packed change of its model, or its packed gradient. Other vectors of a message
    travel whole.
    """

    up: Named | None = None
    """Method for updates: `"float16"`, `"int8"`, `"top_k"`, `"random_k"`, `"sign"`, or your own,
    such as `"my_method.py:build"`. A table has options: `{name = "top_k", share = 0.01}`.
    """
    down: Named | None = None
    """Method for models: `"float16"` or `"int8"`."""
    cost_samples: float = Field(0.0, ge=0)
    """What packing an update costs a device, as the time of training on so many samples."""

    @field_validator("up", "down", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class RecordSection(Section):
    """What a run keeps in addition to its tables."""

    payloads: bool = False
    """Keep every array of the journal, so that `edgefl replay` can check the run."""
    durability: Literal["off", "process", "power"] = "process"
    """On the wall clock: what an acknowledged update survives. `"process"`: a crash of the
    coordinator. `"power"`: a loss of power, too; the coordinator waits for the disk before it
    answers. `"off"`: no journal is kept, and the run cannot be resumed.
    """
    keep: Annotated[int, Field(ge=1)] | Literal["all"] = "all"
    """A table (`events.jsonl`, `links.csv`, ...) goes on in a new file when it has 64 MiB, and its
    rows so far are compressed. So many of these parts stay; older ones are deleted.
    """


class FidelityLimits(Section):
    """When a run on the wall clock is called strained.

    See docs/explanation/verdict.md.
    """

    transfer_lag_ms: float = Field(5.0, gt=0)
    """Lateness in ms that is always accepted. A transfer or a task is late if it ends later than
    this *and* later than `transfer_lag_share` of its own length. The run is strained if more than 1
    % of its transfers are late.
    """
    transfer_lag_share: float = Field(0.02, ge=0)
    """Lateness that is always accepted, as a share of the length of the transfer or task; see
    `transfer_lag_ms`.
    """
    overrun_share: float = Field(0.01, ge=0)
    """The run is strained if more than this share of its tasks is late; `transfer_lag_ms` says when
    a task is late.
    """


class StrategyEntry(Section):
    """A strategy of the comparison. Keys other than these two are the options of the strategy."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    strategy: str
    """Name of the strategy: one of `edgefl strategies`, or your own, such as `"my_algo.py:MyAlgo"`.
    """
    label: str | None = None
    """Name of the entry in tables, and of its directory. Required if the same strategy is listed
    twice.
    """

    @property
    def name(self) -> str:
        """The name of this entry in tables, and of its directory."""
        return self.label or self.strategy.split(":")[-1].lower()

    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Experiment(Section):
    """The keys and tables of an experiment file."""

    name: str = Field("run", pattern=RUN_NAME)
    """Name of the experiment, and of the directory of its runs: at most 64 characters from A-Z,
    a-z, 0-9, `_`, `.` and `-`, beginning with a letter or a digit.
    """
    seed: int = Field(1, ge=0)
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
    task: str | None = None
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
    groups: tuple[Group, ...] = Field((), strict=False)
    medium: Medium = Medium()
    network: NetworkSection = NetworkSection()
    stop: Stop
    evaluation: Evaluation = Evaluation()
    updates: UpdatesSection = UpdatesSection()
    compression: Compression = Compression()
    record: RecordSection = RecordSection()
    fidelity: FidelityLimits = FidelityLimits()
    faults: tuple[FaultEntry, ...] = Field((), strict=False)
    strategies: tuple[StrategyEntry, ...] = Field(min_length=1, strict=False)

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
