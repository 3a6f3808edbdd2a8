"""The bytes that each compared method puts on the wire, counted by a relay between edge and
coordinator.
"""

from __future__ import annotations

import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import pytest
from processes import PATIENCE_S
from terminals import Terminals

from edgefl.clocks.wall.coordinator.transfers import PROBE_BYTES
from edgefl.results.read import read_csv

pytestmark = [pytest.mark.rest, pytest.mark.alone]

INPUTS, HIDDEN, CLASSES = 64, 512, 10
MODEL = INPUTS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES  # elements
DROPPED = HIDDEN // 4
SUB_MODEL = MODEL - DROPPED * (INPUTS + 1 + CLASSES)
ROUNDS = ("fedavg", "moon", "feddyn")
ONE_BY_ONE = (
    "port",
    "asofed",
    "syncdrop",
    "fedac",
)  # other methods send as FedAvg and PORT do: test_strategies_sockets.py
DOWN, UP = (
    {"syncdrop": SUB_MODEL + DROPPED, "fedac": 2 * MODEL},
    {"syncdrop": SUB_MODEL, "fedac": 2 * MODEL},
)  # ALGORITHMS 0.2; else one model
EXTRA = {"port": ", least_updates = 1", "fedac": ", buffer_size = 1"}
# A training takes 1.4 s, so that no edge trains and sends once more while the run ends.
SAMPLES_PER_S = 1_000
# bytes: the experiment sent to the edge, offers, credits, heartbeats; a quarter of a model
# is 38,000
TALK = 12_000
CONFIG = f"""
name = "wire"
model = {{name = "mlp", hidden = [{HIDDEN}]}}
edges = {{count = 1}}
training = {{batch_size = 256}}
devices = {{samples_per_s = {SAMPLES_PER_S}}}
links = {{kind = "native"}}
network = {{liveness_s = 30.0}}
stop = {{versions = 2, emulated_s = 30.0}}
evaluation = {{every_versions = 0, train_samples = 0}}
"""


def tables() -> str:
    """One [[strategies]] table per method, with one task at a time."""
    one = dict.fromkeys(ROUNDS, "clients_per_round = 1") | {
        name: f"concurrency = 1{EXTRA.get(name, '')}" for name in ONE_BY_ONE
    }
    return (
        "strategies ="
        f" [{', '.join(f'{{strategy = {name!r}, {options}}}' for name, options in one.items())}]\n"
    )


@dataclass
class Counted:
    """Bytes of one TCP connection; "up": towards the coordinator."""

    bytes: dict[str, int] = field(default_factory=lambda: {"up": 0, "down": 0})


class Relay:
    """Passes every connection on to ``port``; each session of an edge is one connection."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.connections: list[Counted] = []
        self.open: list[socket.socket] = []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed: the test has ended
            while True:
                edge, _ = self.server.accept()
                try:
                    coordinator = socket.create_connection(("127.0.0.1", self.to))
                except OSError:  # between two strategies there is no listener
                    edge.close()
                    continue
                self.open += [edge, coordinator]
                self.connections.append(counted := Counted())
                for direction, source, target in (
                    ("up", edge, coordinator),
                    ("down", coordinator, edge),
                ):
                    Thread(
                        target=self._pass_on, args=(counted, direction, source, target), daemon=True
                    ).start()

    def _pass_on(
        self, counted: Counted, direction: str, source: socket.socket, target: socket.socket
    ) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                counted.bytes[direction] += len(data)
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for each in (self.server, *self.open):
            each.close()


@pytest.fixture(scope="module")
def carried(
    warm_python: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Counted]]:
    """The experiment's directory and the bytes of its sockets.

    There is one edge, with one session per strategy, in their order.
    """
    started: list[subprocess.Popen[str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder := tmp_path_factory.mktemp("wire"))
        (folder / "wire.toml").write_text(CONFIG + tables())
        terminals = Terminals(started, "wire.toml")
        relay = Relay(terminals.port)
        terminals.port = relay.port
        edge = terminals.edge("e000")
        ended = [
            process.communicate(timeout=3 * PATIENCE_S) for process in (terminals.coordinator, edge)
        ]  # seven runs, one after the other
        assert [err for _, err in ended] == ["", ""]
        relay.close()
    sessions = [each for each in relay.connections if each.bytes["up"] > PROBE_BYTES]
    assert len(sessions) == len(ROUNDS + ONE_BY_ONE)
    return folder / "runs" / "wire", dict(zip(ROUNDS + ONE_BY_ONE, sessions))


@pytest.mark.parametrize("name", ROUNDS + ONE_BY_ONE)
def test_the_sockets_carry_the_method_s_vectors_and_little_else(
    name: str, carried: tuple[Path, dict[str, Counted]]
) -> None:
    """A probe of the path each way, then models and small messages: ALGORITHMS 0.2.

    The task after the last version may be in transit when the run ends.
    """
    directory, crossed = carried
    rows = read_csv(directory / name / "links.csv")
    for kind, direction, elements, more in (
        ("task", "down", DOWN.get(name, MODEL), 1),
        ("update", "up", UP.get(name, MODEL), 0),
    ):
        delivered = sum(row["kind"] == kind and row["finished_s"] != "" for row in rows)
        models, talk = divmod(crossed[name].bytes[direction] - PROBE_BYTES, 4 * elements)
        assert 2 <= delivered <= models <= delivered + more
        cut_short = models < delivered + more  # the next task, in transit when the run ended
        assert talk < TALK or cut_short
