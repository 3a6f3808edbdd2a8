"""``[edges.availability]`` of the experiment file: when edges are there."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgefl.config.section import Section

# kind -> the keys that it accepts, besides those of every kind
KEYS = {
    "always": (),
    "file": ("file", "format", "period_s", "scale", "draw", "patterns"),
    "day_night": ("day_s", "day_share", "phase"),
    "exponential": ("there_s", "away_s", "speed_exponent"),
}
OF_EVERY_KIND = ("kind", "on_leave")


class EdgePattern(Section):
    """When one edge is there, in a period that repeats; in nanoseconds of emulated time."""

    period_ns: int = Field(gt=0)
    """After this time all begins again."""
    changes_ns: Annotated[tuple[int, ...], Field(strict=False)] = ()
    """The times at which the edge comes and leaves, in turn. Empty: it is never there."""

    @model_validator(mode="after")
    def _in_order(self) -> EdgePattern:
        times = (-1, *self.changes_ns, self.period_ns + 1)
        if len(times) % 2 or any(first > second for first, second in pairwise(times)):
            raise ValueError(
                "changes_ns: expected an even number of times in order, from 0 to period_ns"
            )
        return self


class Availability(Section):
    """When the edges are there, as devices that charge, or are idle, or have a network.

    While an edge is away, its links carry nothing, its training stands still, and the strategy has
    lost it. Needs emulated links and devices.
    """

    kind: Literal["always", "file", "day_night", "exponential"] = "always"
    """`"always"`: no edge leaves. `"file"`: recorded intervals. `"day_night"`: a part of each day.
    `"exponential"`: exponential times there and away, drawn from the seed for each edge.
    """
    on_leave: Literal["keep", "lose"] = "keep"
    """What happens to the task of an edge that leaves. `"keep"`: its training pauses, and the task
    stays open for `network.grace_s`. `"lose"`: the task is closed at once.
    """
    file: str | None = None
    """With kind `"file"`, where it is required: CSV with the columns `edge,begin_s,end_s`, or JSON
    in the form of FLHetBench or FedScale. The path is relative to the config's directory.
    """
    format: Literal["csv", "flhetbench", "fedscale"] | None = None
    """Format of the file. Default: CSV if its name ends in .csv; JSON is known by its keys."""
    period_s: float | None = Field(None, gt=0)
    """Seconds after which the intervals of a CSV file repeat. Default: its largest `end_s`."""
    scale: float = Field(1.0, gt=0)
    """All times of the file are multiplied by this: 0.01 makes 1.7 hours of a week."""
    draw: bool = False
    """Which client of a file an edge gets, if the file has none of the edges' ids: drawn from the
    seed, instead of in the order of the file.
    """
    patterns: dict[str, EdgePattern] | None = None
    """By edge, instead of a file. In this form the coordinator sends edges on other machines what
    it has read from its file.
    """
    day_s: float = Field(86_400.0, gt=0)
    """With `"day_night"`: emulated seconds of a day."""
    day_share: float = Field(0.5, gt=0, le=1)
    """With `"day_night"`: the share of the day in which an edge is there."""
    phase: Literal["same", "random"] = "same"
    """With `"day_night"`: `"same"`: all edges come at the start of the run. `"random"`: each has
    its own time of the day, drawn from the seed, as in many time zones.
    """
    there_s: float | None = Field(None, ge=1e-9)
    """With `"exponential"`, where it is required: mean emulated seconds for which an edge stays."""
    away_s: float | None = Field(None, ge=1e-9)
    """With `"exponential"`, where it is required: mean emulated seconds for which it is away."""
    speed_exponent: float = Field(0.0, ge=-5, le=5)
    """With `"exponential"`: the mean time away of an edge is multiplied by (median speed / its
    speed) to this power. 1: a device of half the speed is away twice as long. 0: independent of the
    speed. Needs `devices.spread` `"uniform"` or `"lognormal"`.
    """

    @model_validator(mode="after")
    def _keys_of_its_kind(self) -> Availability:
        for key, field in type(self).model_fields.items():
            if key not in (*OF_EVERY_KIND, *KEYS[self.kind]) and getattr(self, key) != (
                field.default
            ):
                kinds = " or ".join(f'"{kind}"' for kind, keys in KEYS.items() if key in keys)
                raise ValueError(f'{key}: expected kind = {kinds}, found "{self.kind}"')
        if self.patterns is not None:
            for key in ("file", "format", "period_s", "scale", "draw"):
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise ValueError(f"{key}: expected no patterns with it")
        needed = {"file": ("file",), "exponential": ("there_s", "away_s")}.get(self.kind, ())
        for key in needed if self.patterns is None else ():
            if getattr(self, key) is None:
                raise ValueError(f'{key}: missing; kind = "{self.kind}" needs it')
        return self
