"""Helpers of tests with real processes and sockets: experiment, waiting, coordinator, peer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import getrandbits
from threading import Thread
from typing import Any, TypeVar

import numpy as np
import orjson
import zmq
from builders import experiment, layout
from safetensors.numpy import save_file
from warm_python import ColdPython

from edgefl import __version__
from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import StartRun, StopRun
from edgefl.clocks.wall.edge.host import EdgeHost
from edgefl.clocks.wall.edge.work import EdgeSide, OwnMachine
from edgefl.config.file import shared_digest
from edgefl.edges.edge import Edge
from edgefl.edges.training import TrainingFailure
from edgefl.protocol.codec import Incoming, Outgoing, decode, encode, unbundled
from edgefl.protocol.messages import (
    PROTOCOL,
    Arrived,
    Assignment,
    Credit,
    Delivered,
    Hello,
    Join,
    Offer,
    Piece,
    Ping,
    Pong,
    Setup,
    Update,
    Welcome,
)
from edgefl.results.read import read_events
from edgefl.strategies.base.strategy import LocalRule
from emulator.compute import Rate

PATIENCE_S = 60.0  # far more than needed, because a busy machine may be slow
NS_PER_S = 1_000_000_000
SMALL = """
name = "small"
seed = 3
model = {name = "mlp", hidden = [16]}
edges = {count = 3}
training = {epochs = 1, batch_size = 32}
devices = {samples_per_s = 2000.0, slowest_ratio = 2.0}
links = {up_mbit_s = 0.5, down_mbit_s = 1.0, latency_ms = 5.0}
stop = {versions = 8}
strategies = [{strategy = "fedasync", concurrency = 3}]
"""
Found = TypeVar("Found")
Message = TypeVar("Message")


def start(
    started: list[subprocess.Popen[str]], *words: str, cold: bool = False
) -> subprocess.Popen[str]:
    """Start `edgefl WORDS` in a separate session, as in a separate terminal.

    ``cold``: a new Python that imports everything itself, in this session.
    """
    python = ColdPython if cold else subprocess.Popen
    started.append(
        python(
            [sys.executable, "-m", "edgefl.cli", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=not cold,
        )
    )
    return started[-1]


def wait_for(found: Callable[[], Found]) -> Found:
    """Wait until ``found`` returns a true value, and return it."""
    until_s = time.monotonic() + PATIENCE_S
    while not (value := found()):
        assert time.monotonic() < until_s, f"waited {PATIENCE_S:g} s for {found}"
        time.sleep(0.02)
    return value


def patiently() -> Callable[..., None]:
    """Return a callback for ``WallRun.run`` that fails the test if the run never ends.

    On an overloaded machine, edges may be lost again and again.
    """
    until_s = time.monotonic() + 3 * PATIENCE_S

    def watch(*_: Any) -> None:
        assert time.monotonic() < until_s, f"the run has not ended in {3 * PATIENCE_S:g} s"

    return watch


def happened(directory: Path, **fields: Any) -> list[dict[str, Any]]:
    """Return the rows of a run's events.jsonl that have these fields."""
    return [
        line
        for line in read_events(directory / "events.jsonl")
        if all(line.get(key) == value for key, value in fields.items())
    ]


class Coordinator:
    """A coordinator process for a model of ``size`` synthetic parameters.

    It has no launcher, no warm parent, no torch and no evaluation.
    """

    def __init__(self, folder: Path, size: int, **sections: Any) -> None:
        self.experiment, self.directory = experiment(**sections), folder / "run"
        self.digests = (
            shared_digest(self.experiment, self.experiment.strategies[0]),
            layout(size).digest(),
            "data",
        )
        save_file({"weights": np.zeros(size, np.float32)}, folder / "initial.safetensors")
        (folder / "layout.json").write_bytes(orjson.dumps(layout(size).to_json()))
        self.control, theirs = Channel.pair()
        command = [
            sys.executable,
            "-m",
            "edgefl.clocks.wall.coordinator.process",
            str(theirs.fileno()),
            "-1",
        ]
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        theirs.close()
        self.control.send(
            StartRun(
                experiment=self.experiment.model_dump_json(),
                index=0,
                directory=self.directory,
                base=None,
                scratch=folder,
                data_digest="data",
                keys=None,
                more=False,
                strains=(),
                speed_auto=False,
                resume=False,
                engine="",
            )
        )
        self.port = self.hear().port

    def hear(self) -> Any:
        message = self.control.receive(PATIENCE_S)
        assert message is not None
        return message

    def echo(self, name: str) -> None:
        """Start a real edge host in a thread that returns every model unchanged after 10 ms."""

        def build(setup: Setup) -> EdgeSide:
            return EdgeSide(
                Edge(name, EchoTrainer(), LocalRule(None), Rate(1000.0)),
                *self.digests,
                samples=10,
                speed=1.0,
                most_bytes=1 << 24,
            )

        Thread(
            target=EdgeHost(name, f"tcp://127.0.0.1:{self.port}", None, build, OwnMachine()).run,
            daemon=True,
        ).start()

    def end(self) -> dict[str, Any]:
        """Ask it to end normally; return its summary."""
        self.control.send(StopRun("interrupted"))
        summary = self.hear().summary
        assert self.process.wait(PATIENCE_S) == 0
        return summary


@dataclass(eq=False)
class EchoRun:
    """A local run of one step that changes nothing."""

    weights: np.ndarray
    steps: int = 1
    step: int = 0
    checkpoint: int | None = None
    checkpoints: tuple[int, ...] = ()
    failure: TrainingFailure | None = None
    task: Assignment | None = None

    @property
    def samples(self) -> int:
        return 10 * self.step

    def work_until(self, step: int) -> int:
        return 10


class EchoTrainer:
    """A trainer that does not train."""

    def begin(self, task: Assignment, rule: LocalRule, memory: dict[str, Any]) -> EchoRun:
        return EchoRun(task.vectors["weights"])

    def advance(
        self, run: EchoRun, rule: LocalRule, until_step: int, stop: Callable[[], bool]
    ) -> bool:
        return True

    def payload(
        self, run: EchoRun, rule: LocalRule
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        return {"weights": run.weights}, {"samples": 10.0}

    def remembered(self, run: EchoRun, rule: LocalRule) -> dict[str, Any]:
        return {}


class Peer:
    """A plain socket: the test writes every message.

    ``heard`` keeps (monotonic ns, message, body) of all received messages.
    """

    def __init__(self, port: int) -> None:
        self.socket: zmq.Socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(f"tcp://127.0.0.1:{port}")
        self.number, self.incarnation = getrandbits(60), 0
        self.heard: list[tuple[int, Any, bytes | None]] = []
        self.unheard: list[tuple[memoryview, bytes | None]] = []  # headers of the latest frame

    def say(self, message: Any, body: Any = None) -> None:
        self.raw(
            encode(message, self.incarnation, self.number), *([] if body is None else [bytes(body)])
        )

    def raw(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def hear(self, kind: type[Message]) -> Message:
        """Return the next message of that kind, and answer pings until then."""
        while self.unheard or self.socket.poll(PATIENCE_S * 1000):
            if not self.unheard:
                frames = self.socket.recv_multipart()
                *others, last = unbundled(memoryview(frames[0]))
                body = frames[1] if len(frames) > 1 else None
                self.unheard = [*((header, None) for header in others), (last, body)]
            header, body = self.unheard.pop(0)
            message, self.incarnation, number = decode(header)
            assert number == self.number
            self.heard.append((time.monotonic_ns(), message, body))
            if isinstance(message, Ping):
                self.say(Pong(message.sent_ns, time.monotonic_ns()), body)
            if isinstance(message, kind):
                return message
        raise AssertionError(f"no {kind.__name__} came")

    def greet(self, edge: str, protocol: int = PROTOCOL) -> None:
        self.say(Hello(edge, protocol, __version__))

    def join(self, edge: str, digests: tuple[str, str, str]) -> Peer:
        self.greet(edge)
        self.hear(Setup)
        self.say(Join(*digests, 10, [], []))
        self.hear(Welcome)
        return self

    def task(self) -> Assignment:
        """Receive the next task like an edge."""
        incoming, curve = Incoming(self.hear(Offer), 1 << 24), []
        while not incoming.complete:
            piece = self.hear(Piece)
            at_ns, _, body = self.heard[-1]
            incoming.add(piece.offset, memoryview(body))
            curve.append([incoming.received, at_ns])
        self.say(Arrived(incoming.offer.transfer, curve))
        if not incoming.offer.starts:
            self.hear(Delivered)
        return incoming.message()

    def offer(
        self, task: Assignment, weights: np.ndarray, number: int = 1, due_ns: int = 0
    ) -> Outgoing:
        outgoing = Outgoing(
            number, Update(task.number, task.version, {"weights": weights}, {"samples": 10.0})
        )
        self.say(outgoing.offer(due_ns))
        return outgoing

    def upload(self, outgoing: Outgoing) -> None:
        """Send what was offered, within the credit."""
        sent = 0
        while sent < outgoing.body:
            limit = self.hear(Credit).limit
            self.piece(outgoing, sent, limit)
            sent = limit

    def piece(self, outgoing: Outgoing, start: int, end: int) -> None:
        self.say(Piece(outgoing.number, start), outgoing.piece(start, end - start))
