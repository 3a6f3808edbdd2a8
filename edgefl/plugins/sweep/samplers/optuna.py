"""Settings chosen by Optuna's TPE from the scores of those before (extra ``optuna``).

J. Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011. The first ten
settings are random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgefl.errors import needs
from edgefl.plugins.sweep.choice import BATCH, Tried, from_share
from edgefl.plugins.sweep.metrics import Metric
from edgefl.plugins.sweep.settings import GridAxis, Setting


@dataclass(frozen=True, slots=True)
class TpeSampler:
    """Asks a new study for every batch, after telling it all scores: nothing needs to be saved."""

    axes: tuple[GridAxis, ...]
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
            for trial, each in zip(self._asked(study, len(batch)), batch):
                study.tell(trial, each.score, state=failed if each.score is None else None)
        left = min(BATCH, self.trials - len(tried))
        return [self._setting(trial) for trial in self._asked(study, left)]

    def _asked(self, study: Any, count: int) -> list[Any]:
        trials = [study.ask() for _ in range(max(count, 0))]
        for trial in trials:
            self._setting(trial)  # a trial's values are chosen when it is asked for them
        return trials

    def _setting(self, trial: Any) -> Setting:
        return Setting(tuple((axis.key, _value(trial, axis)) for axis in self.axes))


def _value(trial: Any, axis: GridAxis) -> Any:
    if axis.span is None:
        return axis.values[trial.suggest_categorical(axis.key, list(range(len(axis.values))))]
    if axis.span.whole:
        low, high = int(axis.span.low), int(axis.span.high)
        return trial.suggest_int(axis.key, low, high, log=axis.span.log)
    return from_share(axis.span, trial.suggest_float(axis.key, 0.0, 1.0))


def sampler(axes: Sequence[GridAxis], trials: int, metric: Metric, seed: int) -> TpeSampler:
    """Return the sampler. UserError without the package optuna."""
    with needs("optuna", "--sampler optuna"):
        import optuna  # noqa: F401  # only whether it is there
    return TpeSampler(tuple(axes), trials, metric, seed)
