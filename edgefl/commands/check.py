"""What can be known about a run before it.

``edgefl check``: an experiment before it runs. ``edgefl jobs``: how long the server's jobs take on
this host, for their emulated costs.
"""

from __future__ import annotations

import html
import io
import math
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgefl.catalog import is_own
from edgefl.commands import show
from edgefl.commands.options import Config, Overrides
from edgefl.commands.running import config_warnings
from edgefl.config.experiment import Experiment, parts
from edgefl.config.file import Changes
from edgefl.config.file import Config as ConfigTables
from edgefl.errors import Bug, UserError, listed
from edgefl.results.progress import clock
from edgefl.results.tables import plain_table
from edgefl.vectors import read_only
from emulator.calibrate import Timing, measure
from emulator.commands.calibrate import BUSY_LOAD

if TYPE_CHECKING:
    from edgefl.clocks.process_messages import FleetReady
    from edgefl.clocks.setup.learning import Learning
    from edgefl.strategies.base.strategy import Strategy

LONGEST_S = 20.0  # wall-clock seconds for the estimate of one strategy
ENGINES = {"compiled": "the compiled step"}
MB = 1e6
MODELS_PER_EDGE = 4  # vectors of the model's size in training: start, weights, gradient, update


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of one strategy.

    ``share``: the share of the run that was done; below 1 if the estimate reached its time limit.
    """

    name: str
    emulated_s: float
    versions: int
    updates: int
    bytes_up: int
    bytes_down: int
    share: float


class _LongEnough(Exception):
    """The estimate has reached LONGEST_S."""


def check(
    config: Config,
    overrides: Overrides = None,
) -> None:
    """Check an experiment without running it, and estimate its duration and bytes.

    Checks keys, names, files, data, memory and the speed of this host.
    """
    found = checked(ConfigTables.read(config), overrides or (), show.line, show.warning)
    if found.estimates:
        Console().print(found.table())
    show.hint(shlex.join(["edgefl", "run", str(config), *(overrides or ())]))


@dataclass(frozen=True, slots=True)
class CheckedExperiment:
    """What is known about an experiment before it runs.

    ``facts``: lines about data, model, memory and this host. ``speed``: emulated seconds per second
    of the wall clock. ``estimates``: of each strategy, with one seed; () with native devices or
    links, whose times are not known in advance.
    """

    experiment: Experiment
    facts: tuple[str, ...]
    warnings: tuple[str, ...]
    speed: float
    estimates: tuple[Estimate, ...]

    def table(self) -> Table:
        """Return a table with a row per strategy, and a note on the method."""
        shown, seeds = plain_table(gap=1), len(self.experiment.by_seed())
        for heading in ("estimate", "emul. s", "on the wall clock", "versions", "updates", "MB up"):
            shown.add_column(heading, justify="left" if heading == "estimate" else "right")
        shown.add_column("MB down", justify="right")
        for each in self.estimates:
            whole = 1 / max(each.share, 1e-9)
            about = "about " if each.share < 1 else ""
            shown.add_row(
                each.name,
                f"{about}{each.emulated_s * whole:.4g}",
                clock(seeds * each.emulated_s * whole / self.speed),
                f"{each.versions * whole:.0f}",
                f"{each.updates * whole:.0f}",
                f"{each.bytes_up * whole / MB:.3g}",
                f"{each.bytes_down * whole / MB:.3g}",
            )
        shown.caption = "one seed; from a run under the virtual clock without training"
        shown.caption_style = "table.caption"
        return shown

    def __str__(self) -> str:
        console = Console(record=True, width=100, file=io.StringIO(), force_jupyter=False)
        for line in (*self.facts, *(f"warning: {each}" for each in self.warnings)):
            console.print(Text(line), soft_wrap=True)
        if self.estimates:
            console.print(self.table())
        return console.export_text(styles=False)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def checked(
    config: ConfigTables,
    overrides: Changes,
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> CheckedExperiment:
    """Check an experiment. ``say`` and ``warn`` get each line when it is known. UserError for what
    is wrong.
    """
    facts: list[str] = []
    warned: list[str] = []

    def tell(line: str) -> None:
        facts.append(line)
        say(line)

    def caution(line: str) -> None:
        warned.append(line)
        warn(line)

    experiment, base = config.experiment(overrides), config.base
    tell(
        f"{config.called}: keys and names are valid;"
        f" {_counted(len(experiment.strategies), 'strategy')},"
        f" {_counted(len(experiment.edges.ids()), 'edge')},"
        f" {_counted(len(experiment.by_seed()), 'seed')}"
    )
    for warning in config_warnings(experiment, base):
        caution(warning)

    from edgefl.clocks.setup.learning import learning  # after the keys, because it imports torch
    from edgefl.clocks.trial import try_out

    one = experiment.by_seed()[0]
    learned = learning(one, base)
    try_out(learned)
    for line in (*data_lines(learned), training_line(learned), memory_line(learned)):
        tell(line)
    native = [part for part in parts(one) if "native" in (part.devices.kind, part.links.kind)]
    speed = _start_check(one, base, learned, tell, caution)
    if native:
        tell("no estimate: the times of native devices and links are not known in advance")
    found = [] if native else [estimate(learned, index) for index in range(len(one.strategies))]
    return CheckedExperiment(experiment, tuple(facts), tuple(warned), speed, tuple(found))


def data_lines(learned: Learning) -> list[str]:
    """Describe the edges' shares of the data, and the model."""
    sizes, task = sorted(learned.samples.values()), learned.task.dataset
    spread = f"{sizes[0]} to {sizes[-1]}, median {median(sizes):g}"
    return [
        f"data: {len(task.train_y)} training samples of {task.classes} classes, {len(task.test_y)}"
        f" test samples; samples per edge: {spread}",
        f"model: {learned.layout.parameters} parameters, {4 * learned.layout.size / MB:.3g} MB on"
        " the wire",
    ]


def training_line(learned: Learning) -> str:
    """Say what computes the training; UserError if the experiment asks for what cannot be had."""
    names = [entry.name for entry in learned.experiment.strategies]
    engines = [learned.engine(index) for index in range(len(names))]
    if len(set(engines)) == 1:
        return f"training is computed by {ENGINES.get(engines[0], engines[0])}"
    each = (f"{name} {ENGINES.get(engine, engine)}" for name, engine in zip(names, engines))
    return f"training is computed by: {'; '.join(each)}"


def memory_line(learned: Learning) -> str:
    """Describe the memory that the edges need; UserError if they cannot fit.

    On the wall clock they run in processes; forks share the data copy-on-write.
    """
    from edgefl.clocks.processes import EDGE_BYTES, forked_bytes
    from edgefl.clocks.wall.edge.membership import processes_of

    learned.load_before_fork()
    process, free = psutil.Process(), psutil.virtual_memory().available
    edges, experiment = list(learned.samples), learned.experiment
    groups = processes_of(experiment, edges, experiment.edges.per_process)
    needed = process.memory_info().rss + len(groups) * forked_bytes(_use_torch)
    needed += len(edges) * (EDGE_BYTES + MODELS_PER_EDGE * 4 * learned.layout.size)
    shared = "" if len(groups) == len(edges) else f" in {len(groups)} processes"
    text = (
        f"memory: about {needed / MB:.0f} MB for {_counted(len(edges), 'edge')}{shared} on the"
        f" wall clock, {free / MB:.0f} MB are free"
    )
    if needed > free:
        raise UserError(f"{text}: fewer edges (edges.count), a smaller model, or --clock virtual")
    return text


def _use_torch() -> None:
    if "torch" not in sys.modules:  # edges whose steps are compiled do not load it
        return
    import torch

    torch.ones(1000).sum()


def _start_check(
    experiment: Experiment,
    base: Path | None,
    learned: Learning,
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> float:
    """Do the check at the start of a wall-clock run, and return the speed."""
    from edgefl.clocks.process_messages import FleetReady
    from edgefl.clocks.wall.fleet import calibrate
    from edgefl.clocks.wall.speed_check import auto_speed, host_per_s, too_fast
    from emulator.host import cores

    rate, not_measured = calibrate(learned)
    host: FleetReady = FleetReady("", rate, cores(), learned.samples, not_measured, ())
    speed = auto_speed(experiment, base, host) if experiment.speed == "auto" else experiment.speed
    at_speed = experiment.model_copy(update={"speed": speed})
    have = host_per_s(host)
    trains = "was not measured" if have is None else f"trains about {have:.0f} samples/s"
    say(f"this host {trains}; speed {speed:g}")
    for problem in too_fast(at_speed, base, host):
        warn(f"on the wall clock: {problem}")
    for line in last_batches_of_one(learned):
        warn(line)
    return float(speed)


def last_batches_of_one(learned: Learning) -> list[str]:
    """Name the edges whose passes end with a batch of one sample, if the model fails on it.

    Layers such as BatchNorm do. It is found out by such a step, with one edge.
    """
    from edgefl.edges.training import Trainer
    from edgefl.protocol.messages import Assignment
    from edgefl.strategies.base.strategy import LocalRule

    if not learned.on_cpu():
        return []  # this process forks later, and CUDA must not begin before that
    weights, rule = learned.initial_weights(), LocalRule(None)
    alone: list[str] = []  # edges with one sample
    last: list[str] = []
    reason = ""
    for edge, samples in learned.samples.items():
        plan = learned.plan
        if plan.pass_samples(samples) % plan.batch_size != 1:
            continue
        if not reason:
            trainer = learned.trainer(edge)
            if type(trainer) is not Trainer:
                return []  # a Flower app makes its own batches, and "none" makes none
            run = trainer.begin(Assignment(0, 0, {"weights": weights}), rule, {})
            place = run.steps_per_epoch - 1
            if place >= run.steps or run.samples_at(place + 1) - run.samples_at(place) != 1:
                continue  # its tasks end before that batch
            if place and trainer.advance(run, rule, 1) and run.failure is not None:
                return []  # training fails on whole batches, too
            run.step = place
            trainer.advance(run, rule, place + 1)
            if run.failure is None:
                return []
            reason = run.failure.reason
        (alone if samples == 1 else last).append(edge)
    fails = f"the model fails ({reason})"
    found = []
    if last:
        found.append(
            f"{_edges_have(last)} a last batch of one sample, on which {fails}:"
            " training.drop_last=true leaves it out; or set another training.batch_size"
        )
    if alone:
        found.append(f"{_edges_have(alone)} one sample, on which {fails}: expected two or more")
    return found


def _edges_have(edges: Sequence[str]) -> str:
    return (
        f"{_counted(len(edges), 'edge')} ({listed(edges)}) {'has' if len(edges) == 1 else 'have'}"
    )


def estimate(learned: Learning, index: int) -> Estimate:
    """Estimate a strategy by a run under the virtual clock without training.

    Times and bytes are those of the experiment, unless a strategy's decisions depend on the
    training.
    """
    from edgefl.clocks.trial import without_training
    from edgefl.clocks.virtual.run import run_virtual

    experiment, still = learned.experiment, without_training(learned)
    seen: dict[str, Any] = {}
    end_s = time.monotonic() + LONGEST_S
    name = experiment.strategies[index].name
    try:
        with tempfile.TemporaryDirectory() as folder, suppress(_LongEnough):
            run_virtual(still, index, Path(folder), partial(_watch, seen, end_s))
    except Bug as bug:
        if bug.algorithm is None or not is_own(experiment.strategies[index].strategy):
            raise
        raise UserError(f"{name}: {bug.blame()}") from bug
    run, emulated_s = seen["run"], seen["now"] / 1e9
    counters = run.counters
    return Estimate(
        name,
        emulated_s,
        run.coordinator.version,
        counters.updates_applied,
        counters.bytes_up,
        counters.bytes_down,
        _share(experiment, emulated_s, run.coordinator.version, counters.updates_applied)
        if run.coordinator.finished is None
        else 1.0,
    )


def _watch(seen: dict[str, Any], end_s: float, now: int, run: Any) -> None:
    seen |= {"now": now, "run": run}
    if time.monotonic() > end_s:
        raise _LongEnough


def _share(experiment: Experiment, emulated_s: float, versions: int, updates: int) -> float:
    stop = experiment.stop
    goals = ((stop.emulated_s, emulated_s), (stop.versions, versions), (stop.updates, updates))
    return max((now / goal for goal, now in goals if goal is not None), default=1.0)


def _counted(number: int, what: str) -> str:
    plural = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"1 {what}" if number == 1 else f"{number} {plural}"


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
    from edgefl.clocks.setup import plan
    from edgefl.clocks.setup.learning import learning
    from edgefl.config.file import base_of, load

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
        for line in job_lines(entry.name, made, learned, experiment.chosen_speed):
            show.line(line)
    if load_before >= BUSY_LOAD:
        show.line(
            f"other programs were running (load {load_before:.1f}): on an idle host jobs may take"
            " less"
        )
    show.hint(
        f"edgefl run {config}; its summary.json says how late jobs really were (fidelity.jobs)"
    )


def job_lines(name: str, strategy: Strategy, learned: Learning, speed: float) -> list[str]:
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
