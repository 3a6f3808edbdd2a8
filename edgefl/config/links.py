"""Sections of the experiment file about the emulated world: links, devices, groups and medium.

With the power of devices and radios, and speeds of devices from a published table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from edgefl.config.section import Section, is_set, refuse_keys_of_other_kinds
from emulator import profiles
from emulator.energy import power
from emulator.units import to_ns

# the values of missing keys where no profile is given
LINK_DEFAULTS = {"up_mbit_s": 10.0, "down_mbit_s": 10.0, "latency_ms": 0.0}
BYTE_MBIT_MS = 0.008  # one byte in Mbit/s x ms
DEVICE_DEFAULTS = {"samples_per_s": 1000.0}
# kind of medium -> the keys that it accepts
MEDIA: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "bottleneck": ("up_mbit_s", "down_mbit_s", "trace_up", "trace_down"),
    "cell": ("up_mbit_s", "down_mbit_s", "trace_up", "trace_down"),
    "tdma": ("slot_ms", "guard_ms", "rate_mbit_s", "slots_per_transfer", "frame_slots"),
}


def _with_defaults(data: Any, defaults: Mapping[str, Any]) -> Any:
    if not isinstance(data, dict) or data.get("profile") is not None:
        return data
    return {**defaults, **{key: value for key, value in data.items() if value is not None}}


class Links(Section):
    """The uplink and the downlink of each edge.

    A missing key has the value of the profile. Without a profile: 10 Mbit/s in each direction, no
    latency, no jitter and no loss.
    """

    kind: Literal["emulated", "native"] = "emulated"
    """`"emulated"`: links are shaped. `"native"`: the real network without shaping, measured (wall
    clock only).
    """
    profile: str | None = None
    """Name of a link profile, such as `"lte"`; `emulator profiles` lists them. The other keys of
    this table override its values.
    """
    up_mbit_s: float | None = Field(default=None, gt=0)
    """Rate of each edge's uplink. Default without a profile: 10."""
    down_mbit_s: float | None = Field(default=None, gt=0)
    """Rate of each edge's downlink. Default without a profile: 10."""
    latency_ms: float | None = Field(default=None, ge=0, le=500_000)
    """One-way latency. Default without a profile: 0."""
    jitter_ms: float | None = Field(default=None, ge=0, le=100_000)
    """Standard deviation of the latency. Bytes keep their order. Messages without payload bytes
    have no jitter.
    """
    loss: float | None = Field(default=None, ge=0, le=0.5)
    """Packet loss as a share of 1. No packet is dropped: the rate falls to that of a reliable
    transfer with this loss (the formula is in `emulator/links/loss.py`). Default without a profile:
    0.
    """
    trace_up: str | None = None
    """File with the rate of the uplink over time, instead of `up_mbit_s`. Formats: mahimahi, or CSV
    with the columns `seconds,bit_s`. The path is relative to the config's directory. The trace
    repeats.
    """
    trace_down: str | None = None
    """File with the rate of the downlink over time, instead of `down_mbit_s`. Format, path and
    repetition are as for `trace_up`.
    """
    trace_start: Literal["run", "first_byte"] = "run"
    """When the traces start. `"run"`: with the run. `"first_byte"`: with the first transfer on the
    link.
    """
    radio: RadioEnergy | None = None

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        return _with_defaults(data, LINK_DEFAULTS)

    @model_validator(mode="after")
    def _profile_exists(self) -> Links:
        if self.profile is not None:
            profiles.link_profile(self.profile)
        if self.radio is not None:
            self.radio.power(self.profile)
        return self


class Throttling(Section):
    """Devices that become slower when hot.

    A cold device works at full speed for `budget_s` and is then hot until the work ends.
    """

    budget_s: float = Field(ge=0)
    """Emulated seconds of work at full speed before a cold device is hot."""
    hot_share: float = Field(gt=0, le=1)
    """Speed of a hot device, as a share of full speed."""
    recovery_s: float = Field(ge=1e-9)
    """Emulated seconds without work in which a hot device restores its whole budget. A shorter time
    restores a part of it.
    """


class Bursts(Section):
    """Devices that other programs use too: calm periods alternate with bursts of other work.

    The lengths of both are exponential.
    """

    calm_s: float = Field(ge=1e-9)
    """Mean emulated seconds of a calm period, at full speed."""
    burst_s: float = Field(ge=1e-9)
    """Mean emulated seconds of a burst of other work."""
    share: float = Field(gt=0, le=1)
    """Speed during a burst, as a share of full speed."""


class Devices(Section):
    """How fast the edges compute."""

    kind: Literal["emulated", "native"] = "emulated"
    """`"emulated"`: training takes its emulated time. `"native"`: training takes its real time on
    this hardware (wall clock only).
    """
    profile: str | None = None
    """Name of a device profile, such as `"pi4"`; `emulator profiles` lists them. `samples_per_s`
    overrides its speed.
    """
    samples_per_s: float | None = Field(default=None, gt=0)
    """Training speed, in samples per emulated second: that of the fastest device with `spread =
    "uniform"`, the median with `"lognormal"`, the mean with `"exponential"`, that of the median of
    the table with a `sampler`. Not used with `"classes"`. Default without a profile: 1000.
    """
    unit: Literal["samples", "tokens"] = "samples"
    """What the emulated time of training depends on. `"tokens"`: on the tokens of texts, with the
    padding to the longest text of a batch; `tokens_per_s` is the speed. Not with a profile, and not
    with `spread = "classes"`.
    """
    tokens_per_s: float | None = Field(default=None, gt=0)
    """Training speed in tokens per emulated second, with `unit = "tokens"`, where it is required
    instead of `samples_per_s`.
    """
    samples_per_slot: float | None = Field(default=None, gt=0)
    """Training speed in samples per slot of a TDMA channel, instead of `samples_per_s`."""
    slowest_ratio: float = Field(default=1.0, ge=1)
    """With `spread = "uniform"`: time per sample of the slowest device, divided by that of the
    fastest one.
    """
    spread: Literal["uniform", "lognormal", "classes", "exponential"] = "uniform"
    """Distribution of the devices' times. `"uniform"`: times per sample are evenly spaced from that
    of the fastest device to `slowest_ratio` times as much. `"lognormal"`: speeds are log-normal
    with median `samples_per_s`. `"classes"`: a task takes 10 to 20 s, 30 to 50 s or the time of
    class `long`, drawn anew for each task. `"exponential"`: all devices are alike, and each period
    of work takes an exponential time with mean speed `samples_per_s`; so which devices finish first
    is a uniform random sample.
    """
    sigma: float | None = Field(default=None, ge=0, le=5)
    """With `spread = "lognormal"`, where it is required: standard deviation of the logarithm of the
    speed. Two thirds of the devices lie within a factor of e^sigma of the median.
    """
    long: Literal["large", "mild"] = "large"
    """With `spread = "classes"`: task time of the slowest class, at most a tenth of the devices.
    `"large"`: 500 to 800 s. `"mild"`: 100 to 200 s.
    """
    gamma: float = Field(default=1.0, gt=0)
    """With `spread = "classes"`: how much slower devices with more data are. A smaller value
    strengthens the relation. If `data.source` is not `"partition"`, all devices count as having
    equal data.
    """
    task_samples: float | None = Field(default=None, gt=0)
    """With `spread = "classes"`: number of samples (times epochs) of a task that takes the time of
    its class. The time of other tasks is in proportion. Default: the edge's own samples, times
    epochs.
    """
    task_jitter: float = Field(default=0.0, ge=0, le=1)
    """How much the times of equal tasks of one device vary: standard deviation / mean of a
    log-normal factor with mean 1, drawn for each task. 0: they do not vary. The factor multiplies
    what the other keys of this table give. On Raspberry Pi 4 and 5 it was 0.15 in the median. Not
    with `kind = "native"`.
    """
    sampler: DeviceSampler | None = None
    throttling: Throttling | None = None
    bursts: Bursts | None = None
    energy: DeviceEnergy | None = None

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("unit") == "tokens":
            return data
        return _with_defaults(data, DEVICE_DEFAULTS)

    @property
    def per_s(self) -> float | None:
        """The speed in its unit; None: that of the profile."""
        return self.tokens_per_s if self.unit == "tokens" else self.samples_per_s

    @model_validator(mode="after")
    def _in_its_unit(self) -> Devices:
        if self.unit == "samples":
            if self.tokens_per_s is not None:
                raise ValueError('tokens_per_s: expected only with unit = "tokens"')
            return self
        if self.tokens_per_s is None:
            raise ValueError('tokens_per_s: missing; unit = "tokens" needs it')
        for key in ("profile", "samples_per_s", "samples_per_slot"):
            if getattr(self, key) is not None:
                raise ValueError(f'{key}: expected only with unit = "samples"')
        if self.spread == "classes":
            raise ValueError(
                'unit: expected "samples" with spread = "classes", whose tasks have their own time'
            )
        return self

    @model_validator(mode="after")
    def _whole(self) -> Devices:
        if self.task_jitter and self.kind == "native":
            raise ValueError(
                f'task_jitter: expected 0 with kind = "native", whose tasks vary by themselves,'
                f" found {self.task_jitter:g}"
            )
        if self.profile is not None:
            profiles.device_profile(self.profile)
        if self.energy is not None:
            self.energy.power(self.profile)
        if self.spread == "lognormal" and self.sigma is None:
            raise ValueError(
                'sigma: missing; spread = "lognormal" needs it (the standard deviation of the'
                " logarithms)"
            )
        if self.spread != "lognormal" and self.sigma is not None:
            raise ValueError(
                f'sigma: expected only with spread = "lognormal", found "{self.spread}"'
            )
        strange = [key for key in ("long", "gamma", "task_samples") if is_set(self, key)]
        if strange and self.spread != "classes":
            raise ValueError(f'{strange[0]}: expected only with spread = "classes"')
        if self.samples_per_slot is not None and (
            self.profile is not None or self.spread == "classes"
        ):
            raise ValueError(
                'samples_per_slot: expected no profile and no spread = "classes" with it'
            )
        if self.slowest_ratio != 1 and self.spread != "uniform":
            raise ValueError('slowest_ratio: expected only with spread = "uniform"')
        if self.sampler is not None and (self.spread != "uniform" or self.slowest_ratio != 1):
            raise ValueError(
                'sampler: expected spread = "uniform" and slowest_ratio = 1: it draws the speeds'
            )
        over_time = [key for key in ("throttling", "bursts") if getattr(self, key) is not None]
        drawn = self.spread in ("classes", "exponential")
        if len(over_time) > (0 if drawn else 1):
            spread = self.spread if drawn else "classes"
            raise ValueError(
                f'{over_time[0]}: expected only one of throttling, bursts and spread = "{spread}"'
            )
        return self


class Group(Section):
    """A group of edges with other values for keys of `[links]` and `[devices]`.

    Each group takes the next `count` edges, in the order of the file.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")
    """Name of the group."""
    count: int = Field(ge=1)
    """Number of edges in the group. The counts of all groups must add up to the number of edges."""
    links: dict[str, Any] = Field(default_factory=dict)
    """Keys of `[links]` with other values for this group. A `profile` replaces all rates, latency,
    jitter, loss and traces of `[links]`.
    """
    devices: dict[str, Any] = Field(default_factory=dict)
    """Keys of `[devices]` with other values for this group. A `profile` replaces `samples_per_s` of
    `[devices]`.
    """


class Medium(Section):
    """A medium that the emulated links of all edges share."""

    kind: Literal["none", "bottleneck", "cell", "tdma"] = "none"
    """What all emulated links share. `"none"`: nothing. `"bottleneck"`: one rate; edges have no
    limit of their own. `"cell"`: one rate, with the rates of `[links]` as upper limits. `"tdma"`:
    the slots of one channel, in both directions, granted in order of readiness.
    """
    up_mbit_s: float | None = Field(default=None, gt=0)
    """Shared rate towards the coordinator, divided equally (`"bottleneck"`, `"cell"`). Default:
    uplinks are not shared.
    """
    down_mbit_s: float | None = Field(default=None, gt=0)
    """Shared rate towards the edges, divided equally (`"bottleneck"`, `"cell"`). Default: downlinks
    are not shared.
    """
    trace_up: str | None = None
    """File with the shared rate towards the coordinator over time, instead of `up_mbit_s`. Format,
    path and repetition are as for `links.trace_up`. The trace starts with the run.
    """
    trace_down: str | None = None
    """File with the shared rate towards the edges over time, instead of `down_mbit_s`. Format, path
    and repetition are as for `links.trace_up`. The trace starts with the run.
    """
    rate_mbit_s: float | None = Field(default=None, gt=0)
    """Rate within a slot (`"tdma"`, where it is required)."""
    slot_ms: float | None = Field(default=None, ge=1e-6)
    """Length of a slot, with its guard time (`"tdma"`, where it is required)."""
    guard_ms: float | None = Field(default=None, ge=0)
    """Guard time at the end of each slot, in which nothing is sent; shorter than the slot
    (`"tdma"`). Default: 0.
    """
    slots_per_transfer: int | None = Field(default=None, ge=1)
    """Number of slots for each transfer of a model, whatever its size (`"tdma"`). Default: as many
    as its bytes need.
    """
    frame_slots: int | None = Field(default=None, ge=1, le=1_000_000)
    """Number of slots in a frame (`"tdma"`). In each frame an edge uses, in both directions, only
    one slot: the number of the edge (from 0) modulo this value. Default: no frames; the edge that
    is ready first gets the next slot.
    """

    @model_validator(mode="after")
    def _keys_of_its_kind(self) -> Medium:
        refuse_keys_of_other_kinds(self, MEDIA)
        if self.kind in ("bottleneck", "cell") and not any(
            is_set(self, key) for key in MEDIA[self.kind]
        ):
            raise ValueError(
                f"a {self.kind} needs up_mbit_s, down_mbit_s or both (or trace_up, trace_down)"
            )
        for way in ("up", "down"):
            if is_set(self, f"{way}_mbit_s") and is_set(self, f"trace_{way}"):
                raise ValueError(f"trace_{way}: expected instead of {way}_mbit_s, not with it")
        if self.kind == "tdma":
            self._slots_are_whole()
        return self

    @property
    def shared(self) -> tuple[str, ...]:
        """The directions ("up", "down") in which edges share the medium."""
        return tuple(
            way
            for way in ("up", "down")
            if self.kind == "tdma"
            or getattr(self, f"{way}_mbit_s")
            or getattr(self, f"trace_{way}")
        )

    def _slots_are_whole(self) -> None:
        for key in ("slot_ms", "rate_mbit_s"):
            if getattr(self, key) is None:
                raise ValueError(f"{key}: missing")
        if (
            self.guard_ms is not None
            and self.slot_ms is not None
            and to_ns(self.guard_ms / 1000) >= to_ns(self.slot_ms / 1000)
        ):
            raise ValueError(
                f"slot_ms: expected more than guard_ms ({self.guard_ms:g}), found {self.slot_ms:g}"
            )
        usable_ms = (self.slot_ms or 0.0) - (self.guard_ms or 0.0)
        if self.slots_per_transfer is None and usable_ms * (self.rate_mbit_s or 0.0) < BYTE_MBIT_MS:
            raise ValueError(
                f"slot_ms: at {self.rate_mbit_s:g} Mbit/s, {usable_ms:g} ms without the guard carry"
                " no byte; expected longer slots"
            )


Value = Annotated[float, Field(gt=0)]


class DeviceSampler(Section):
    """Speeds drawn from a table of real devices, such as a ranking of AI-Benchmark.

    Each device of the run is a device of the table, any with equal chance, drawn from the seed.
    """

    file: str | None = None
    """CSV file with a header and a row per device, whose name is in the first column. The path is
    relative to the config's directory. The config of a run has `values` in its place.
    """
    column: str | None = None
    """With `file`, where it is required: name of the column with the numbers."""
    measure: Literal["score", "time"] = "score"
    """`"score"`: a device with twice the number is twice as fast. `"time"`: half as fast, as with
    the latency of an inference.
    """
    values: Annotated[tuple[Value, ...], Field(strict=False, min_length=1)] | None = None
    """The numbers themselves, one per device, instead of a file."""
    origin: str | None = None
    """With `values`: the file and the column from which they are. It has no effect."""

    @model_validator(mode="after")
    def _one_source(self) -> DeviceSampler:
        if (self.file is None) == (self.values is None):
            said = "missing" if self.file is None else "expected no values with it"
            raise ValueError(f"file: {said}; a sampler needs either file and column, or values")
        if (self.file is None) != (self.column is None):
            said = "missing; file needs it" if self.column is None else "expected only with file"
            raise ValueError(f"column: {said}")
        return self


class DeviceEnergy(Section):
    """The power of each edge's device, without its radio.

    With this table, the run's energy is modelled. Numbers that are missing are those of the
    profile.
    """

    profile: str | None = None
    """Name of a device with known power, such as `"pi4"`; `emulator profiles` lists them. Default:
    `devices.profile`.
    """
    idle_w: float | None = Field(default=None, ge=0)
    """Power in watts while the device waits. It counts all the time, from the moment when the edge
    joins to the end of the run. Required without a profile.
    """
    compute_w: float | None = Field(default=None, ge=0)
    """Power in watts while the device trains; at least `idle_w`. Required without a profile."""

    def power(self, default: str | None) -> power.DevicePower:
        """The power that this table means; ``default``: the name of a profile, if it has none."""
        numbers = self.model_dump(exclude={"profile"})
        name = self.profile or _known(default, power.DEVICE_POWER, numbers, power.NEEDED)
        return power.device_power(name, **numbers)


class RadioEnergy(Section):
    """The power of each edge's radio.

    With this table, the run's energy is modelled. Numbers that are missing are those of the
    profile.
    """

    profile: str | None = None
    """Name of a radio with known power, such as `"lte"`; `emulator profiles` lists them. Default:
    `links.profile`.
    """
    idle_w: float | None = Field(default=None, ge=0)
    """Power in watts while nothing is sent or received. It counts all the time. Required without a
    profile.
    """
    send_w: float | None = Field(default=None, ge=0)
    """Power in watts while the edge sends; at least `idle_w`. Required without a profile."""
    receive_w: float | None = Field(default=None, ge=0)
    """Power in watts while the edge receives; at least `idle_w`. Required without a profile."""
    send_j_mbit: float | None = Field(default=None, ge=0)
    """Joules per Mbit that is sent, in addition to `send_w`. Default without a profile: 0."""
    receive_j_mbit: float | None = Field(default=None, ge=0)
    """Joules per Mbit that is received, in addition to `receive_w`. Default without a profile: 0.
    """
    tail_w: float | None = Field(default=None, ge=0)
    """Power in watts for `tail_s` after a transfer. Default without a profile: 0."""
    tail_s: float | None = Field(default=None, ge=0, le=86_400)
    """Emulated seconds after a transfer in which the radio is not idle yet. Default without a
    profile: 0.
    """

    def power(self, default: str | None) -> power.RadioPower:
        """The power that this table means; ``default``: the name of a profile, if it has none."""
        numbers = self.model_dump(exclude={"profile"})
        name = self.profile or _known(default, power.RADIOS, numbers, power.NEEDED_OF_RADIO)
        return power.radio_power(name, **numbers)


def _known(
    default: str | None,
    profiles: Mapping[str, Any],
    numbers: Mapping[str, Any],
    needed: Iterable[str],
) -> str | None:
    """``default``, unless its power is unknown and the numbers are complete without it."""
    complete = all(numbers[key] is not None for key in needed)
    return None if complete and default not in profiles else default
