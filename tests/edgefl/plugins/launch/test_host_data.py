"""The data of edges on other hosts: who gets which files, and when none are sent."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import experiment
from idx_files import idx_bytes

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.wall.edge.membership import SideBuilder
from edgefl.commands import data as data_command
from edgefl.config.experiment import Experiment
from edgefl.config.file import dump, to_json
from edgefl.errors import UserError
from edgefl.plugins.launch.connections import LocalConnection
from edgefl.plugins.launch.host_data import DataSync, HostData
from edgefl.plugins.launch.inventory import Host
from edgefl.protocol.messages import Setup

pytestmark = pytest.mark.processes

EDGES = ("a", "b", "c")


def hosts(folder: Path, **changes: Any) -> list[Host]:
    """Two hosts: one with the edges a and b, one with c."""
    return [
        Host(name, via="local", edges=edges, folder=str(folder / name), **changes)
        for name, edges in (("one", EDGES[:2]), ("two", EDGES[2:]))
    ]


def synced(config: Experiment, where: list[Host]) -> dict[str, Any]:
    sync = DataSync(config, None)
    sync.load()

    async def one(host: Host) -> HostData:
        return await sync.serve(LocalConnection(host), sys.executable)

    return {host.name: asyncio.run(one(host)) for host in where}


def files(folder: Path) -> dict[str, list[str]]:
    """The names of all files on each host."""
    return {
        host.name: sorted(path.name for path in host.rglob("*") if path.is_file())
        for host in folder.iterdir()
    }


def of_edges(*names: str, **changes: Any) -> Experiment:
    return experiment(edges={"names": list(names)}, **changes)


def write_mnist(folder: Path, grey: int = 0) -> str:
    """Write a data set of 60 small pictures."""
    labels = np.arange(60, dtype=np.uint8) % 10
    pictures = np.full((60, 2, 2), grey, np.uint8) + labels[:, None, None]
    for part in ("train", "t10k"):
        folder.mkdir(exist_ok=True)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(pictures))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    return str(folder)


def test_each_host_gets_the_shares_of_its_edges_and_no_others(tmp_path: Path) -> None:
    config = of_edges(*EDGES)
    found = synced(config, hosts(tmp_path))
    assert files(tmp_path) == {
        "one": ["a.safetensors", "b.safetensors"],
        "two": ["c.safetensors"],
    }
    assert all(each.sent_bytes == each.size_bytes > 0 for each in found.values())
    again = synced(config, hosts(tmp_path))
    assert [each.sent_bytes for each in again.values()] == [0, 0], "equal files are not sent again"
    damaged = next(tmp_path.rglob("b.safetensors"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert 0 < synced(config, hosts(tmp_path))["one"].sent_bytes < found["one"].sent_bytes


@pytest.mark.parametrize("seeds", [None, [3, 4]])
def test_an_edge_trains_on_the_share_that_a_run_here_would_give_it(
    seeds: list[int] | None, tmp_path: Path
) -> None:
    config = of_edges(*EDGES, **({} if seeds is None else {"seeds": seeds}))
    found = next(iter(synced(config, hosts(tmp_path)).values()))
    assert found.shards is not None
    for one in config.by_seed():
        whole = learning(one, None)
        builder = SideBuilder("b", None, None, [], Path(found.shards))
        mine, base = builder.experiment(Setup(to_json(one, one.strategies[0]), "fedavg"))
        edge = learning(mine, base, ["b"])
        assert edge.data_digest() == whole.data_digest()
        assert (edge.train[0][edge.shards["b"]] == whole.train[0][whole.shards["b"]]).all()


def test_a_host_with_the_same_data_set_gets_nothing(tmp_path: Path) -> None:
    here, same = write_mnist(tmp_path / "here"), write_mnist(tmp_path / "same")
    other = write_mnist(tmp_path / "other", grey=9)
    config = of_edges(*EDGES, data={"name": "mnist", "dir": here}, model={"name": "mlp"})
    host, *_ = hosts(tmp_path / "hosts", data=same)
    assert synced(config, [host])["one"] == HostData(None, f"it has the data in {same}")
    for place, reason in ((other, "differ from those here"), ("/nowhere", "no file")):
        host, *_ = hosts(tmp_path / "hosts", data=place)
        found = synced(config, [host])["one"]
        assert found.shards is not None and reason in found.reason


def test_files_of_data_shard_are_sent_as_they_are(tmp_path: Path) -> None:
    whole = of_edges(*EDGES)
    (tmp_path / "config.toml").write_text(dump(whole, {}))
    data_command.shard(tmp_path / "config.toml", tmp_path / "cut")
    config = of_edges(*EDGES, data={"source": "shard", "dir": str(tmp_path / "cut")})
    found = synced(config, hosts(tmp_path / "hosts"))
    for edge, host in (("a", "one"), ("c", "two")):
        sent = Path(found[host].shards) / f"{edge}.safetensors"
        assert sent.read_bytes() == (tmp_path / "cut" / sent.name).read_bytes()
    missing = of_edges("x", data={"source": "shard", "dir": str(tmp_path / "cut")})
    with pytest.raises(UserError, match=r"no file .*cut/x.safetensors"):
        synced(missing, [])


@pytest.mark.parametrize("changes", [{"data": {"source": "local"}}, {"task": "my_task.py:build"}])
def test_data_of_an_edges_own_are_not_sent(changes: dict[str, Any], tmp_path: Path) -> None:
    found = synced(of_edges(*EDGES, **changes), hosts(tmp_path))
    assert all(each.shards is None for each in found.values()) and not list(tmp_path.iterdir())
