"""Launching a run on the wall clock: the warm parent, then for each strategy a coordinator process
and fresh edges.

This process holds no socket and no model; it starts the others, watches them, and ends them in
order.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.config.experiment import Experiment
from edgefl.config.faults import PROCESS_KINDS
from edgefl.errors import UserError
from edgefl.hosts.setup.plan import devices, emulated_devices, options
from edgefl.hosts.setup.rundir import clear
from edgefl.hosts.wall.ipc import Channel
from edgefl.results.rundirs import title
from edgefl.results.summary import one_line
from emulator.compute import Native

POLL_S = 0.25
ONE_THREAD = {
    name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
}  # before numpy loads: forks must be clean


class Interrupted(Exception):
    """The user ended the run; its results so far are kept."""

    def __init__(self, summaries: list[dict[str, Any]]) -> None:
        super().__init__("interrupted")
        self.summaries = summaries


class Died(Exception):
    """A process that the run cannot do without has ended: killed from outside, or by a bug that
    it has told on stderr.
    """


@dataclass(frozen=True, slots=True)
class Where:
    """``fleet``: fork the edges here; else wait for edges from elsewhere. ``force``: go on although
    this host is too slow.

    ``within``: where in each strategy's directory the results go, if several seeds run one after
    the other; ``first`` of them clears away what earlier runs left, ``more`` says that another one
    follows.
    """

    out: Path
    base: Path | None
    keys: Path | None = None
    fleet: bool = True
    force: bool = False
    within: str = ""
    first: bool = True
    more: bool = False


class WallRun:
    """``watch(index, directory, port)`` is called every quarter second while strategy ``index``
    runs; KeyboardInterrupt ends it in order.
    """

    def __init__(self, experiment: Experiment, where: Where, say: Callable[[str], None]) -> None:
        self.experiment, self.where, self.say = experiment, where, say
        self.scratch = tempfile.TemporaryDirectory(prefix="edgefl-")
        self.warm: subprocess.Popen[bytes] | None = None
        self.control: Channel
        self.exits: list[str] = []  # processes that died, of this strategy
        self.port = (
            experiment.network.port
        )  # from the first strategy on the one that was found free
        self.strains: dict[
            str, str
        ] = {}  # strategy -> why it was clear beforehand that this host cannot keep up

    def run(self, watch: Callable[[int, Path, int], None]) -> list[dict[str, Any]]:
        """The summaries of all strategies, in order. UserError for what is wrong before a run
        begins.
        """
        if not self.where.fleet and any(
            entry.kind in PROCESS_KINDS for entry in self.experiment.faults
        ):
            raise UserError(
                f"faults: {', '.join(PROCESS_KINDS)} need edges that are started here: edgefl run"
            )
        evaluations, jobs = (
            Channel.pair(),
            Channel.pair(),
        )  # between each coordinator and the warm parent's children
        summaries: list[dict[str, Any]] = []
        try:
            ready = self._warm_up(evaluations[1], jobs[1])
            self._check_speed(ready["samples_per_s"], ready["cores"], ready["samples"])
            for index in range(len(self.experiment.strategies)):
                summary = self._one(index, ready["data_digest"], [evaluations[0], jobs[0]], watch)
                summaries.append(summary)
                self.say(one_line(summary, title(self.directory(index))))
                if summary["finished"] == "interrupted":
                    raise Interrupted(summaries)
            return summaries
        except UserError:
            self._tidy()
            raise
        except KeyboardInterrupt:
            if not summaries:
                raise
            raise Interrupted(summaries) from None  # between two strategies, or the second Ctrl-C
        finally:
            self._end()

    def directory(self, index: int) -> Path:
        return self.where.out / self.experiment.strategies[index].name / self.where.within

    @property
    def log(self) -> Path:
        """What the edges and the evaluator say on stderr."""
        return self.where.out / ("_".join(filter(None, ("edges", self.where.within))) + ".log")

    # ------------------------------------------------------------------ processes
    def _warm_up(self, evaluations: Channel, jobs: Channel) -> dict[str, Any]:
        self.control, theirs = Channel.pair()
        self.warm = spawn("edgefl.hosts.wall.fleet.warm", [theirs, evaluations, jobs])
        self.control.send(
            experiment=self.experiment.model_dump_json(),
            base=_text(self.where.base),
            scratch=self.scratch.name,
            fleet=self.where.fleet,
            calibrate=self.where.fleet and bool(emulated_devices(self.experiment)),
        )
        return self._heard(self.control, self.warm, "the warm parent")

    def _one(
        self, index: int, data_digest: str, workers: list[Channel], watch: Callable[..., None]
    ) -> dict[str, Any]:
        control, theirs = Channel.pair()
        self.exits.clear()
        directory = self.directory(index)
        process = spawn("edgefl.hosts.wall.coordinator.process", [theirs, *workers], keep=workers)
        more = self.where.more or index + 1 < len(self.experiment.strategies)
        experiment = self.experiment.model_copy(
            update={"network": self.experiment.network.model_copy(update={"port": self.port})}
        )
        control.send(
            experiment=experiment.model_dump_json(),
            index=index,
            directory=str(directory),
            base=_text(self.where.base),
            scratch=self.scratch.name,
            data_digest=data_digest,
            keys=_text(self.where.keys),
            more=more,
            strains=[
                self.strains[name]
                for name in [self.experiment.strategies[index].name]
                if name in self.strains
            ],
        )
        port = self.port = self._heard(control, process, "the coordinator")["listening"]
        if index == 0:  # not before: a run that is refused changes nothing
            self._clear(directory)
            self.control.send(log=str(self.log))
        for name in ("vocabulary.txt", "edges.csv"):
            if (path := Path(self.scratch.name) / name).exists():
                shutil.copyfile(path, directory / name)
        if self.where.fleet:
            address = f"tcp://{self.experiment.network.host}:{port}"
            self.control.send(fork=self.experiment.edges.ids(), connect=address, index=index)
        else:
            self.say(
                f"waiting for {len(self.experiment.edges.ids())} edges on"
                f" {self.experiment.network.host}, port {port}"
            )
        strike = lambda fault, edge: self._strike(fault, edge, index, port)
        summary = self._watch(control, process, lambda: watch(index, directory, port), strike)
        process.wait()
        return summary

    def _clear(self, directory: Path) -> None:
        """Away with earlier runs of these strategies, now that the first one writes into
        ``directory``.
        """
        kept = (
            clear(self.where.out, [entry.name for entry in self.experiment.strategies], directory)
            if self.where.first
            else []
        )
        if kept:
            self.say(f"from earlier runs, left as they are: {', '.join(kept)}")

    def _tidy(self) -> None:
        """Nobody came, say: what holds nothing goes."""
        with suppress(OSError):  # not there, or not empty
            if not self.log.stat().st_size:
                self.log.unlink()
            self.where.out.rmdir()

    def _strike(self, fault: str, edge: str, index: int, port: int) -> None:
        """The coordinator says when; the warm parent has the processes."""
        if fault == "restart":
            self.control.send(
                fork=[edge], connect=f"tcp://{self.experiment.network.host}:{port}", index=index
            )
        else:
            self.control.send(fault=fault, edge=edge)

    def _watch(
        self,
        control: Channel,
        process: subprocess.Popen[bytes],
        watch: Callable[[], None],
        strike: Callable[[str, str], None],
    ) -> dict[str, Any]:
        asked = False
        while True:
            try:
                message = control.receive(timeout_s=POLL_S)
                if message is not None and "fault" in message:
                    strike(message["fault"], message["edge"])
                elif message is not None:
                    return _checked(message)["summary"]
                self._hear_exits()
                if self._nobody_left and not asked:
                    asked = True
                    control.send(stop="no edge left")
                watch()
            except KeyboardInterrupt:
                if asked:
                    raise  # a second Ctrl-C does not wait
                asked = True
                with suppress(BrokenPipeError):  # it has just ended
                    control.send(stop="interrupted")
            except EOFError:
                raise Died(f"the coordinator died (exit status {process.wait()})") from None

    @property
    def _nobody_left(self) -> bool:
        return self.where.fleet and len(
            {name for name in self.exits if name.startswith("edge ")}
        ) == len(self.experiment.edges.ids())

    def _hear_exits(self) -> None:
        """Edges that died: the run goes on, and says so."""
        assert self.warm is not None
        try:
            while (message := self.control.receive(timeout_s=0)) is not None:
                self.exits.append(message["exited"])
                self.say(
                    f"{message['exited']} died (exit status {message['status']}; see {self.log})"
                )
        except EOFError:  # its edges and the evaluator died with it
            raise Died(
                f"the warm parent died (exit status {self.warm.wait()}; see {self.log})"
            ) from None

    def _heard(
        self, control: Channel, process: subprocess.Popen[bytes], who: str
    ) -> dict[str, Any]:
        try:
            message = control.receive()
        except EOFError:
            raise Died(f"{who} died (exit status {process.wait()})") from None
        assert message is not None
        return _checked(message)

    def _end(self) -> None:
        if self.warm is not None:
            self.control.close()
            try:
                self.warm.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.warm.kill()
        self.scratch.cleanup()

    # ------------------------------------------------------------------ can this host play that?
    def _check_speed(
        self, samples_per_s: float | None, cores: int, samples: dict[str, int]
    ) -> None:
        """UserError naming the speed that would work, if the emulated devices train faster than
        this host; ``force`` goes on.
        """
        if samples_per_s is None:
            return
        have = samples_per_s * max(cores - 1, 1)
        for entry in self.experiment.strategies:
            need = self._needed(entry, samples)
            if need > have:
                works = float(f"{0.9 * self.experiment.speed * have / need:.2g}")
                text = (
                    f"strategy {entry.name}: its devices train up to {need:.0f} samples/s together,"
                    f" this host {have:.0f}: speed={works:g} would work, or --force (the run will"
                    " be strained)"
                )
                if not self.where.force:
                    raise UserError(text)
                self.strains[entry.name] = (
                    f"forced: its devices train up to {need:.0f} samples/s, this host {have:.0f}"
                )
                self.say(f"going on by --force: {text}")

    def _needed(self, entry: Any, samples: dict[str, int]) -> float:
        """Samples per real second of the fastest devices that may train at one time."""
        found, values = options(entry, self.where.base)
        own = devices(self.experiment, samples).values()
        rates = sorted(
            (device.samples_per_s for device in own if not isinstance(device, Native)), reverse=True
        )
        return sum(rates[: found.concurrency(values, len(rates))]) * self.experiment.speed


def spawn(
    module: str, channels: list[Channel], keep: list[Channel] | None = None
) -> subprocess.Popen[bytes]:
    """A process of ours with these channel ends, which are closed here unless in ``keep``.

    It is in a process group of its own: a terminal's Ctrl-C reaches this process alone, which ends
    the others in order.
    """
    fds = [channel.fileno() for channel in channels]
    process = subprocess.Popen(
        [sys.executable, "-m", module, *map(str, fds)],
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        env=os.environ | ONE_THREAD,
        process_group=0,
    )
    for channel in channels:
        if channel not in (keep or []):
            channel.close()
    return process


def _checked(message: dict[str, Any]) -> dict[str, Any]:
    if "error" in message:
        raise UserError(message["error"])
    if "bug" in message:
        raise Died(message["bug"])
    return message


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
