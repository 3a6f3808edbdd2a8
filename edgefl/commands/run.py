"""``edgefl run`` and ``edgefl coordinator``: run an experiment and show its table and figures.

Also the options of all commands that run experiments: --resume, --live, --require. It imports
little, so that the processes of a run on the wall clock start early; ``running.py`` has the rest.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.clocks.choices import COORDINATOR, RUN, VIRTUAL, WALL, EngineName, Power
from edgefl.commands import show
from edgefl.commands.lists import listing
from edgefl.commands.options import MOST_PORT, ConfigOrNone, Overrides, port_of
from edgefl.entry_points import behind
from edgefl.errors import UserError, nearest, printable
from edgefl.exit_status import FAILED, INTERRUPTED, NOT_MET
from edgefl.results.summary import FAITHFUL

if TYPE_CHECKING:
    from edgefl.clocks.processes import RunProcesses
    from edgefl.commands.running import RunTask
    from edgefl.config.experiment import Experiment
    from edgefl.results.compare import Row

ADVANCED = "Advanced"  # the panel of options that few runs need
NO_CONFIG = "CONFIG: missing: an experiment file (edgefl configs lists some)"

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Results are written to DIR/<name of the experiment>/.",
        show_default="runs",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="auto|HOST:PORT",
        help="With --engine ray: a running cluster. Default: a new one.",
        rich_help_panel=ADVANCED,
    ),
]


class Clock(StrEnum):
    wall = WALL
    virtual = VIRTUAL


ClockName = Annotated[
    Clock | None,
    typer.Option(
        "--clock",
        help="wall: real sockets in real time; virtual: the same strategies, as fast as possible.",
        show_default="wall",
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Run even if this host cannot keep up; the run will be strained.",
        rich_help_panel=ADVANCED,
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        min=1,
        help="Virtual clock: number of processes that train. The results do not depend on it.",
    ),
]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="Virtual clock: workers on this machine, or on a Ray cluster.",
        rich_help_panel=ADVANCED,
    ),
]

Keys = Annotated[
    Path | None,
    typer.Option("--keys", metavar="DIR", help="CURVE keys from `edgefl keys new`."),
]
Announce = Annotated[
    bool,
    typer.Option(
        "--announce", help="Announce this run on the local network (mDNS), for edge --discover."
    ),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow a network without keys.")]
ShowTable = Annotated[
    bool,
    typer.Option("--table/--no-table", help="Compare the strategies at the end: table, figures."),
]


LIVE, METRICS_PORT, ANNOUNCE = "--live", "--metrics-port", "--announce"

Live = Annotated[
    str | None,
    typer.Option(
        LIVE,
        metavar="[PORT]",
        help="Serve a page that shows the runs while they run, on this machine only.",
        show_default=False,
    ),
]

MetricsPort = Annotated[
    int | None,
    typer.Option(
        METRICS_PORT,
        metavar="PORT",
        min=0,
        max=MOST_PORT,
        help="Serve metrics of the runs to Prometheus, on this machine only.",
        show_default=False,
        rich_help_panel=ADVANCED,
    ),
]


Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="DIR",
        help="Go on with the runs in DIR (runs/NAME), after Ctrl-C or a crash. Without CONFIG.",
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace finished runs in the folder of the results, instead of moving it to NAME.1.",
    ),
]
ACCURACY = "accuracy"

Require = Annotated[
    list[str] | None,
    typer.Option(
        "--require",
        metavar="faithful|accuracy=X",
        help="Exit with status 3 unless every run is faithful (virtual ones are), or has a final"
        " accuracy >= X.",
    ),
]


def run(
    config: ConfigOrNone = None,
    overrides: Overrides = None,
    clock: ClockName = None,
    out: Out = None,
    resume: Resume = None,
    overwrite: Overwrite = False,
    force: Force = False,
    workers: Workers = 1,
    engine: Engine = EngineName.local,
    ray_address: RayAddress = None,
    live_port: Live = None,
    metrics_port: MetricsPort = None,
    require: Require = None,
) -> None:
    """Run every strategy of an experiment on this machine and compare them.

    Without CONFIG: list the experiments that come with edgefl.
    """
    demands = requirements(require or ())
    refuse_both(resume, overwrite)
    if config is None and resume is None:
        listing()
        raise UserError("CONFIG: missing: an experiment file, one of these or your own")
    given = None if clock is None else clock.value
    starting: AbstractContextManager[RunProcesses | None] = nullcontext()
    if config is not None and config.is_file() and resume is None and given != VIRTUAL:
        from edgefl.clocks.processes import RunProcesses

        starting = RunProcesses()  # they load torch while this process reads the experiment
    with starting as processes:
        from edgefl.commands.running import ProgressLines, Screen, run_seeds, run_virtual_seeds

        task = _task(RUN, config, overrides, out, resume, overwrite, given, force=force)
        power = power_of(task.clock, workers, engine, ray_address)
        task.only_here()
        task.tell()
        with watched(task.folder, task.experiment, live_port, metrics_port):
            if task.clock == VIRTUAL:
                whole, to_the_end = run_virtual_seeds(task, power, ProgressLines())
            else:
                whole = True
                to_the_end = run_seeds(task, Screen(), processes=processes, fleet=True, force=force)
    _conclude(task, demands, whole, to_the_end)


def _task(
    command: str,
    config: Path | None,
    overrides: list[str] | None,
    out: Path | None,
    resume: Path | None,
    overwrite: bool,
    clock: str | None = None,
    keys: Path | None = None,
    **switches: bool,
) -> RunTask:
    """What the command is asked to do; UserError for what is wrong with it.

    ``switches``: those that a resumption needs, too.
    """
    from edgefl.clocks.setup.resumption import Origin
    from edgefl.commands.running import RunTask, resumed
    from edgefl.config.file import Config

    if resume is not None:
        return RunTask.resumed(resumed(resume, command, (config, overrides or ()), clock, out))
    if config is None:
        raise UserError(NO_CONFIG)
    options = tuple(f"--{name}" for name, on in switches.items() if on)
    read = Config.read(config)
    origin = Origin(command, clock or WALL, read.base, options, keys=keys)
    return RunTask.new(read, overrides or (), out, origin, overwrite)


def _conclude(task: RunTask, demands: Sequence[Requirement], whole: bool, to_the_end: bool) -> None:
    from edgefl.commands.running import conclude

    finish(conclude(task.experiment, task.folder), demands, whole, to_the_end)


def coordinator(
    config: ConfigOrNone = None,
    overrides: Overrides = None,
    out: Out = None,
    resume: Resume = None,
    overwrite: Overwrite = False,
    keys: Keys = None,
    announce: Announce = False,
    insecure: Insecure = False,
    table: ShowTable = True,
    live_port: Live = None,
    metrics_port: MetricsPort = None,
    require: Require = None,
) -> None:
    """Start a coordinator and wait for edges from other terminals or machines (`edgefl edge`)."""
    from edgefl.clocks.wall.keys import load_server, must_have_keys
    from edgefl.commands.running import Screen, run_seeds

    demands = requirements(require or ())
    refuse_both(resume, overwrite)
    task = _task(
        COORDINATOR,
        *(config, overrides, out, resume, overwrite),
        keys=keys,
        announce=announce,
        insecure=insecure,
    )
    if task.resumption is not None:
        keys = keys or task.resumption.keys()
    experiment = task.experiment
    secrets = load_server(keys) if keys else None
    show.warning(must_have_keys(experiment.network.host, secrets, insecure))
    task.tell()
    with (
        behind(ANNOUNCE)(experiment, keys is not None) if announce else nullcontext() as listening,
        watched(task.folder, experiment, live_port, metrics_port),
    ):
        to_the_end = run_seeds(task, Screen(listening), fleet=False, keys=keys)
    if table or demands:
        _conclude(task, demands, True, to_the_end)
    else:
        from edgefl.commands.running import compared

        finish(compared(experiment, task.folder)[1], (), True, to_the_end)


def finish(
    rows: Sequence[Row], demands: Sequence[Requirement], whole: bool, to_the_end: bool
) -> None:
    """Exit with status 1 if something failed, with INTERRUPTED after Ctrl-C, or with NOT_MET if a
    run misses a demand.

    ``whole``: no run died. A run that ended by itself without a new model has failed.
    """
    made = all(row.versions or row.finished == "interrupted" for row in rows)
    if not (made and whole and to_the_end):
        raise typer.Exit(FAILED if to_the_end else INTERRUPTED)
    missed = unmet(demands, rows)
    for sentence in missed:
        print(f"edgefl: {printable(sentence)}", file=sys.stderr)
    if missed:
        raise typer.Exit(NOT_MET)


def power_of(clock: str, workers: int, engine: EngineName, ray_address: str | None) -> Power:
    """Return the workers to use; UserError for options that would have no effect."""
    if clock == WALL and (workers > 1 or engine is not EngineName.local or ray_address is not None):
        raise UserError(
            "--workers, --engine and --ray-address are for --clock virtual; on the wall clock every"
            " edge is its own process"
        )
    if ray_address is not None and engine is not EngineName.ray:
        raise UserError(f"--ray-address {ray_address}: expected --engine ray with it")
    if (
        ray_address is not None
        and ray_address != "auto"
        and not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}", ray_address)
    ):
        raise UserError(f"--ray-address {ray_address}: expected auto or HOST:PORT")
    return Power(workers, engine, ray_address)


@contextmanager
def watched(
    folder: Path, experiment: Experiment, live_port: str | None, metrics_port: int | None
) -> Iterator[None]:
    """Serve the page and the metrics of the runs in ``folder`` until the block ends, if asked.

    After Ctrl-C or the death of a process, say how to go on.
    """
    from edgefl.commands.running import hint_at_early_end

    with ExitStack() as servers:
        if live_port is not None:
            page = behind(LIVE)(folder, port_of(live_port, LIVE))
            show.line(f"live page: {servers.enter_context(page)}")
        if metrics_port is not None:
            metrics = behind(METRICS_PORT)(folder, metrics_port)
            show.line(f"metrics: {servers.enter_context(metrics)}")
        servers.enter_context(hint_at_early_end(folder, experiment))
        yield


def refuse_both(resume: Path | None, overwrite: bool) -> None:
    """Raise UserError for --overwrite with --resume, which replaces nothing."""
    if resume is not None and overwrite:
        raise UserError("--overwrite: has no effect with --resume: leave one of them out")


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition on every run; ``least`` is the smallest accuracy, as a share of 1."""

    name: str
    least: float = 0.0


def requirements(words: Sequence[str]) -> list[Requirement]:
    """Parse the conditions; UserError for an invalid one."""
    return [_requirement(word) for word in words]


def _requirement(word: str) -> Requirement:
    name, equals, value = word.partition("=")
    if name == FAITHFUL and not equals:
        return Requirement(FAITHFUL)
    if name == ACCURACY:
        try:
            least = float(value)
        except ValueError:
            least = -1.0
        if 0 <= least <= 1:
            return Requirement(ACCURACY, least)
        raise UserError(f"--require {word}: expected a share such as accuracy=0.9")
    raise UserError(
        f"--require {word}: expected faithful or accuracy=0.9{nearest(name, [FAITHFUL, ACCURACY])}"
    )


def unmet(wanted: Sequence[Requirement], rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each condition that one of the runs does not meet."""
    if wanted and not rows:
        return ["--require: there is no run"]
    return [sentence for row in rows for each in wanted for sentence in _misses(each, row)]


def _misses(wanted: Requirement, row: Row) -> list[str]:
    name = row.name if row.seed is None else f"{row.name}, seed {row.seed}"
    if wanted.name == FAITHFUL and row.verdict not in (FAITHFUL, VIRTUAL):
        return [f"--require faithful: {name} is {row.verdict}"]
    accuracy, title = row.final_accuracy, row.score.title
    if wanted.name == ACCURACY and row.score.falls:
        return [f"--require accuracy={wanted.least:g}: {name} has {title} as evaluation.metric"]
    if wanted.name == ACCURACY and (accuracy is None or accuracy < wanted.least):
        found = f"no {title}" if accuracy is None else f"{accuracy:.4f}"
        return [f"--require accuracy={wanted.least:g}: {name} has {found}"]
    return []
