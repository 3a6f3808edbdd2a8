"""Runs on the wall clock: one seed after the other, with a live display."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.live import Live

from edgefl.commands import show
from edgefl.commands.progress import PLAIN_EVERY_S
from edgefl.commands.resume import go_on, say_how_to_go_on
from edgefl.config.experiment import Experiment
from edgefl.errors import UserError, printable
from edgefl.exit_status import FAILED
from edgefl.loading.file import base_of
from edgefl.results.live import LiveView
from edgefl.results.rundirs import seed_name

if TYPE_CHECKING:
    from edgefl.hosts.wall.launcher import WallRun


Listening = Callable[[int], None]  # called again and again with the coordinator's port


@contextmanager
def announced(experiment: Experiment, keyed: bool) -> Iterator[Listening]:
    """Announce the run on the local network from when its coordinator listens until the block ends.

    UserError if that is not possible. A failure during the run is one warning.
    """
    from edgefl.hosts.wall.discovery import Announcement

    announcement, told = Announcement(experiment.name, experiment.network.host, keyed), ""

    def listening(port: int) -> None:
        nonlocal told
        failure = announcement.listening(port)
        if failure and failure != told:
            told = failure
            show.warning(failure)

    try:
        yield listening
    finally:
        announcement.close()


def run_seeds(
    experiment: Experiment,
    config: Path,
    folder: Path,
    screen: Screen | None = None,
    text: str = "",
    resume: bool = False,
    overwrite: bool = False,
    **where: Any,
) -> bool:
    """Run every seed, or those until Ctrl-C; False after a Ctrl-C.

    ``text``: experiment.toml; "": none is written. ``resume``: finished runs in the folder stay,
    and broken ones go on. ``overwrite``: new runs replace finished ones. ``where``: LaunchOptions,
    whose processes are for the first seed. Exit with status 1 if a needed process dies.
    """
    from edgefl.hosts.setup.resumption import RunFolder
    from edgefl.hosts.wall.launcher import Interrupted, LaunchOptions, WallRun

    seeds, where = _seeds(experiment, folder, resume), where | {"resume": resume}
    several, screen = len(experiment.by_seed()) > 1, screen or Screen()
    port = experiment.network.port
    claim = RunFolder(folder, text, resume, overwrite, base_of(config))
    claim.refuse_if_in_use()
    try:
        with _deaths_told(folder, experiment):
            for number, one in enumerate(seeds):
                options = LaunchOptions(
                    folder,
                    base_of(config),
                    within=seed_name(one.seed, several),
                    first=number == 0,
                    more=number + 1 < len(seeds),
                    headline="" if number else _headline(experiment),
                    folder=claim,
                    **where,
                )
                screen.launcher = WallRun(_on_port(one, port), options, screen.say)
                screen.launcher.run(screen.watch)
                where.pop("processes", None)
                port = screen.launcher.port  # edges elsewhere connect to it again
        return True
    except Interrupted:
        return False
    except UserError as error:
        command = go_on(folder, experiment) if claim.begun else ""
        if not command:
            raise
        raise UserError(f"{error}; to go on with it: {command}", error.status) from error
    except KeyboardInterrupt:
        if number == 0:
            raise
        return False  # Ctrl-C between two seeds
    finally:
        screen.close()
        claim.release()


def _seeds(experiment: Experiment, folder: Path, resume: bool) -> list[Experiment]:
    """The experiment for each seed to run.

    UserError if this host does not have the meter that its user names.
    """
    from edgefl.hosts.wall.edge.machine import host_meter

    host_meter()
    return _unfinished(experiment, folder) if resume else experiment.by_seed()


@contextmanager
def _deaths_told(folder: Path, experiment: Experiment) -> Iterator[None]:
    """Exit with status 1 if a process dies that the run needs, and say how to go on."""
    from edgefl.hosts.wall.launcher import ProcessDied

    try:
        yield
    except ProcessDied as death:
        print(f"edgefl: {death}; the files so far are in {folder}", file=sys.stderr)
        if not death.bug:  # it would happen again
            say_how_to_go_on(folder, experiment)
        raise typer.Exit(FAILED) from None


def _unfinished(experiment: Experiment, folder: Path) -> list[Experiment]:
    """The experiment for each seed that has a run left to do."""
    from edgefl.hosts.setup.resumption import RunStage, run_stage

    seeds = experiment.by_seed()
    return [
        one
        for one in seeds
        if any(
            run_stage(folder / entry.name / seed_name(one.seed, len(seeds) > 1))
            is not RunStage.finished
            for entry in experiment.strategies
        )
    ]


def _on_port(experiment: Experiment, port: int) -> Experiment:
    network = experiment.network.model_copy(update={"port": port})
    return experiment.model_copy(update={"network": network})


def _headline(experiment: Experiment) -> str:
    seeds = [str(one.seed) for one in experiment.by_seed()]
    names = ", ".join(entry.name for entry in experiment.strategies)
    each = f", each with the seeds {', '.join(seeds)}" if len(seeds) > 1 else ""
    return f"{experiment.name}: {names} with {len(experiment.edges.ids())} edges{each}"


class Screen:
    """The live display of a wall-clock run.

    On a terminal it is a screen; elsewhere it prints a line every few seconds.
    """

    def __init__(
        self, listening: Listening | None = None, hosts: Mapping[str, str] | None = None
    ) -> None:
        """``hosts``: the host of each edge, for a run on several machines."""
        self.listening, self.hosts = listening, hosts
        self.launcher: WallRun  # of the current seed
        self.console = Console()
        self.view: LiveView | None = None
        self.live: Live | None = None
        self._directory: Path | None = None
        self._said_s = time.monotonic()

    def watch(self, index: int, directory: Path, port: int) -> None:
        """Show the news of the run directory."""
        if self.listening is not None:
            self.listening(port)
        if directory != self._directory:
            self.close()
            experiment = self.launcher.experiment
            self._directory, self.view = (
                directory,
                LiveView(
                    directory,
                    experiment.edges.ids(),
                    experiment.chosen_speed,
                    experiment.stop,
                    self.hosts,
                    experiment.evaluation.score,
                    self.launcher.resumed,
                    experiment.network.join_timeout_s,
                    self.launcher.join,
                ),
            )
        assert self.view is not None
        now_s = time.monotonic()
        screen = self.view.update(now_s)
        if not self.console.is_terminal:
            if now_s - self._said_s >= PLAIN_EVERY_S:
                self._said_s = now_s
                show.line(self.view.plain(now_s))
            return
        if self.live is None:
            self.live = Live(screen, console=self.console, auto_refresh=False, transient=True)
            self.live.start()
        self.live.update(screen, refresh=True)

    def say(self, text: str) -> None:
        """Print a permanent line."""
        (self.live.console if self.live else self.console).print(
            printable(text), highlight=False, markup=False, soft_wrap=True
        )

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
        self.live = None
