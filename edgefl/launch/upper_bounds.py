"""How long a run takes at most, and how many bytes its models are at most; no input or output."""

from __future__ import annotations

from dataclasses import dataclass

from edgefl.config.experiment import Experiment
from edgefl.config.groups import parts
from edgefl.hosts.setup.network import shape_of

BITS = 8
MBIT = 1e6


@dataclass(frozen=True, slots=True)
class UpperBounds:
    """Of one strategy and seed. None: the config sets no limit.

    ``wall_s``: of the run itself, without the start, the last evaluations, and the end.
    """

    wall_s: float | None
    up_bytes: float | None
    down_bytes: float | None


def upper_bounds(experiment: Experiment, model_bytes: int) -> UpperBounds:
    """The limits that ``[stop]``, ``speed`` and the links set.

    A task moves one model down and one up. Emulated links carry at most their rate, for the whole
    run; a medium that edges share carries at most its own.
    """
    stop, edges = experiment.stop, len(experiment.edges.ids())
    wall_s = None if stop.emulated_s is None else stop.emulated_s / experiment.chosen_speed
    by_updates = None
    if stop.updates is not None:
        # discarded updates do not count, so this holds unless some are discarded
        by_updates = float((stop.updates + edges) * model_bytes)
    return UpperBounds(
        wall_s,
        _least(by_updates, _carried(experiment, "up")),
        _least(by_updates, _carried(experiment, "down")),
    )


def _carried(experiment: Experiment, way: str) -> float | None:
    """Bytes that the links carry in one direction until ``stop.emulated_s``."""
    emulated_s = experiment.stop.emulated_s
    shaped = parts(experiment)
    if emulated_s is None or any(part.links.kind == "native" for part in shaped):
        return None
    medium = experiment.medium
    shared = medium.rate_mbit_s if medium.kind == "tdma" else getattr(medium, f"{way}_mbit_s")
    if way in medium.shared:
        return None if shared is None else shared * MBIT / BITS * emulated_s
    if any(getattr(part.links, f"trace_{way}") is not None for part in shaped):
        return None
    rate_bit_s = sum(shape_of(part.links).rates_bit_s[way] * len(part.ids) for part in shaped)
    return rate_bit_s / BITS * emulated_s


def _least(*found: float | None) -> float | None:
    return min((each for each in found if each is not None), default=None)
