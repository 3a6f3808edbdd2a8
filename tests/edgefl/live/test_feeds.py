from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import small_run

from edgefl.errors import UserError
from edgefl.live.feeds import Feeds, check
from edgefl.live.series import CapacityAt


def no_capacity(run: Path) -> CapacityAt:
    return lambda way, at_s: None


def feeds_of(*paths: Path) -> Feeds:
    return Feeds(paths, no_capacity)


def test_runs_get_names_that_tell_them_apart(tmp_path: Path) -> None:
    for place in ("one/fedavg", "one/fedbuff", "two/fedavg", "three/fedasync/seed1"):
        small_run.write(tmp_path / place)
    rows = feeds_of(tmp_path / "one", tmp_path / "two", tmp_path / "three").told(0.0)
    assert [(row["id"], row["name"]) for row in rows] == [
        ("r1", "one/fedavg"),
        ("r2", "fedbuff"),
        ("r3", "two/fedavg"),
        ("r4", "fedasync seed 1"),
    ]
    assert rows[0]["experiment"] == "small" and rows[0]["seed"] == 3
    assert rows[0]["clock"] == "virtual" and rows[0]["path"] == str(tmp_path / "one" / "fedavg")


def test_runs_that_appear_later_are_found(tmp_path: Path) -> None:
    feeds = feeds_of(tmp_path / "later")
    assert feeds.told(0.0) == [] and feeds.ids() == []
    small_run.write(tmp_path / "later" / "fedavg")
    assert feeds.look() and not feeds.look()
    small_run.end(small_run.write(tmp_path / "later" / "fedbuff"))
    assert feeds.look()
    assert [row["state"] for row in feeds.told(0.0)] == ["running", "finished"]
    shutil.rmtree(tmp_path / "later" / "fedavg")  # a new experiment has taken the place
    assert [row["id"] for row in feeds.told(0.0)] == ["r2"]


def test_the_seeds_of_a_strategy_are_one_group(tmp_path: Path) -> None:
    for place in ("fedavg/seed1", "fedavg/seed2", "fedbuff/seed1", "fedprox"):
        small_run.write(tmp_path / place)
    small_run.go_on(tmp_path / "fedavg" / "seed2")
    small_run.end(tmp_path / "fedavg" / "seed2")
    (tmp_path / "fedavg" / "seed2" / "summary.json").write_text('{"emulated_s": 5.0}')
    feeds = feeds_of(tmp_path)
    assert [row["name"] for row in feeds.told(0.0)][:2] == ["fedavg seed 1", "fedavg seed 2"]
    first, second = feeds.seeds("r2")
    assert first == {"id": "r1", "metrics": [[0, 0, 0.1, 2, 2.1, 0.1, 0, 0]], "end_s": None}
    assert (second["id"], second["end_s"]) == ("r2", 5.0)
    assert [row[1] for row in second["metrics"]] == [0.0, 3.0]
    assert feeds.seeds("r3") == [], "a single seed"
    assert feeds.seeds("r4") == [] and feeds.seeds("r9") == []


def test_another_run_is_added(tmp_path: Path) -> None:
    for place in ("one/fedavg", "two/fedbuff", "two/fedasync"):
        small_run.write(tmp_path / "runs" / place)
    feeds = feeds_of(tmp_path / "runs" / "one")
    two = tmp_path / "runs" / "two"
    assert feeds.nearby() == [str(two / "fedasync"), str(two / "fedbuff")]
    feeds.add(str(two / "fedbuff"))
    assert feeds.ids() == ["r1", "r2"] and feeds.nearby() == [str(two / "fedasync")]
    feeds.add(str(two))
    feeds.add(str(two))
    assert feeds.ids() == ["r1", "r2", "r3"] and feeds.nearby() == []


def test_folders_without_a_run(tmp_path: Path) -> None:
    small_run.write(tmp_path / "quickstart" / "fedavg")
    (tmp_path / "empty").mkdir()
    check(tmp_path / "quickstart")
    with pytest.raises(UserError, match=r"quickstrat: no such directory \(nearest: 'quickstart'\)"):
        check(tmp_path / "quickstrat")
    with pytest.raises(UserError, match=r"zzz: no such directory$"):
        check(tmp_path / "zzz")
    with pytest.raises(UserError, match=r"empty: no run in it: expected the directory of a run"):
        check(tmp_path / "empty")
    with pytest.raises(UserError, match="no such directory"):
        feeds_of(tmp_path).add(str(tmp_path / "x" / "y"))
