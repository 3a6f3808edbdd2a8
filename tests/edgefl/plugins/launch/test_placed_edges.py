"""The edges of an inventory in an experiment: ids, groups, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefl.config.experiment import Experiment, parts
from edgefl.errors import UserError
from edgefl.plugins.launch.inventory import load_inventory
from edgefl.plugins.launch.launch_plan import load_placed

CONFIG = """
[edges]
count = 4
[links]
up_mbit_s = 1.0
[devices]
spread = "lognormal"
sigma = 0.5
[stop]
versions = 2
[[strategies]]
strategy = "fedasync"
concurrency = 2
"""
GROUPS = """
[[groups]]
name = "near"
count = 1
links = {latency_ms = 3.0}
[[groups]]
name = "far"
count = 3
devices = {samples_per_s = 7.0}
"""


def placed(folder: Path, hosts: str, config: str = CONFIG, *overrides: str) -> Experiment:
    (folder / "hosts.toml").write_text(hosts)
    (folder / "config.toml").write_text(config)
    return load_placed(
        load_inventory(folder / "hosts.toml"), folder / "config.toml", list(overrides)
    )


def refusal(folder: Path, hosts: str, config: str = CONFIG, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        placed(folder, hosts, config, *overrides)
    return str(caught.value).replace(f"{folder}/", "")


def test_the_edges_are_those_of_the_inventory(tmp_path: Path) -> None:
    experiment = placed(tmp_path, '[[hosts]]\nhost = "pi-[1-6]"')
    assert experiment.edges.ids() == [f"pi-{number}" for number in range(1, 7)]
    assert experiment.groups == () and experiment.links.up_mbit_s == 1.0
    assert experiment.strategies[0].options() == {"concurrency": 2}


def test_hosts_with_links_or_devices_become_groups(tmp_path: Path) -> None:
    experiment = placed(
        tmp_path,
        """
        [[hosts]]
        host = "a[1-2]"
        links = "native"
        devices = "native"
        [[hosts]]
        host = "b"
        edges = 2
        devices = "pi4"
        [[hosts]]
        host = "c"
        [[hosts]]
        host = "d"
        links = "lte"
        devices = "pi4"
        [[hosts]]
        host = "e"
        devices = "pi4"
        """,
    )
    assert [(group.name, group.count) for group in experiment.groups] == [
        ("native", 2),
        ("pi4", 2),
        ("others", 1),
        ("lte-pi4", 1),
        ("pi4-2", 1),
    ]
    native, pi4, others, lte, last = parts(experiment)
    assert native.ids == ("a1", "a2")
    assert (native.links.kind, native.devices.kind) == ("native", "native")
    # the links of the config; the speed of a profile is not spread
    assert (pi4.links.up_mbit_s, pi4.devices.profile, pi4.devices.spread) == (1.0, "pi4", "uniform")
    assert (others.ids, others.devices.spread) == (("c",), "lognormal")
    assert (lte.links.kind, lte.links.profile, lte.links.up_mbit_s) == ("emulated", "lte", None)
    assert last.ids == ("e",)


def test_groups_of_the_config_stay_where_the_counts_fit(tmp_path: Path) -> None:
    kept = placed(tmp_path, '[[hosts]]\nhost = "a[1-4]"', CONFIG + GROUPS)
    assert [(part.name, part.ids) for part in parts(kept)] == [
        ("near", ("a1",)),
        ("far", ("a2", "a3", "a4")),
    ]
    assert parts(kept)[0].links.latency_ms == 3.0


def test_what_a_host_says_replaces_that_part_of_its_group(tmp_path: Path) -> None:
    hosts = '[[hosts]]\nhost = "a[1-3]"\n[[hosts]]\nhost = "b"\nlinks = "dsl"'
    mixed = parts(placed(tmp_path, hosts, CONFIG + GROUPS))
    assert [(part.name, part.ids) for part in mixed] == [
        ("near", ("a1",)),
        ("far", ("a2", "a3")),
        ("far-dsl", ("b",)),
    ]
    assert mixed[2].links.profile == "dsl" and mixed[2].devices.samples_per_s == 7.0


NAMES = 'edges.names=["x", "y", "z"]'


def test_named_edges_keep_the_order_of_the_config(tmp_path: Path) -> None:
    hosts = '[[hosts]]\nhost = "a"\nnames = ["z", "x"]\nlinks = "lte"\n[[hosts]]\nhost = "y"'
    experiment = placed(tmp_path, hosts, CONFIG, NAMES)
    assert experiment.edges.ids() == ["x", "y", "z"]
    assert [part.ids for part in parts(experiment)] == [("x",), ("y",), ("z",)]
    assert [part.links.profile for part in parts(experiment)] == ["lte", None, "lte"]


@pytest.mark.parametrize(
    ("hosts", "config", "override", "line"),
    [
        (
            '[[hosts]]\nhost = "a[1-6]"',
            CONFIG + GROUPS,
            "seed=2",
            "hosts.toml: its hosts have 6 edges, but the counts of the config's groups add up to 4;"
            " give links and devices to every host (not to 'a1' yet), or change the counts, or"
            " groups=[]",
        ),
        (
            '[[hosts]]\nhost = "x"\n[[hosts]]\nhost = "y"\n[[hosts]]\nhost = "zz"',
            CONFIG,
            NAMES,
            "hosts.toml: host 'zz' is not needed: the config's edges.names has no 'zz'"
            " (nearest: 'z'); give the host's names, or remove it or edges.names",
        ),
        (
            '[[hosts]]\nhost = "x"',
            CONFIG,
            NAMES,
            "hosts.toml: no host has 'y', 'z' of the config's edges.names; give names to a host, or"
            " remove edges.names",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(
    hosts: str, config: str, override: str, line: str, tmp_path: Path
) -> None:
    said = refusal(tmp_path, hosts, config, override)
    assert said.startswith(line) and "\n" not in said
