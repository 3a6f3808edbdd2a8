"""Admitted edges that attack, together with honest ones, over real processes and sockets.

The coordinator's memory does not grow, the other edges' updates arrive complete, and the record
names the attackers. The attacks are those of scripts/benchmarks/evil_edges.py, all at the same time
and for a short while. Where memory is measured, the coordinator is a fresh process: a fork of a
warm one gets its pages one by one, and they would count as growth.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from paths import BENCHMARKS

pytestmark = [pytest.mark.rest, pytest.mark.processes]

SECONDS = 2.5
MOST_GROWTH_MB = 50.0
MOST_GROWN_BY_STRANGERS_MB = 40.0
MOST_FILES = 160
KEYED = "another id"
KEYLESS = (
    *("offers", "requests", "other tasks", "bombs", "deaf", "rejoins", "garbage", "nan"),
    *("samples", "replays", "arrivals", "pieces"),
)


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield importlib.import_module("evil_edges")


@pytest.fixture(scope="module")
def trial_of(bench: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """The run with this attack: one run has keys, one has none."""
    runs = {
        names: bench.trial(names, SECONDS, tmp_path_factory.mktemp("run"))
        for names in (KEYLESS, (KEYED,))
    }
    return lambda name: next(run for names, run in runs.items() if name in names)


def test_every_attack_is_tried(bench: ModuleType) -> None:
    assert bench.ATTACKS.keys() == {*KEYLESS, KEYED}


@pytest.mark.parametrize("name", [KEYLESS[0], KEYED])
def test_the_honest_edges_do_not_notice(trial_of: Callable[[str], Any], name: str) -> None:
    found = trial_of(name)
    assert all(found.arrived[edge] > 3 for edge in ("good-0", "good-1", "good-2"))
    assert (found.spoiled, found.missing, found.harmed) == (0, 0, [])


@pytest.mark.parametrize("name", [KEYLESS[0], KEYED])
def test_the_coordinators_memory_does_not_grow(trial_of: Callable[[str], Any], name: str) -> None:
    assert trial_of(name).growth_mb <= MOST_GROWTH_MB


@pytest.mark.parametrize("name", [*KEYLESS, KEYED])
def test_the_culprit_is_named(trial_of: Callable[[str], Any], name: str) -> None:
    found = trial_of(name)
    assert found.named(name) is not None, found.about(f"evil-{name.replace(' ', '-')}")


@pytest.mark.parametrize("keyed", [False, True])
def test_strangers_take_little_memory_and_keep_no_edge_out(
    bench: ModuleType, tmp_path: Path, keyed: bool
) -> None:
    """300 messages of 1 MiB without an end would take 300 MB. One edge starts during the attack."""
    storm = bench.Storm("half messages", 300)
    found = bench.trial([], SECONDS, tmp_path, storm, keyed)
    assert found.growth_mb <= MOST_GROWN_BY_STRANGERS_MB
    assert all(found.arrived[edge] > 0 for edge in bench.HONEST) and found.harmed == []
    told = [row["reason"] for row in found.events if row.get("fact") == "stranger"]
    assert 1 <= len(told) == len(set(told))


def test_at_the_limit_of_open_files_an_edge_still_comes_in(
    bench: ModuleType, warm_python: None, tmp_path: Path
) -> None:
    found = bench.trial([], SECONDS, tmp_path, bench.Storm("silent", 300), most_files=MOST_FILES)
    assert found.most_files < MOST_FILES
    assert all(found.arrived[edge] > 0 for edge in bench.HONEST) and found.harmed == []
