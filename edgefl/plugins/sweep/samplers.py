"""Samplers: what chooses the settings of a sweep, if not every combination is run.

A sampler depends only on its arguments, so that a sweep can be gone on with. SAMPLERS has the
functions that make one of (axes, trials, metric, seed).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from edgefl.errors import UserError, nearest, needs
from edgefl.plugins.sweep.choice import DIGITS, Tried
from edgefl.plugins.sweep.metrics import Metric
from edgefl.plugins.sweep.settings import GridAxis, Setting, ValueRange, settings
from edgefl.streams import Streams

BATCH = 4  # settings that are tried before the next ones are chosen; not the number of workers,
# on which results must not depend
MOST_MISSES = 1000  # draws in a row that give nothing new


class Sampler(Protocol):
    """Chooses settings."""

    def next(self, tried: Sequence[Tried]) -> list[Setting]:
        """Return the settings to try next, given all that were tried; [] at the end.

        ``tried``: every setting of earlier calls, in this order.
        """
        ...


@dataclass(frozen=True, slots=True)
class Listed:
    """All of these settings at once: a grid, or points of the user."""

    settings: tuple[Setting, ...]

    def next(self, tried: Sequence[Tried]) -> list[Setting]:
        return [] if tried else list(self.settings)


def random_sampler(axes: Sequence[GridAxis], trials: int, metric: Metric, seed: int) -> Listed:
    """Draw ``trials`` settings at random, each at most once; all, if a grid has no more.

    J. Bergstra and Y. Bengio, "Random Search for Hyper-Parameter Optimization", JMLR 13 (2012): of
    many keys few matter, and drawn settings try more values of each than a grid of the same size.
    """
    rng = Streams(seed).rng("sweep")
    if all(axis.span is None for axis in axes) and (
        prod(len(axis.values) for axis in axes) <= trials
    ):
        return Listed(tuple(settings(axes)))
    drawn: dict[Setting, None] = {}
    misses = 0
    while len(drawn) < trials and misses < MOST_MISSES:
        before = len(drawn)
        drawn[Setting(tuple((axis.key, _drawn(axis, rng)) for axis in axes))] = None
        misses = misses + 1 if len(drawn) == before else 0
    return Listed(tuple(drawn))


def _drawn(axis: GridAxis, rng: np.random.Generator) -> Any:
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


@dataclass(frozen=True, slots=True)
class TpeSampler:
    """Optuna's TPE chooses settings from the scores of those before (extra ``optuna``).

    J. Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011. The first ten
    settings are random. It asks a new study for every batch, after telling it all scores: nothing
    needs to be saved.
    """

    axes: Sequence[GridAxis]
    trials: int
    metric: Metric
    seed: int

    def next(self, tried: Sequence[Tried]) -> list[Setting]:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(
            direction="maximize" if self.metric.better is max else "minimize",
            sampler=optuna.samplers.TPESampler(seed=self.seed, constant_liar=True),
        )
        failed = optuna.trial.TrialState.FAIL
        for first in range(0, len(tried), BATCH):
            batch = tried[first : first + BATCH]
            for (trial, _), each in zip(self._asked(study, len(batch)), batch):
                study.tell(trial, each.score, state=failed if each.score is None else None)
        left = min(BATCH, self.trials - len(tried))
        return [setting for _, setting in self._asked(study, left)]

    def _asked(self, study: Any, count: int) -> list[tuple[Any, Setting]]:
        """New trials of the study with their settings, which are chosen when they are asked for."""
        trials = [study.ask() for _ in range(max(count, 0))]
        return [
            (trial, Setting(tuple((axis.key, _suggested(trial, axis)) for axis in self.axes)))
            for trial in trials
        ]


def _suggested(trial: Any, axis: GridAxis) -> Any:
    if axis.span is None:
        return axis.values[trial.suggest_categorical(axis.key, list(range(len(axis.values))))]
    if axis.span.whole:
        low, high = int(axis.span.low), int(axis.span.high)
        return trial.suggest_int(axis.key, low, high, log=axis.span.log)
    return from_share(axis.span, trial.suggest_float(axis.key, 0.0, 1.0))


SAMPLERS: dict[str, Callable[..., Sampler]] = {"random": random_sampler, "optuna": TpeSampler}


def sampler(name: str, axes: Sequence[GridAxis], trials: int, metric: Metric, seed: int) -> Sampler:
    """Return the sampler ``name``. UserError if there is none, or without the package optuna."""
    if name not in SAMPLERS:
        raise UserError(f"--sampler {name}: unknown sampler{nearest(name, SAMPLERS)}")
    if name == "optuna":
        with needs("optuna", "--sampler optuna"):
            import optuna  # noqa: F401  # only whether it is there
    return SAMPLERS[name](axes, trials, metric, seed)
