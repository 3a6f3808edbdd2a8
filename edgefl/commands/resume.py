"""``--resume DIR``: what all commands check before they go on with runs, and the hint to it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from edgefl.config.experiment import Experiment
from edgefl.errors import UserError, listed, printable
from edgefl.hosts.choices import VIRTUAL
from edgefl.hosts.setup.resumption import (
    MOST_DIFFERENCES,
    Resumption,
    RunFolder,
    RunStage,
    differences,
    experiment_folder,
    origin_of,
    read_resumption,
    runs_in,
)
from edgefl.loading.file import load
from edgefl.record.files import EXPERIMENT

NOT_DURABLE = "off"  # a value of record.durability

Placed = Callable[[Experiment], Experiment]


def resumed(
    given: Path,
    command: str,
    words: tuple[Path | None, Sequence[str]] = (None, ()),
    clock: str | None = None,
    out: Path | None = None,
    placed: Placed = lambda experiment: experiment,
) -> Resumption:
    """Return what ``command`` resumes.

    ``words``: CONFIG and the changes to it, which must not differ from those of the runs.
    ``clock``, ``out``: as on the command line, None if not given. ``placed`` may change the edges
    of CONFIG. UserError if there is nothing to resume, or for a reason against it.
    """
    found = read_resumption(given)
    origin, folder = found.origin, found.folder
    if origin.place:
        raise UserError(
            f"--resume {given}: the coordinator of this launch is on {origin.place}, and runs on"
            " another machine cannot be resumed from here"
        )
    if origin.command != command:
        raise UserError(
            f"--resume {given}: was begun by edgefl {origin.command}; resume it with:"
            f" {found.command}"
        )
    if clock is not None and clock != origin.clock:
        raise UserError(
            f"--clock {clock}: the runs in {folder} use the {origin.clock} clock, and cannot change"
            f" it; resume them with: {found.command}"
        )
    if out is not None and (out / found.asked.name).resolve() != folder.resolve():
        raise UserError(f"--out {out}: the runs are resumed in {folder}: leave --out out")
    _check_words(found, words, placed)
    left = [run for run in found.runs if run.stage is not RunStage.finished]
    if not left:
        raise UserError(
            f"--resume {given}: nothing to resume: its runs are finished (edgefl compare {folder})"
        )
    lost = found.of(RunStage.broken_off)
    if lost and not _is_durable(found.asked, origin.clock):
        raise UserError(
            f"--resume {given}: {lost[0].name} was broken off and kept no journal"
            f' (record.durability = "off"): remove {lost[0].directory}, and it runs anew'
        )
    return found


def go_on(folder: Path, experiment: Experiment) -> str:
    """Return the command that resumes the runs in ``folder``; "" if there is nothing to resume."""
    try:
        origin, runs = origin_of(folder), runs_in(folder, experiment)
    except (UserError, OSError):
        return ""
    stages = {run.stage for run in runs}
    if stages == {RunStage.finished} or stages == {RunStage.not_begun}:
        return ""
    if RunStage.broken_off in stages and not _is_durable(experiment, origin.clock):
        return ""
    return origin.resumed_by(folder)


def go_on_of(given: Path) -> str:
    """Return ``go_on`` of the experiment that ``given`` is, or is a run of.

    "" if there is nothing to resume, if it is no such folder, or if a command writes to it now.
    """
    try:
        folder = experiment_folder(given)
        RunFolder(folder).refuse_if_in_use()
        return go_on(folder, load(folder / EXPERIMENT))
    except UserError:
        return ""


def say_how_to_go_on(folder: Path, experiment: Experiment) -> None:
    """Print the command that resumes the runs on stderr, if there is something to resume."""
    command = go_on(folder, experiment)
    if command:
        print(f"edgefl: to go on with it: {printable(command)}", file=sys.stderr, flush=True)


@contextmanager
def hint_after_ctrl_c(folder: Path, experiment: Experiment) -> Iterator[None]:
    """Around runs: after a Ctrl-C that ends the command at once, say how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        say_how_to_go_on(folder, experiment)
        raise


def _is_durable(experiment: Experiment, clock: str) -> bool:
    return clock == VIRTUAL or experiment.record.durability != NOT_DURABLE


def _check_words(
    found: Resumption, words: tuple[Path | None, Sequence[str]], placed: Placed
) -> None:
    config, overrides = words
    if config is None:
        return
    if "=" in str(config) and not config.exists():  # no CONFIG, but a change to it
        wanted = load(found.file, [str(config), *overrides])
    else:
        wanted = load(config, overrides, placed)
    now, then = (each.model_dump(exclude_none=True) for each in (wanted, found.asked))
    other = differences(now, then)
    if other:
        raise UserError(
            f"{config}: differs from the config of the runs in {found.folder}, which cannot change:"
            f" {listed(other, MOST_DIFFERENCES)}"
        )
