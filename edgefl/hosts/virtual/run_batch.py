"""Many runs under the virtual clock, on the requested number of workers.

While at least as many runs as workers remain, each worker does whole runs, in parallel with the
others. The remaining runs are done one by one, with all workers training in each. In both cases
every run writes the same bytes as alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from edgefl.config.experiment import Experiment, Stop
from edgefl.hosts.setup.learning import Learning
from edgefl.hosts.virtual.parallel_runs import ParallelRuns, RunsOutcome
from edgefl.hosts.virtual.pool.engine import Engine, check_one_worker, open_pool
from edgefl.hosts.virtual.run import run_virtual
from edgefl.hosts.virtual.saved_run import Saving
from edgefl.hosts.workers import EngineName, Power
from edgefl.results.rundirs import title
from edgefl.results.summary import INTERRUPTED, one_line


class Lines(Protocol):
    """Where the progress of runs is shown."""

    def ticker(
        self, stop: Stop, say: Callable[[str], None], pool: Any = None
    ) -> Callable[[int, Any], None]:
        """Make a function that is called after every step of a run, and reports with ``say``."""
        ...

    def show(self, name: str, text: str) -> None:
        """Show the new progress of the run ``name``."""
        ...

    def say(self, text: str) -> None:
        """Print a line that stays."""
        ...

    def end(self, name: str, text: str) -> None:
        """End the progress of the run ``name`` with a line that stays."""
        ...


@dataclass(frozen=True, slots=True)
class BatchRun:
    """One strategy with one seed, in its own directory.

    ``learned`` returns its data and model; it may be called in another process. Runs that share
    this function also share a pool. ``resume``: the run was broken off and goes on.
    """

    experiment: Experiment
    index: int
    directory: Path
    learned: Callable[[], Learning]
    resume: bool = False

    @property
    def name(self) -> str:
        return title(self.directory)


class RunBatch:
    """Does all ``runs``, or those until a Ctrl-C.

    ``begin`` is called once, when no check of all runs together can fail any more. After ``run``,
    ``interrupted`` says whether a Ctrl-C ended it.
    """

    def __init__(
        self,
        runs: Sequence[BatchRun],
        power: Power,
        lines: Lines,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        self.runs, self.power, self.lines, self.begin = runs, power, lines, begin
        self.interrupted = False

    def run(self) -> bool:
        """Do the runs; False if one died, after a message.

        UserError if a run finds an error that the user can correct.
        """
        for run in self.runs:
            ray = self.power.engine is EngineName.ray
            check_one_worker(run.experiment, self.power.workers, ray)
        parallel = len(self.runs) // self.power.workers * self.power.workers if self._forks else 0
        whole, go_on = self._in_parallel(self.runs[:parallel]) if parallel else (True, True)
        if go_on:
            self._one_by_one(self.runs[parallel:])
        return whole

    @property
    def _forks(self) -> bool:
        return self.power.engine is EngineName.local and self.power.workers > 1

    # ------------------------------------------------------------------ a worker for each run
    def _in_parallel(self, runs: Sequence[BatchRun]) -> tuple[bool, bool]:
        """Do the runs in parallel; return (no run died, the remaining runs may begin).

        The remaining runs do not begin after a Ctrl-C or a bug.
        """

        def work(number: int, report: Any, begun: Any) -> dict[str, Any]:
            run = runs[number]
            tick = self.lines.ticker(run.experiment.stop, report)

            def after_step(now_ns: int, opened: Any) -> None:
                begun()
                tick(now_ns, opened)

            saving = Saving(say=partial(report, lasting=True))
            given = (run.learned(), run.index, run.directory, after_step, None, run.resume, saving)
            return run_virtual(*given)

        def heard(number: int, line: str, lasting: bool) -> None:
            busy = f"{parallel.busy} of {parallel.workers} workers busy"
            if lasting:
                self.lines.say(line)
            else:
                self.lines.show(runs[number].name, f"{line}, {busy}")

        def ended(number: int, summary: dict[str, Any] | None) -> None:
            name = runs[number].name
            self.lines.end(name, f"{name}: died" if summary is None else one_line(summary, name))

        self.begin()
        parallel = ParallelRuns(self.power.workers, work, heard, ended)
        outcome = parallel.run(len(runs))
        self._tell_deaths(runs, outcome)
        self.interrupted = outcome.interrupted
        bug = any(status > 0 for status in outcome.died.values())
        left = [
            run.name
            for number, run in enumerate(self.runs)
            if number not in outcome.done and number not in outcome.died
        ]
        if bug and left:
            print(f"edgefl: not run because of this: {', '.join(left)}", file=sys.stderr)
        return not outcome.died, not (bug or outcome.interrupted)

    def _tell_deaths(self, runs: Sequence[BatchRun], outcome: RunsOutcome) -> None:
        for number, status in outcome.died.items():
            lies = f"its files are in {runs[number].directory}"
            blamed = f": {outcome.blamed[number]}" if number in outcome.blamed else ""
            print(
                f"edgefl: {runs[number].name} died (exit status {status}); {lies}{blamed}",
                file=sys.stderr,
            )

    # ------------------------------------------------------------------ all workers for one run
    def _one_by_one(self, runs: Sequence[BatchRun]) -> None:
        with self._cluster() if runs else nullcontext():
            for learned, alike in groupby(runs, key=lambda run: run.learned):
                if not self._with_one_pool(learned(), list(alike)):
                    return

    def _cluster(self) -> AbstractContextManager[None]:
        if self.power.engine is not EngineName.ray:
            return nullcontext()
        from edgefl.hosts.virtual.pool.ray import one_cluster  # an extra

        return one_cluster(self.power.workers, self.power.ray_address)

    def _with_one_pool(self, learned: Learning, runs: list[BatchRun]) -> bool:
        """Do the runs of one data and model in order; False after a Ctrl-C."""
        power = self.power
        with open_pool(learned, power.workers, power.engine.value, power.ray_address) as pool:
            if pool.note:
                self.lines.say(pool.note)
            return self._in_order(learned, runs, pool)

    def _in_order(self, learned: Learning, runs: list[BatchRun], pool: Engine) -> bool:
        self.begin()
        for run in runs:
            tick = self.lines.ticker(run.experiment.stop, partial(self.lines.show, run.name), pool)
            saving = Saving(say=self.lines.say)
            given = (learned, run.index, run.directory, tick, pool, run.resume, saving)
            summary = run_virtual(*given)
            self.lines.end(run.name, one_line(summary, run.name))
            self.interrupted = summary["finished"] == INTERRUPTED
            if self.interrupted:
                return False
        return True
