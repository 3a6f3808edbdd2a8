"""``edgefl jobs``: measures how long the server's jobs take on this host.

This shows which emulated costs of these jobs are realistic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import psutil
import typer

from edgefl.commands import show
from edgefl.commands.configs import Config
from edgefl.errors import UserError
from edgefl.vectors import read_only
from emulator.calibrate import Timing, measure
from emulator.commands.calibrate import BUSY_LOAD

if TYPE_CHECKING:
    from edgefl.hosts.setup.learning import Learning
    from edgefl.strategies.base.strategy import Strategy

REPEAT, WARM_UP = 11, 2


def jobs(
    config: Config,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the config: unlabelled.size=500"),
    ] = None,
) -> None:
    """Time the server's jobs (predictions, distillations) on this host and suggest their cost.

    The cost is the emulated time of a job, an option of the strategy.
    """
    from edgefl.hosts.setup import plan
    from edgefl.hosts.setup.learning import learning
    from edgefl.loading.file import base_of, load

    experiment, base = load(config, overrides or ()).by_seed()[0], base_of(config)
    entries = [entry for entry in experiment.strategies if plan.options(entry, base)[0].runs_jobs]
    if not entries:
        raise UserError(
            f"{config}: none of its strategies has jobs (fedecho and zeno-plus-plus have)"
        )
    learned, load_before = learning(experiment, base), psutil.getloadavg()[0]
    learned.place()
    for entry in entries:
        made = plan.strategy(experiment, entry, base, learned.initial_weights(), learned.layout)
        for line in lines(entry.name, made, learned, experiment.chosen_speed):
            show.line(line)
    if load_before >= BUSY_LOAD:
        show.line(
            f"other programs were running (load {load_before:.1f}): on an idle host jobs may take"
            " less"
        )
    show.hint(
        f"edgefl run {config}; its summary.json says how late jobs really were (fidelity.jobs)"
    )


def lines(name: str, strategy: Strategy, learned: Learning, speed: float) -> list[str]:
    """Report on one strategy's jobs, with options to paste into its config."""
    told, paste = [f"{name}, at speed {speed:g}:"], []
    for option, sort, timing in timed(strategy, learned):
        least, given = honest_s(timing, speed), getattr(strategy.options, option)
        verdict = (
            "is enough" if given >= least else f"is too short for this host, at least {least:g}"
        )
        told.append(
            f"  {sort}: {timing.median_ns / 1e6:.1f} ms, p90 {timing.p90_ns / 1e6:.1f} ms ({REPEAT}"
            f" times); {option} = {given:g} {verdict}"
        )
        paste.append(f"{option} = {least:g}")
    return (
        [*told, f"  to paste: {', '.join(paste)}"]
        if paste
        else [*told, "  its method rehearsal names no jobs to time"]
    )


def timed(strategy: Strategy, learned: Learning) -> Iterator[tuple[str, str, Timing]]:
    """Yield (the option of its cost, the kind, its timing) for each kind of job of ``strategy``."""
    from edgefl.snake_case import snake

    rehearsal = strategy.rehearsal()
    result: Any = None
    while True:
        try:
            option, job = rehearsal.send(result)
        except StopIteration:
            return
        result = job.work(learned)
        read_only(result[0].values())  # as in a run
        yield (
            option,
            snake(type(job).__name__),
            Timing(1.0, measure(partial(job.work, learned), REPEAT, WARM_UP)),
        )


def honest_s(timing: Timing, speed: float) -> float:
    """A realistic cost in emulated seconds, with two digits.

    Twice the 90th percentile, because a job waits until an edge's slice or another job ends.
    """
    return _two_digits_up(2 * timing.p90_ns / 1e9 * speed)


def _two_digits_up(number: float) -> float:
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return float(f"{math.ceil(number / step * (1 - 1e-12)) * step:.2g}")
