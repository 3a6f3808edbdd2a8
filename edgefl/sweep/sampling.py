"""How a sweep chooses its settings. A sampler is a file in ``samplers/`` that binds ``sampler``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from edgefl import catalog
from edgefl.errors import UserError, nearest
from edgefl.sweep.choice import Tried
from edgefl.sweep.metrics import Metric
from edgefl.sweep.settings import GridAxis, Setting, ValueRange

PACKAGE, ATTRIBUTE = "edgefl.sweep.samplers", "sampler"
DIGITS = 4  # of a number that is drawn from a span
BATCH = 4  # settings that are tried before the next ones are chosen; not the number of workers,
# on which results must not depend


class Sampler(Protocol):
    """Chooses settings. It depends only on its arguments, so that a sweep can be gone on with."""

    def next(self, tried: Sequence[Tried]) -> list[Setting]:
        """Return the settings to try next, given all that were tried; [] at the end.

        ``tried``: every setting of earlier calls, in this order.
        """
        ...


Maker = Callable[[Sequence[GridAxis], int, Metric, int], Sampler]


@dataclass(frozen=True, slots=True)
class Listed:
    """All of these settings at once: a grid, or points of the user."""

    settings: tuple[Setting, ...]

    def next(self, tried: Sequence[Tried]) -> list[Setting]:
        return [] if tried else list(self.settings)


def find(name: str) -> Maker:
    """Return what makes the sampler ``name`` of (axes, trials, metric, seed).

    UserError if there is none.
    """
    valid = catalog.names(PACKAGE, ATTRIBUTE)
    if name not in valid:
        raise UserError(f"--sampler {name}: unknown sampler{nearest(name, valid)}")
    made: Maker = catalog.find(PACKAGE, name, ATTRIBUTE)
    return made


def drawn(axis: GridAxis, rng: np.random.Generator) -> Any:
    """Draw a value of an axis."""
    if axis.span is None:
        return axis.values[int(rng.integers(len(axis.values)))]
    return from_share(axis.span, float(rng.random()))


def from_share(span: ValueRange, share: float) -> Any:
    """Return the number at ``share`` (0 to 1) of a span, with DIGITS digits."""
    low, high = span.low, span.high
    at = low * (high / low) ** share if span.log else low + (high - low) * share
    if span.whole:
        return min(max(round(at), int(low)), int(high))
    return float(f"{min(max(at, low), high):.{DIGITS}g}")
