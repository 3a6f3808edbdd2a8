"""The parts of the experiment file about the emulated world: links, devices, groups of edges
that differ in them, a shared medium.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from edgefl.config.section import Section
from emulator import profiles
from emulator.units import to_ns

LINK_DEFAULTS = {"up_mbit_s": 10.0, "down_mbit_s": 10.0, "latency_ms": 0.0}  # without a profile
BYTE_MBIT_MS = 0.008  # Mbit/s times ms that carry a byte
DEVICE_DEFAULTS = {"samples_per_s": 1000.0}
# kind -> the keys that it takes
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
    """Every edge's own uplink and downlink; "native" does no shaping and measures. A key without
    a value has the value of the profile.
    """

    kind: Literal["emulated", "native"] = "emulated"
    """Or `"native"`: no shaping, the real network as it is, measured (wall clock only)."""
    profile: str | None = None
    """One of `emulator profiles`, as `"lte"`; the other keys of `[links]` override its numbers."""
    up_mbit_s: float | None = Field(None, gt=0)
    """Every edge's own uplink, Mbit/s; 10 if there is no `profile`."""
    down_mbit_s: float | None = Field(None, gt=0)
    """Every edge's own downlink, Mbit/s; 10 if there is no `profile`."""
    latency_ms: float | None = Field(None, ge=0, le=500_000)
    """One way, ms; 0 if there is no `profile`."""
    jitter_ms: float | None = Field(None, ge=0, le=100_000)
    """Standard deviation of the latency, ms; bytes keep their order, and notes without bytes have
    none.
    """
    loss: float | None = Field(None, ge=0, le=0.5)
    """Share of packets lost, up to 0.5. No packet is dropped: the rate falls to what a reliable
    transfer would get (`emulator/links/loss.py` has the formula). 0 if there is no `profile`.
    """
    trace_up: str | None = None
    """File with the uplink's rate over time, used instead of `up_mbit_s`: mahimahi's format, or
    CSV `seconds,bit_s`; relative to the config's folder. A trace repeats.
    """
    trace_down: str | None = None
    """The same for the downlink."""
    trace_start: Literal["run", "first_byte"] = "run"
    """A trace begins with the run; `"first_byte"`: with the link's first transfer."""

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        return _with_defaults(data, LINK_DEFAULTS)

    @model_validator(mode="after")
    def _profile_exists(self) -> Links:
        if self.profile is not None:
            profiles.link_profile(self.profile)
        return self


class Throttling(Section):
    """A device that grows hot after ``budget_s`` of work at full speed, has ``hot_share`` of it
    then, and cools down within ``recovery_s`` of idling.
    """

    budget_s: float = Field(ge=0)
    """Devices that grow hot: full speed for so many emulated seconds of work, ..."""
    hot_share: float = Field(gt=0, le=1)
    """... then this share of it; ..."""
    recovery_s: float = Field(ge=1e-9)
    """... idling for so long cools them down."""


class Bursts(Section):
    """Other work on the device: after ``calm_s`` on average, for ``burst_s`` on average,
    ``share`` of the speed is left.
    """

    calm_s: float = Field(ge=1e-9)
    """Devices with other work to do: none for so many seconds on average, ..."""
    burst_s: float = Field(ge=1e-9)
    """... then some for so many on average, ..."""
    share: float = Field(gt=0, le=1)
    """... which leaves this share of the speed."""


class Devices(Section):
    """How fast the edges compute; "native" takes the time that this hardware takes."""

    kind: Literal["emulated", "native"] = "emulated"
    """Or `"native"`: training takes as long as it takes on this hardware (wall clock only)."""
    profile: str | None = None
    """One of `emulator profiles`, as `"pi4"`; `samples_per_s` overrides its speed."""
    # of the fastest device; the median one (lognormal); on average (exponential)
    samples_per_s: float | None = Field(None, gt=0)
    """Training speed of the fastest device, samples per emulated second; 1000 if there is no
    `profile`.
    """
    # in place of samples_per_s, on a TDMA channel (q)
    samples_per_slot: float | None = Field(None, gt=0)
    """The same per slot of a TDMA channel, in place of it."""
    # the slowest takes this many times as long as the fastest; uniform in between
    slowest_ratio: float = Field(1.0, ge=1)
    """The slowest device takes this many times as long; uniform in between."""
    spread: Literal["uniform", "lognormal", "classes", "exponential"] = "uniform"
    """Or `"lognormal"` around a median of `samples_per_s`; or `"classes"`: a task takes 10 to 20 s,
    30 to 50 s or very long, drawn anew each time; or `"exponential"`: all devices alike, each
    stretch of work takes a time drawn anew, `samples_per_s` on average, so that those done first
    are a draw by lot.
    """
    sigma: float | None = Field(None, ge=0, le=5)
    """Of `"lognormal"`, where it is required: two thirds of the devices lie within a factor of
    e^sigma of the median.
    """
    long: Literal["large", "mild"] = "large"
    """Of `"classes"`: at most a tenth of the devices takes 500 to 800 s; `"mild"`: 100 to 200 s."""
    gamma: float = Field(1.0, gt=0)
    """Of `"classes"`: devices with more data tend to be in a slower class, the more so the smaller
    this is. With `data.source` other than `"partition"` the sizes are not all known: they count
    as equal.
    """
    task_samples: float | None = Field(None, gt=0)
    """Of `"classes"`: so many samples, epochs counted, make a task, others take their share of its
    time; none: all of an edge's own data does.
    """
    throttling: Throttling | None = None
    bursts: Bursts | None = None

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        return _with_defaults(data, DEVICE_DEFAULTS)

    @model_validator(mode="after")
    def _whole(self) -> Devices:
        if self.profile is not None:
            profiles.device_profile(self.profile)
        if self.spread == "lognormal" and self.sigma is None:
            raise ValueError(
                'sigma: missing, which spread = "lognormal" wants (the deviation of the logarithms)'
            )
        if self.spread != "lognormal" and self.sigma is not None:
            raise ValueError(f'sigma: goes with spread = "lognormal", found "{self.spread}"')
        strange = next(
            (
                key
                for key in ("long", "gamma", "task_samples")
                if getattr(self, key) != type(self).model_fields[key].default
            ),
            None,
        )
        if strange is not None and self.spread != "classes":
            raise ValueError(f'{strange}: goes with spread = "classes"')
        if self.samples_per_slot is not None and (
            self.profile is not None or self.spread == "classes"
        ):
            raise ValueError(
                "samples_per_slot: a speed of its own; expected no profile and no spread ="
                ' "classes" with it'
            )
        if self.slowest_ratio != 1 and self.spread != "uniform":
            raise ValueError('slowest_ratio: goes with spread = "uniform"')
        over_time = [key for key in ("throttling", "bursts") if getattr(self, key) is not None]
        drawn = self.spread in ("classes", "exponential")
        if len(over_time) > (0 if drawn else 1):
            spread = self.spread if drawn else "classes"
            raise ValueError(
                f'{over_time[0]}: expected one of throttling, bursts and spread = "{spread}", not'
                " two together"
            )
        return self


class Group(Section):
    """The next ``count`` edges, with keys of ``[links]`` and ``[devices]`` that differ for them."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")
    """Edges that differ: each `[[groups]]` table takes the next `count` of them, in order."""
    count: int = Field(ge=1)
    """The counts add up to the number of edges."""
    links: dict[str, Any] = Field(default_factory=dict)
    """Keys of `[links]` that are different for them; a `profile` replaces all of its numbers."""
    devices: dict[str, Any] = Field(default_factory=dict)
    """Keys of `[devices]` that are different for them."""


class Medium(Section):
    """What the edges' emulated links share; see ``MEDIA`` for which key goes with which kind."""

    kind: Literal["none", "bottleneck", "cell", "tdma"] = "none"
    """What all emulated links share: `"bottleneck"`, one rate, and no limit of an edge's own;
    `"cell"`, one rate, and the rates of `[links]` as caps; `"tdma"`, slots of one channel, both
    ways, granted in order of readiness.
    """
    up_mbit_s: float | None = Field(None, gt=0)
    """Shared rate towards the coordinator (`"bottleneck"`, `"cell"`), in equal shares; none: not
    shared.
    """
    down_mbit_s: float | None = Field(None, gt=0)
    """The same towards the edges."""
    trace_up: str | None = None
    """File with the shared rate towards the coordinator over time, from the run's begin on, in
    place of `up_mbit_s`: as `links.trace_up`.
    """
    trace_down: str | None = None
    """The same towards the edges."""
    rate_mbit_s: float | None = Field(None, gt=0)
    """Rate within a slot (`"tdma"`, where it is required)."""
    slot_ms: float | None = Field(None, ge=1e-6)
    """Length of a slot (`"tdma"`, where it is required)."""
    guard_ms: float | None = Field(None, ge=0)
    """Silent end of each slot, shorter than the slot (`"tdma"`)."""
    slots_per_transfer: int | None = Field(None, ge=1)
    """Every model takes just so many slots, whatever its size (`"tdma"`)."""
    frame_slots: int | None = Field(None, ge=1, le=1_000_000)
    """So many slots make a frame, in which an edge uses, both ways, no other place than its own:
    its number, from 0 on, modulo this (`"tdma"`); none: slots go to whoever is ready first.
    """

    @model_validator(mode="after")
    def _keys_of_its_kind(self) -> Medium:
        given = [
            key
            for key in type(self).model_fields
            if key != "kind" and getattr(self, key) is not None
        ]
        strange = [key for key in given if key not in MEDIA[self.kind]]
        if strange:
            kinds = " or ".join(f'"{kind}"' for kind, keys in MEDIA.items() if strange[0] in keys)
            raise ValueError(f'{strange[0]}: expected kind = {kinds}, found "{self.kind}"')
        if self.kind in ("bottleneck", "cell") and not given:
            raise ValueError(
                f"a {self.kind} wants up_mbit_s, down_mbit_s or both (or trace_up, trace_down)"
            )
        for way in ("up", "down"):
            if (
                getattr(self, f"{way}_mbit_s") is not None
                and getattr(self, f"trace_{way}") is not None
            ):
                raise ValueError(f"trace_{way}: expected in place of {way}_mbit_s, not with it")
        if self.kind == "tdma":
            self._slots_are_whole()
        return self

    @property
    def shared(self) -> tuple[str, ...]:
        """The directions in which edges share it."""
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
