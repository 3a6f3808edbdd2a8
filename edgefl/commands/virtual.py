"""Runs under the virtual clock: every seed of every strategy, on the requested number of workers.

While at least as many runs as workers remain, each worker does whole runs, in parallel with the
others. The remaining runs are done one by one, with all workers training in each. In both cases
every run writes the same bytes as alone.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.commands import show
from edgefl.commands.progress import ProgressLines
from edgefl.config.experiment import Experiment
from edgefl.results.rundirs import title
from edgefl.results.summary import INTERRUPTED, one_line

if TYPE_CHECKING:
    from edgefl.hosts.setup.learning import Learning
    from edgefl.hosts.virtual.parallel_runs import RunsOutcome
    from edgefl.hosts.virtual.pool.engine import Engine


class EngineName(StrEnum):
    local = "local"
    ray = "ray"


@dataclass(frozen=True, slots=True)
class Power:
    """The resources for runs: the number of worker processes, and where they are.

    ``ray_address``: the Ray cluster; None: start one for the runs.
    """

    workers: int = 1
    engine: EngineName = EngineName.local
    ray_address: str | None = None


@dataclass(frozen=True, slots=True)
class VirtualRun:
    """One strategy with one seed. ``resume``: it was broken off and goes on."""

    learned: Learning
    index: int
    directory: Path
    resume: bool = False

    @property
    def name(self) -> str:
        return title(self.directory)


def _jobs(experiment: Experiment, base: Path, folder: Path, resume: bool) -> list[VirtualRun]:
    """The runs to do, seed by seed: all, or those that are not finished.

    UserError if a run that goes on had other data.
    """
    from edgefl.hosts.setup.learning import learning, with_seed
    from edgefl.hosts.setup.resumption import RunStage, check_data, runs_in

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
            learned[run.seed] = learning(one, base) if first is None else with_seed(first, one)
    goes_on = [run for run in runs if resume and run.stage is RunStage.broken_off]
    for run in goes_on:
        check_data(run.directory, learned[run.seed].data_digest())
    return [VirtualRun(learned[run.seed], run.index, run.directory, run in goes_on) for run in runs]


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
    ) -> None:
        """``text``: experiment.toml of the folder; "": none is written.

        ``resume``: finished runs in the folder stay, and broken ones go on.
        """
        from edgefl.hosts.setup.plan import refuse_native
        from edgefl.hosts.setup.run_folder import RunFolder

        refuse_native(experiment)
        names = [entry.name for entry in experiment.strategies]
        self.claim = RunFolder(folder, names, text, resume)
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
        parallel = (
            len(self.jobs) // self.power.workers * self.power.workers if self._may_fork else 0
        )
        try:
            whole, go_on = self._in_parallel(self.jobs[:parallel]) if parallel else (True, True)
            if go_on:
                self._one_by_one(self.jobs[parallel:])
            return whole
        except KeyboardInterrupt:
            if not self._begun:
                raise
            self.interrupted = True
            return True  # Ctrl-C between two runs, or the second Ctrl-C
        finally:
            self.lines.close()
            self.claim.undo()
            self.claim.release()

    @property
    def _may_fork(self) -> bool:
        return self.power.engine is EngineName.local and self.power.workers > 1

    def _begin(self) -> None:
        """Remove earlier runs; called only when no check can fail any more."""
        from edgefl.hosts.setup.rundir import clear

        if self._begun:
            return
        for line in self.claim.claim():
            show.line(line)
        self._begun = True
        if self.claim.resume:
            return
        kept = clear(self.folder, [entry.name for entry in self.experiment.strategies])
        self.claim.begin()
        if kept:
            show.line(f"kept from earlier runs: {', '.join(kept)}")

    # ------------------------------------------------------------------ a worker for each run
    def _in_parallel(self, jobs: list[VirtualRun]) -> tuple[bool, bool]:
        """Do the runs in parallel; return (no run died, the remaining runs may begin).

        The remaining runs do not begin after a Ctrl-C or a bug.
        """
        from edgefl.hosts.virtual.parallel_runs import ParallelRuns
        from edgefl.hosts.virtual.run import run_virtual
        from edgefl.hosts.virtual.saved_run import Saving

        def work(number: int, report: Any, begun: Any) -> dict[str, Any]:
            job, tick = jobs[number], self.lines.ticker(self.experiment.stop, report)

            def after_step(now_ns: int, run: Any) -> None:
                begun()
                tick(now_ns, run)

            saving = Saving(say=partial(report, lasting=True))
            given = (job.learned, job.index, job.directory, after_step, None, job.resume, saving)
            return run_virtual(*given)

        def heard(number: int, line: str, lasting: bool) -> None:
            busy = f"{runs.busy} of {runs.workers} workers busy"
            if lasting:
                self.lines.say(line)
            else:
                self.lines.show(jobs[number].name, f"{line}, {busy}")

        def ended(number: int, summary: dict[str, Any] | None) -> None:
            name = jobs[number].name
            self.lines.end(name, f"{name}: died" if summary is None else one_line(summary, name))

        self._begin()
        runs = ParallelRuns(self.power.workers, work, heard, ended)
        outcome = runs.run(len(jobs))
        self._tell_deaths(jobs, outcome)
        self.interrupted = outcome.interrupted
        bug = any(status > 0 for status in outcome.died.values())
        left = [
            job.name
            for number, job in enumerate(self.jobs)
            if number not in outcome.done and number not in outcome.died
        ]
        if bug and left:
            print(f"edgefl: not run because of this: {', '.join(left)}", file=sys.stderr)
        return not outcome.died, not (bug or outcome.interrupted)

    def _tell_deaths(self, jobs: list[VirtualRun], outcome: RunsOutcome) -> None:
        for number, status in outcome.died.items():
            lies = f"its files are in {jobs[number].directory}"
            blamed = f": {outcome.blamed[number]}" if number in outcome.blamed else ""
            print(
                f"edgefl: {jobs[number].name} died (exit status {status}); {lies}{blamed}",
                file=sys.stderr,
            )

    # ------------------------------------------------------------------ all workers for one run
    def _one_by_one(self, jobs: list[VirtualRun]) -> None:
        for _, of_seed in groupby(jobs, key=lambda job: job.learned.experiment.seed):
            if not self._of_one_seed(list(of_seed)):
                return

    def _of_one_seed(self, jobs: list[VirtualRun]) -> bool:
        """Do the runs of one seed in order; False after a Ctrl-C."""
        from edgefl.hosts.virtual.pool.engine import open_pool

        with open_pool(
            jobs[0].learned, self.power.workers, self.power.engine.value, self.power.ray_address
        ) as pool:
            if pool.note:
                show.line(pool.note)
            return self._in_order(jobs, pool)

    def _in_order(self, jobs: list[VirtualRun], pool: Engine) -> bool:
        from edgefl.hosts.virtual.run import run_virtual
        from edgefl.hosts.virtual.saved_run import Saving

        self._begin()
        for job in jobs:
            tick = self.lines.ticker(self.experiment.stop, partial(self.lines.show, job.name), pool)
            saving = Saving(say=self.lines.say)
            summary = run_virtual(
                job.learned, job.index, job.directory, tick, pool, job.resume, saving
            )
            self.lines.end(job.name, one_line(summary, job.name))
            self.interrupted = summary["finished"] == INTERRUPTED
            if self.interrupted:
                return False
        return True
