"""What ``edgefl run`` and ``edgefl coordinator`` are asked to do: new runs, or a resumption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefl.commands import show
from edgefl.config.experiment import Experiment
from edgefl.config.groups import warnings
from edgefl.hosts.setup.resumption import Origin, Resumption
from edgefl.loading.file import base_of, load
from edgefl.loading.names import strategy_warnings

RESULTS = Path("runs")  # the default of --out


@dataclass(frozen=True, slots=True)
class RunTask:
    """An experiment, the file it is from, and the folder of its runs.

    ``text``: experiment.toml of new runs. ``overwrite``: they replace finished runs in ``folder``.
    ``found``: the runs that are resumed, if any.
    """

    experiment: Experiment
    config: Path
    folder: Path
    clock: str
    text: str = ""
    overwrite: bool = False
    found: Resumption | None = None

    @classmethod
    def new(
        cls,
        config: Path,
        overrides: Sequence[str],
        out: Path | None,
        origin: Origin,
        overwrite: bool = False,
    ) -> RunTask:
        """Read CONFIG. UserError for what is wrong with it."""
        experiment = load(config, overrides)
        folder = (out or RESULTS) / experiment.name
        text = origin.text(experiment)
        return cls(experiment, config, folder, origin.clock, text, overwrite)

    @classmethod
    def resumed(cls, found: Resumption) -> RunTask:
        return cls(found.experiment, found.file, found.folder, found.origin.clock, found=found)

    @property
    def resume(self) -> bool:
        return self.found is not None

    @property
    def speed_auto(self) -> bool:
        """Whether the speed of the runs was chosen before they were broken off."""
        return self.found is not None and self.found.speed_auto

    def tell(self) -> None:
        """Print what is resumed, or the warnings about a new run's config."""
        if self.found is not None:
            show.line(self.found.told())
        else:
            warn(self.experiment, self.config)


def warn(experiment: Experiment, config: Path) -> None:
    """Print warnings about the config before the run begins."""
    base = base_of(config)
    for warning in (*warnings(experiment, base), *strategy_warnings(experiment, base)):
        show.warning(warning)
