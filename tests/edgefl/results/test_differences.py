"""In what compared runs differ apart from the strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import experiment

from edgefl.config.file import dump
from edgefl.errors import UserError
from edgefl.results.differences import Difference, differences, refuse

FACTS = {"strategy": "fedavg", "clock": "virtual", "git_commit": "1", "port": 4711}


def run(directory: Path, facts: dict[str, Any] | None = None, **sections: Any) -> Path:
    directory.mkdir(parents=True)
    whole = dump(experiment(**sections), {"run": FACTS | (facts or {})})
    (directory / "config.toml").write_text(whole)
    return directory


def found(**strategies: list[Path]) -> dict[str, list[str]]:
    return {name: list(map(str, each)) for name, each in differences(strategies).items()}


def test_another_strategy_name_or_port_is_no_difference(tmp_path: Path) -> None:
    a = run(tmp_path / "a", strategies=[{"strategy": "fedasync", "alpha": 0.4}], name="x")
    b = run(tmp_path / "b", {"git_commit": "2", "port": 4712}, network={"port": 4712}, name="y")
    c = run(
        tmp_path / "c",
        data={"dir": "elsewhere", "source": "shard"},
        record={"keep": 3},
        fidelity={"overrun_share": 0.5},
        speed=2.0,
    )
    assert found(a=[a], b=[b], c=[c]) == {"a": [], "b": [], "c": []}


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"links": {"up_mbit_s": 2.0}}, "links.up_mbit_s = 2 instead of 10"),
        ({"data": {"name": "mnist"}}, "data.name = mnist instead of digits"),
        (
            {"partition": {"name": "dirichlet", "alpha": 0.5}},
            "partition.alpha = 0.5 instead of nothing",
        ),
        ({"devices": {"slowest_ratio": 5.0}}, "devices.slowest_ratio = 5 instead of 1"),
        ({"stop": {"versions": 9}}, "stop.versions = 9 instead of 1000"),
        ({"evaluation": {"every_versions": 2}}, "evaluation.every_versions = 2 instead of 1"),
        ({"evaluation": {"by_label": True}}, "evaluation.by_label = true instead of false"),
        ({"edges": {"names": ["a", "b"]}}, "edges.names = [a, b] instead of [a, b, c]"),
        ({"network": {"grace_s": 3.0}}, "network.grace_s = 3 instead of 10"),
        (
            {"faults": [{"kind": "kill", "edges": ["a"], "at_s": 1.0}]},
            "faults = 1 entry instead of",
        ),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_each_difference_is_named(tmp_path: Path, sections: dict[str, Any], line: str) -> None:
    usual, other = run(tmp_path / "fedavg"), run(tmp_path / "fedasync", **sections)
    lines = found(fedavg=[usual], fedasync=[other])
    assert lines["fedavg"] == []
    assert [each for each in lines["fedasync"] if each.startswith(line)], lines
    assert all(each.partition(".")[0].split(" ")[0] in sections for each in lines["fedasync"])


def test_what_most_runs_have_is_usual_unless_there_is_a_baseline(tmp_path: Path) -> None:
    slow = run(tmp_path / "slow", links={"up_mbit_s": 1.0})
    fast = [run(tmp_path / name, links={"up_mbit_s": 9.0}) for name in ("fast", "faster")]
    strategies = {"slow": [slow], "fast": fast[:1], "faster": fast[1:]}
    difference = Difference("links.up_mbit_s", 1.0, 9.0)
    assert differences(strategies) == {"slow": (difference,), "fast": (), "faster": ()}
    difference = Difference("links.up_mbit_s", 9.0, 1.0)
    assert differences(strategies, "slow") == {
        "slow": (),
        "fast": (difference,),
        "faster": (difference,),
    }


def test_a_key_that_an_older_version_did_not_write_has_its_default(tmp_path: Path) -> None:
    old, new = run(tmp_path / "old"), run(tmp_path / "new")
    lines = (old / "config.toml").read_text().splitlines(keepends=True)
    for key in ("trace_start", "slowest_ratio", "faults", "by_label"):
        assert any(line.startswith(f"{key} =") for line in lines)
        lines = [line for line in lines if not line.startswith(f"{key} =")]
    (old / "config.toml").write_text("".join(lines))
    assert found(old=[old], new=[new]) == {"old": [], "new": []}


def test_a_missing_config_is_said(tmp_path: Path) -> None:
    there, torn = run(tmp_path / "a"), run(tmp_path / "b")
    (torn / "config.toml").write_text('name = "x')
    said = ["config.toml cannot be read, so nothing is known about its settings"]
    assert found(a=[there], b=[torn]) == {"a": [], "b": said}
    assert found(b=[torn], a=[there]) == {"a": [], "b": said}, "not the first one's seeds"
    assert found(b=[torn]) == {"b": said}


def test_strict_names_who_differs_in_what(tmp_path: Path) -> None:
    usual = run(tmp_path / "fedavg")
    refuse(differences({"fedavg": [usual]}))
    other = run(
        tmp_path / "fedbuff",
        training={"epochs": 2, "batch_size": 8, "momentum": 0.9, "weight_decay": 0.1},
        links={"up_mbit_s": 2.0, "latency_ms": 5.0},
    )
    with pytest.raises(UserError) as caught:
        refuse(differences({"fedavg": [usual], "fedbuff": [other]}))
    assert str(caught.value) == (
        "--strict: the runs differ in more than the strategy: fedbuff: links.latency_ms = 5"
        " instead of 0, links.up_mbit_s = 2 instead of 10, training.batch_size = 8"
        " instead of 32, training.epochs = 2 instead of 1, training.momentum = 0.9 instead of 0"
        " and 1 more; leave these runs out, or run them with the same config"
    )
