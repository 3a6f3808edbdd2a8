"""Workers on a Ray cluster of two nodes on this machine: equal bytes, also after the loss of a
worker or a node.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kills import files_of, killed_run, some, whole_run
from paths import SUPPORT
from pools import RUNS, bytes_with, learned_of
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.errors import UserError
from edgefl.hosts.virtual.pool import ray as ray_backend
from edgefl.hosts.virtual.pool.engine import open_pool

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.processes, pytest.mark.alone]


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
        assert steps[0] > 40 and not pool._items and not pool._backend._inputs
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


def test_a_killed_run_goes_on_with_ray(tmp_path: Path, cluster: Any) -> None:
    learned = learned_of(**RUNS["rich"])
    steps = whole_run(learned, tmp_path / "whole")
    with open_pool(learned, 1, "ray", cluster.address) as pool:
        said = killed_run(learned, tmp_path / "broken", some(range(9, steps), 3), 7, pool)
    assert said == []
    assert files_of(tmp_path / "broken") == files_of(tmp_path / "whole")


def test_the_runs_of_a_sweep_share_one_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Any
) -> None:
    (tmp_path / "tiny.toml").write_text(
        f'task = "{SUPPORT / "own_task.py"}:build"\nedges = {{count = 2}}\n'
        'stop = {versions = 3}\nstrategies = [{strategy = "fedavg"}]\n'
    )
    monkeypatch.chdir(tmp_path)
    joined: list[int] = []
    connect = ray_backend._connect

    def counted(*given: Any) -> None:
        joined.append(1)
        connect(*given)

    monkeypatch.setattr(ray_backend, "_connect", counted)
    words = ["sweep", "tiny.toml", "--grid", "training.learning_rate=0.01,0.1", "--no-best"]
    on_ray = ["--engine", "ray", "--ray-address", cluster.address]
    for more in (["--out", "here"], ["--out", "there", *on_ray]):
        result = CliRunner().invoke(app, [*words, *more], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    assert len(joined) == 1 and not ray.is_initialized()
    for rate in ("0.01", "0.1"):
        run = f"fedavg,learning_rate={rate}/seed1"
        assert files_of(tmp_path / "there" / run) == files_of(tmp_path / "here" / run)
