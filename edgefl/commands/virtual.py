"""Runs under the virtual clock: every seed of every strategy of an experiment, in its folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.commands import show
from edgefl.commands.progress import ProgressLines
from edgefl.config.experiment import Experiment
from edgefl.hosts.choices import Power

if TYPE_CHECKING:
    from edgefl.hosts.setup.learning import Learning
    from edgefl.hosts.virtual.run_batch import BatchRun


def _jobs(experiment: Experiment, base: Path, folder: Path, resume: bool) -> list[BatchRun]:
    """The runs to do, seed by seed: all, or those that are not finished.

    UserError if a run that goes on had other data.
    """
    from edgefl.hosts.setup.learning import learning, with_experiment
    from edgefl.hosts.setup.resumption import RunStage, check_data, runs_in
    from edgefl.hosts.trial import try_out
    from edgefl.hosts.virtual.run_batch import BatchRun

    runs = [
        run
        for run in runs_in(folder, experiment)
        if not (resume and run.stage is RunStage.finished)
    ]
    learned: dict[int, Learning] = {}
    seeds = {one.seed: one for one in experiment.by_seed()}
    for run in runs:
        first = next(iter(learned.values()), None)
        if run.seed not in learned:
            one = seeds[run.seed]
            learned[run.seed] = (
                learning(one, base) if first is None else with_experiment(first, one)
            )
            if first is None and not resume:
                try_out(learned[run.seed])
    goes_on = [run for run in runs if resume and run.stage is RunStage.broken_off]
    for run in goes_on:
        made = learned[run.seed]
        check_data(run.directory, made.data_digest(), made.frozen_digest())
    given = {seed: partial(lambda made: made, made) for seed, made in learned.items()}
    return [
        BatchRun(seeds[run.seed], run.index, run.directory, given[run.seed], run in goes_on)
        for run in runs
    ]


class VirtualRuns:
    """All runs of an experiment, seed by seed.

    So after Ctrl-C, all strategies have been run with each completed seed.
    """

    def __init__(
        self,
        experiment: Experiment,
        base: Path,
        folder: Path,
        power: Power,
        text: str = "",
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        """``text``: experiment.toml of the folder; "": none is written.

        ``resume``: finished runs in the folder stay, and broken ones go on. ``overwrite``: new runs
        replace finished ones.
        """
        from edgefl.hosts.setup.plan import refuse_native
        from edgefl.hosts.setup.resumption import RunFolder

        refuse_native(experiment)
        self.claim = RunFolder(folder, text, resume, overwrite, base)
        self.claim.refuse_if_in_use()
        self.experiment, self.folder, self.power, self.lines = (
            experiment,
            folder,
            power,
            ProgressLines(),
        )
        self.jobs = _jobs(experiment, base, folder, resume)
        self._begun = False
        self.interrupted = False

    def run(self) -> bool:
        """Do all runs, or those until Ctrl-C; False if one died, after a message."""
        from edgefl.hosts.virtual.run_batch import RunBatch

        batch = RunBatch(self.jobs, self.power, self.lines, self._begin)
        try:
            return batch.run()
        except KeyboardInterrupt:
            if not self._begun:
                raise
            batch.interrupted = True
            return True  # Ctrl-C between two runs, or the second Ctrl-C
        finally:
            self.interrupted = batch.interrupted
            self.lines.close()
            for line in self.claim.undo():
                show.line(line)
            self.claim.release()

    def _begin(self) -> None:
        """Make room for the runs; called only when no check can fail any more."""
        if self._begun:
            return
        self.claim.claim()
        self._begun = True
        for line in self.claim.begin():
            show.line(line)
