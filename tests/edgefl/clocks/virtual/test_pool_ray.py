"""Workers on a Ray cluster of two nodes on this machine: equal bytes, also after the loss of a
worker or a node.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import experiment
from kills import files_of, killed_run, some, whole_run
from pools import LINKS, RUNS, SPREAD, bytes_with, learned_of

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.pool import ray as ray_backend
from edgefl.clocks.virtual.pool.workers import WorkerPool, WorkerReport
from edgefl.clocks.virtual.run_batch import open_pool
from edgefl.errors import UserError

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.processes, pytest.mark.alone]
WIDE = """
import numpy as np
from torch import nn
from edgefl.api import Dataset, Task

def build():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(240, 16)).astype(np.float32), np.arange(240) % 10
    data = Dataset(x[:200], y[:200], x[200:], y[200:], classes=10)
    return Task(data, lambda: nn.Sequential(nn.Linear(16, 2300), nn.ReLU(), nn.Linear(2300, 10)))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield made
    made.shutdown()


def test_lost_workers_and_nodes_do_not_show(tmp_path: Path, cluster: Any) -> None:
    learned, steps, second = learned_of(**RUNS["rich"]), [0], cluster.add_node(num_cpus=1)

    def strike(now: int, run: Any) -> None:
        steps[0] += 1
        if steps[0] == 20:
            ray.kill(next(iter(pool._workers)))
        if steps[0] == 40:
            cluster.remove_node(second)

    here = bytes_with(tmp_path / "here", learned, None)
    with open_pool(learned, 2, "ray", cluster.address) as pool:
        assert bytes_with(tmp_path / "ray", learned, pool, strike) == here
        assert steps[0] > 40
        run = bytes_with(tmp_path / "again", learned, pool)
    assert run == here and not ray.is_initialized()


def test_an_address_without_a_cluster_is_named_at_once() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for address in ("127.0.0.1:9", "nonsense", f"127.0.0.1:{silent.getsockname()[1]}"):
            with (
                pytest.raises(UserError, match=f"no Ray cluster at '{address}'"),
                open_pool(learned_of(), 2, "ray", address),
            ):
                pass


@pytest.mark.rest
def test_a_killed_run_goes_on_with_ray(tmp_path: Path, cluster: Any) -> None:
    learned = learned_of(**RUNS["rich"])
    steps = whole_run(learned, tmp_path / "whole")
    with open_pool(learned, 1, "ray", cluster.address) as pool:
        said = killed_run(learned, tmp_path / "broken", some(range(9, steps), 3), 7, pool)
    assert said == []
    assert files_of(tmp_path / "broken") == files_of(tmp_path / "whole")


def vectors_in(value: Any) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    ray_backend.with_arrays(value, lambda array: found.append(array) or array)
    return found


class Counted(ray_backend.RayBackend):
    """Notes what travels: the vectors of orders and of results, in bytes."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.orders: list[int] = []
        self.results: list[int] = []
        self.nodes: set[str] = set()

    def send(self, worker: Any, order: list[Any]) -> None:
        self.orders.append(sum(vector.nbytes for vector in vectors_in(order)))
        super().send(worker, order)

    def wait(self, timeout_s: float | None) -> list[WorkerReport]:
        reports = super().wait(timeout_s)
        self.results += [
            sum(vector.nbytes for vector in vectors_in(each.result))
            for each in reports
            if each.number >= 0
        ]
        return reports

    def close(self) -> None:
        nodes = self._ray.nodes()
        self.nodes = {node["NodeID"] for node in nodes if node["Alive"]}
        super().close()


def test_what_travels_for_a_task_between_two_nodes(tmp_path: Path, cluster: Any) -> None:
    """An order brings at most one model down, and a result has it once."""
    sections = RUNS["plain"]
    (tmp_path / "wide.py").write_text(WIDE)
    given = experiment(**{"task": "wide.py:build", "links": LINKS} | sections)
    learned, second = learning(given, tmp_path), cluster.add_node(num_cpus=1)
    here = bytes_with(tmp_path / "here", learned, None)
    backend = Counted(learned, 2, cluster.address)
    pool = WorkerPool(backend, 2)
    try:
        assert bytes_with(tmp_path / "ray", learned, pool) == here
    finally:
        pool.close()
        cluster.remove_node(second)
    model, versions = 4 * learned.layout.size, SPREAD["stop"]["versions"]
    assert len(backend.nodes) == 2 and len(backend.orders) >= 2 * versions
    assert max(backend.orders) == model == max(backend.results)
