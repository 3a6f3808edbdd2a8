"""``edgefl run`` and ``edgefl coordinator``: run an experiment and show its table and figures."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.commands import show
from edgefl.commands import virtual as on_virtual
from edgefl.commands import wall as on_wall
from edgefl.commands.conclude import conclude
from edgefl.commands.configs import Config, ConfigOrNone, listing
from edgefl.commands.require import Require, Requirement, requirements, unmet
from edgefl.commands.virtual import EngineName, Power
from edgefl.config.experiment import Experiment
from edgefl.config.groups import warnings
from edgefl.errors import UserError, printable
from edgefl.exit_status import FAILED, INTERRUPTED, NOT_MET
from edgefl.hosts.setup.origin import COORDINATOR, RUN, Origin
from edgefl.loading.file import base_of, load
from edgefl.loading.names import strategy_warnings

if TYPE_CHECKING:
    from edgefl.results.compare import Row

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the config: stop.emulated_s=10"),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out", metavar="DIR", help="Results are written to DIR/<name of the experiment>/."
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
    wall = "wall"
    virtual = "virtual"


ClockName = Annotated[
    Clock,
    typer.Option(
        "--clock",
        help="wall: real sockets in real time; virtual: the same strategies, as fast as possible.",
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
    clock: ClockName = Clock.wall,
    out: Out = Path("runs"),
    force: Force = False,
    workers: Workers = 1,
    engine: Engine = EngineName.local,
    ray_address: RayAddress = None,
    require: Require = None,
) -> None:
    """Run every strategy of an experiment on this machine and compare them.

    Without CONFIG: list the experiments that come with edgefl.
    """
    if config is None:
        listing()
        raise UserError("CONFIG: missing: an experiment file, one of these or your own")
    demands = requirements(require or ())
    from edgefl.hosts.wall.keys import is_loopback

    experiment = load(config, overrides or ())
    power = _power(clock, workers, engine, ray_address)
    if clock is Clock.wall and not is_loopback(experiment.network.host):
        expected = (
            "edgefl run uses only this machine (for edges elsewhere: edgefl coordinator): expected"
            " 127.0.0.1"
        )
        raise UserError(f"network.host: {expected}, found {experiment.network.host!r}")
    warn(experiment, config)
    folder = out / experiment.name
    whole, options = True, _options(force=force)
    text = Origin(RUN, clock.value, base_of(config), options).text(experiment)
    if clock is Clock.virtual:
        runs = on_virtual.VirtualRuns(experiment, base_of(config), folder, power, text)
        whole = runs.run()
        to_the_end = not runs.interrupted
    else:
        to_the_end = on_wall.run_seeds(
            experiment, config, folder, text=text, fleet=True, force=force
        )
    finish(conclude(experiment, folder), demands, whole, to_the_end)


def coordinator(
    config: Config,
    overrides: Overrides = None,
    out: Out = Path("runs"),
    keys: Keys = None,
    announce: Announce = False,
    insecure: Insecure = False,
    table: ShowTable = True,
    require: Require = None,
) -> None:
    """Start a coordinator and wait for edges from other terminals or machines (`edgefl edge`)."""
    from edgefl.hosts.wall.keys import load_server, must_have_keys

    demands = requirements(require or ())
    experiment = load(config, overrides or ())
    secrets = load_server(keys) if keys else None
    show.warning(must_have_keys(experiment.network.host, secrets, insecure))
    warn(experiment, config)
    folder = out / experiment.name
    options = _options(announce=announce, insecure=insecure)
    origin = Origin(COORDINATOR, Clock.wall.value, base_of(config), options, keys=keys)
    with (
        on_wall.announced(experiment, keys is not None) if announce else nullcontext() as listening
    ):
        screen = on_wall.Screen(listening)
        to_the_end = on_wall.run_seeds(
            experiment, config, folder, screen, origin.text(experiment), fleet=False, keys=keys
        )
    if table or demands:
        finish(conclude(experiment, folder), demands, True, to_the_end)
    elif not to_the_end:
        raise typer.Exit(INTERRUPTED)


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


def _power(clock: Clock, workers: int, engine: EngineName, ray_address: str | None) -> Power:
    """Return the workers to use; UserError for options that would have no effect."""
    if clock is Clock.wall and (
        workers > 1 or engine is not EngineName.local or ray_address is not None
    ):
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


def warn(experiment: Experiment, config: Path) -> None:
    """Print warnings about the config before the run begins."""
    base = base_of(config)
    for warning in (*warnings(experiment, base), *strategy_warnings(experiment, base)):
        show.warning(warning)
