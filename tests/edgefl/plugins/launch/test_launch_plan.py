"""What a launch copies to each host, the order that prepares its edges, and limits of a run."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from builders import experiment

from edgefl.config.file import from_json
from edgefl.errors import UserError
from edgefl.plugins.launch.command import refuse_faults
from edgefl.plugins.launch.inventory import CoordinatorPlace, Host, Inventory
from edgefl.plugins.launch.launch_plan import (
    SECRET,
    code_files,
    key_files,
    preparation,
    refuse_code,
    run_name,
)

KEYS = Path("/keys")
LINKS = {"up_mbit_s": 1.0, "down_mbit_s": 4.0}


def inventory(*hosts: Host) -> Inventory:
    here = CoordinatorPlace(Host("coordinator", via="local", allow_code=True), None, 0)
    return Inventory(Path("lab.toml"), here, hosts)


def test_a_host_gets_its_own_secret_keys_and_no_other() -> None:
    files = key_files(KEYS, ["pi-1-1", "pi-1-2"])
    assert [(str(file.source), file.target) for file in files] == [
        ("/keys/coordinator.key", "keys/coordinator.key"),
        ("/keys/edges/pi-1-1.key_secret", "keys/edges/pi-1-1.key_secret"),
        ("/keys/edges/pi-1-2.key_secret", "keys/edges/pi-1-2.key_secret"),
    ]
    assert {file.mode for file in files} == {SECRET} == {0o600}


@pytest.mark.parametrize("name", ["/etc/algo.py:A", "~/algo.py:A", "../algo.py:A", "a/../b.py:A"])
def test_code_outside_the_configs_folder_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="expected a file below the config's folder"):
        code_files({name: Path("x.py")})


def test_code_goes_only_to_hosts_that_allow_it() -> None:
    hosts = inventory(Host("a", allow_code=True), Host("b"), Host("c"))
    refuse_code(hosts, [])
    refuse_code(inventory(Host("a", allow_code=True)), ["algo.py:A"])
    with pytest.raises(UserError) as refused:
        refuse_code(hosts, ["algo.py:A", "algo.py:A"])
    assert str(refused.value) == (
        "lab.toml: the config names 'algo.py:A', which is your own code: set allow_code = true for"
        " b, c, if their edges may run it"
    )


@pytest.mark.parametrize(
    ("shards", "expected"),
    [("~/.edgefl/shards/x", (None, "~/.edgefl/shards/x")), (None, ("/data", None))],
)
def test_edges_read_shards_or_the_data_of_their_host(
    shards: str | None, expected: tuple[str | None, str | None]
) -> None:
    whole = experiment(seeds=(4, 5), edges={"names": ("pi-1", "pi-2")})
    order = preparation(Host("pi-1", edges=("pi-1",), data="/data"), whole, shards, restarts=3)
    assert (order.data, order.shards) == expected
    assert (order.edges, order.keys, order.restarts, order.nice) == (("pi-1",), "../keys", 3, 0)
    assert orjson.loads(order.config)["seed"] == 4, "the first run is that of the first seed"


def test_a_host_is_told_no_path_of_this_machine() -> None:
    there = {"kind": "file", "file": "/phones/times.csv"}
    away = experiment(edges={"names": ("a",), "availability": there}, stop={"emulated_s": 9.0})
    order = preparation(Host("a", edges=("a",)), away, None, 0)
    assert from_json(order.config).edges.ids() == ["a"], "an edge accepts it"


def test_a_coordinator_elsewhere_does_not_have_the_file_of_absences() -> None:
    there = {"kind": "file", "file": "times.csv"}
    away = experiment(edges={"names": ("a",), "availability": there}, stop={"emulated_s": 9.0})
    with pytest.raises(UserError, match="edges.availability.file: a coordinator elsewhere"):
        refuse_faults(away)
    refuse_faults(experiment(edges={"names": ("a",)}))


@pytest.mark.parametrize(("via", "nice"), [("local", 10), ("netns", 10), ("ssh", 0)])
def test_edges_do_not_delay_a_coordinator_on_their_machine(via: str, nice: int) -> None:
    host = Host("a", via=via, edges=("a",))  # type: ignore[arg-type]  # a parameter
    assert preparation(host, experiment(edges={"names": ("a",)}), None, 0).nice == nice


def test_a_runs_folder_has_a_harmless_name() -> None:
    assert run_name("my run/..", "0a1b") == "my-run----0a1b"
    assert len(run_name("x" * 64, "0a1b")) == 45
