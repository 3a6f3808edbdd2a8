"""``edgefl run`` and ``edgefl coordinator``: run an experiment and show its table and figures."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.commands.configs import ConfigOrNone, listing
from edgefl.commands.live_option import Live, MetricsPort, watched
from edgefl.commands.require import Require, Requirement, requirements, unmet
from edgefl.commands.resume_option import Overwrite, Resume, refuse_both
from edgefl.errors import UserError, printable
from edgefl.exit_status import FAILED, INTERRUPTED, NOT_MET
from edgefl.hosts.choices import VIRTUAL, WALL, EngineName, Power

if TYPE_CHECKING:
    from edgefl.commands.run_task import RunTask
    from edgefl.hosts.wall.run_processes import RunProcesses
    from edgefl.results.compare import Row

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the config: stop.emulated_s=10"),
]
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
    typer.Option("--force", help="Run even if this host cannot keep up; the run will be strained."),
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
    typer.Option("--engine", help="Virtual clock: workers on this machine, or on a Ray cluster."),
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
    given = None if clock is None else clock.value
    begins = config is not None and config.is_file() and resume is None and given != VIRTUAL
    with _loading(begins) as processes:
        task = _task(config, overrides, given, out, resume, force, overwrite)
        power = power_of(task.clock, workers, engine, ray_address)
        _only_here(task)
        task.tell()
        with watched(task.folder, task.experiment, live_port, metrics_port):
            if task.clock == VIRTUAL:
                whole, to_the_end = _virtual(task, power)
            else:
                whole, to_the_end = True, _wall(task, force, processes)
    _conclude(task, demands, whole, to_the_end)


@contextmanager
def _loading(begins: bool) -> Iterator[RunProcesses | None]:
    """Start the processes of a run on the wall clock, if one ``begins``.

    They load torch while this process reads the experiment. What the run does not need any more
    ends with the block.
    """
    if not begins:
        yield None
        return
    from edgefl.hosts.wall.run_processes import RunProcesses

    with RunProcesses() as processes:
        yield processes


def _task(
    config: Path | None,
    overrides: list[str] | None,
    clock: str | None,
    out: Path | None,
    resume: Path | None,
    force: bool,
    overwrite: bool,
) -> RunTask:
    """What `edgefl run` is asked to do; UserError for what is wrong with it."""
    from edgefl.commands.resume import resumed
    from edgefl.commands.run_task import RunTask
    from edgefl.hosts.choices import RUN
    from edgefl.hosts.setup.resumption import Origin
    from edgefl.loading.file import base_of

    if resume is not None:
        return RunTask.resumed(resumed(resume, RUN, (config, overrides or ()), clock, out))
    if config is None:
        listing()
        raise UserError("CONFIG: missing: an experiment file, one of these or your own")
    origin = Origin(RUN, clock or WALL, base_of(config), _options(force=force))
    return RunTask.new(config, overrides or (), out, origin, overwrite)


def _virtual(task: RunTask, power: Power) -> tuple[bool, bool]:
    """Do the runs under the virtual clock: whether none died, and whether it was to the end."""
    from edgefl.commands.virtual import VirtualRuns
    from edgefl.loading.file import base_of

    runs = VirtualRuns(
        task.experiment,
        base_of(task.config),
        task.folder,
        power,
        task.text,
        task.resume,
        task.overwrite,
    )
    whole = runs.run()
    return whole, not runs.interrupted


def _wall(task: RunTask, force: bool, processes: RunProcesses | None) -> bool:
    """Do the runs on the wall clock; False after a Ctrl-C."""
    from edgefl.commands.wall import run_seeds

    return run_seeds(
        task.experiment,
        task.config,
        task.folder,
        text=task.text,
        resume=task.resume,
        overwrite=task.overwrite,
        processes=processes,
        speed_auto=task.speed_auto,
        fleet=True,
        force=force,
    )


def _conclude(task: RunTask, demands: Sequence[Requirement], whole: bool, to_the_end: bool) -> None:
    from edgefl.commands.conclude import conclude

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
    from edgefl.commands import show
    from edgefl.commands import wall as on_wall
    from edgefl.hosts.wall.keys import load_server, must_have_keys

    demands = requirements(require or ())
    refuse_both(resume, overwrite)
    options = _options(announce=announce, insecure=insecure)
    task, keys = _coordinator_task(config, overrides, out, resume, keys, options, overwrite)
    experiment = task.experiment
    secrets = load_server(keys) if keys else None
    show.warning(must_have_keys(experiment.network.host, secrets, insecure))
    task.tell()
    with (
        on_wall.announced(experiment, keys is not None) if announce else nullcontext() as listening,
        watched(task.folder, experiment, live_port, metrics_port),
    ):
        screen = on_wall.Screen(listening)
        to_the_end = on_wall.run_seeds(
            experiment,
            task.config,
            task.folder,
            screen,
            task.text,
            task.resume,
            task.overwrite,
            speed_auto=task.speed_auto,
            fleet=False,
            keys=keys,
        )
    if table or demands:
        _conclude(task, demands, True, to_the_end)
    elif not to_the_end:
        raise typer.Exit(INTERRUPTED)


def _coordinator_task(
    config: Path | None,
    overrides: list[str] | None,
    out: Path | None,
    resume: Path | None,
    keys: Path | None,
    options: tuple[str, ...],
    overwrite: bool,
) -> tuple[RunTask, Path | None]:
    """What `edgefl coordinator` is asked to do, and the folder of its keys."""
    from edgefl.commands.resume import resumed
    from edgefl.commands.run_task import RunTask
    from edgefl.hosts.choices import COORDINATOR
    from edgefl.hosts.setup.resumption import Origin
    from edgefl.loading.file import base_of

    if resume is not None:
        found = resumed(resume, COORDINATOR, (config, overrides or ()), out=out)
        return RunTask.resumed(found), keys or found.keys()
    if config is None:
        raise UserError("CONFIG: missing: an experiment file (edgefl configs lists some)")
    origin = Origin(COORDINATOR, WALL, base_of(config), options, keys=keys)
    return RunTask.new(config, overrides or (), out, origin, overwrite), keys


def _options(**given: bool) -> tuple[str, ...]:
    """The switches that a resumption needs, too."""
    return tuple(f"--{name}" for name, on in given.items() if on)


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


def _only_here(task: RunTask) -> None:
    """Raise UserError for edges elsewhere."""
    from edgefl.hosts.network_addresses import is_loopback

    host = task.experiment.network.host
    if task.clock == WALL and not is_loopback(host):
        raise UserError(
            "network.host: edgefl run uses only this machine (for edges elsewhere: edgefl"
            f" coordinator): expected 127.0.0.1, found {host!r}"
        )


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
