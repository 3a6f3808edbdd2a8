"""Every algorithm of the catalog in whole runs: twice under the virtual clock with equal bytes, and
what each sends over the links.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from builders import small_run
from every_strategy import LARGE_STEPS, PAYLOADS, RUN, SMALL, medium
from safetensors.numpy import load_file
from sent_elements import DOWN, MODEL, MOST_HEADER, UP
from state_relay import Relay, begun

from edgefl.clocks.setup.rundir import replay_run
from edgefl.commands import lists as listings
from edgefl.record.journal import replay
from edgefl.results import compare as results
from edgefl.results import run_files
from edgefl.results.read import read_csv, read_events
from edgefl.strategies.base.catalog import load, strategy_names
from edgefl.strategies.base.strategy import Strategy

RECONSTRUCTED = ["ace", "asyncpart", "fedpsa", "fedsa"]


def run(
    folder: Path, name: str, sections: dict[str, Any] = RUN, **options: Any
) -> tuple[dict[str, Any], Path]:
    small = {key: value for key, value in SMALL.items() if key in load(name).Options.model_fields}
    return small_run(
        folder,
        **sections
        | medium(name)
        | {"strategies": [{"strategy": name, **small, **LARGE_STEPS.get(name, {}), **options}]},
    )


@pytest.fixture(scope="module")
def recorded(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], tuple[dict[str, Any], Path]]:
    """A run of the strategy with its payloads, made once for all tests."""
    return cache(lambda name: run(tmp_path_factory.mktemp(name), name, RUN | PAYLOADS))


@pytest.mark.parametrize("name", strategy_names())
@pytest.mark.slow
def test_it_learns_and_the_same_seed_leaves_the_same_bytes(
    name: str, recorded: Callable[[str], tuple[dict[str, Any], Path]], tmp_path: Path
) -> None:
    summary, one = recorded(name)
    _, other = run(tmp_path, name)
    assert (
        summary["finished"] == "versions"
        and summary["versions"] == 5
        and summary["updates_applied"] >= 5
    )
    assert summary["best_accuracy"] > 0.6, "two classes that half of the points tell apart"
    weights = load_file(one / "model.safetensors")["weights"]
    assert np.isfinite(weights).all() and (weights[-16:] >= 0).all(), "a variance"
    for file in ("events.jsonl", "links.csv", "model.safetensors"):
        assert (one / file).read_bytes() == (other / file).read_bytes()


@pytest.mark.parametrize("name", strategy_names())
@pytest.mark.slow
def test_the_links_carry_what_the_method_sends(
    name: str, recorded: Callable[[str], tuple[dict[str, Any], Path]]
) -> None:
    """ALGORITHMS 0.2: one model down and one up.

    Exceptions: SyncDrop's sub-models with the indices of what they lack, and FedAC's control
    variates.
    """
    _, directory = recorded(name)
    sizes = {(row["kind"], int(row["bytes"])) for row in read_csv(directory / "links.csv")}
    for kind, elements in (("task", DOWN.get(name, MODEL)), ("update", UP.get(name, MODEL))):
        of_kind = [size for found, size in sizes if found == kind]
        assert of_kind and all(4 * elements < size < 4 * elements + MOST_HEADER for size in of_kind)


@pytest.mark.parametrize("name", strategy_names())
@pytest.mark.slow
def test_it_replays_from_its_journal(
    name: str, recorded: Callable[[str], tuple[dict[str, Any], Path]]
) -> None:
    """The strategy alone gets the recorded events: it makes the same decisions and bit-equal
    weights.
    """
    _, directory = recorded(name)
    assert replay_run(directory).version == 5


@pytest.mark.parametrize("name", strategy_names())
@pytest.mark.slow
def test_it_goes_on_from_its_state_before_each_event(
    name: str, recorded: Callable[[str], tuple[dict[str, Any], Path]], tmp_path: Path
) -> None:
    """Its journal is replayed by a new instance per event, which gets the state of the former."""
    _, directory = recorded(name)
    strategy = Relay(partial(begun, directory), tmp_path)
    result = replay(directory / "journal", cast(Strategy, strategy))
    kept = load_file(directory / "model.safetensors")["weights"]
    assert strategy.instances == result.events + 1 and result.version == 5
    assert result.weights.tobytes() == kept.tobytes() == strategy.weights.tobytes()


def trained_s(directory: Path) -> list[float]:
    """How long each edge's first task took from its model's arrival to its ready update.

    The times of the links are known; the rest is computing.
    """
    events = read_events(directory / "events.jsonl")
    started = {event["task"]: event["t"] for event in events if event.get("fact") == "task_started"}
    return [
        event["t"] - started[event["task"]]
        for event in events
        if event.get("fact") == "update_ready"
    ]


def test_extra_computing_and_smaller_models_show_in_the_emulated_time(tmp_path: Path) -> None:
    """One edge with 100 samples per second and 200 samples takes 2 s. MOON takes 5/3 of that,
    SyncDrop 3/4.
    """
    one = {
        "edges": {"names": ["a"]},
        "devices": {"samples_per_s": 100.0},
        "training": {"batch_size": 16, "epochs": 1},
    }
    for name, seconds in (("fedavg", 2.0), ("moon", 10 / 3), ("syncdrop", 1.5)):
        small = {
            key: value for key, value in SMALL.items() if key in load(name).Options.model_fields
        }
        _, directory = small_run(
            tmp_path / name, **RUN | one | {"strategies": [{"strategy": name, **small}]}
        )
        assert trained_s(directory) == pytest.approx([seconds] * 5)


@pytest.mark.slow
def test_a_device_s_memory_lasts_from_task_to_task(tmp_path: Path) -> None:
    """Without its memory each of these algorithms would end its second task with another result."""
    for name, plain in (
        ("moon", {"mu": 0.0}),
        ("feddyn", {"alpha": 1e-9}),
        ("asofed", {"mu": 0.0}),
    ):
        ends = [
            load_file(run(tmp_path / name / str(number), name, **options)[1] / "model.safetensors")[
                "weights"
            ]
            for number, options in enumerate(({}, plain))
        ]
        assert not np.array_equal(*ends)


@pytest.mark.parametrize("name", RECONSTRUCTED)
def test_what_is_reconstructed_says_so_wherever_it_is_listed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [each for each in strategy_names() if load(each).reconstructed] == RECONSTRUCTED
    _, directory = run(tmp_path, name)
    capsys.readouterr()
    listings.strategies()
    listed = capsys.readouterr().out
    assert (
        next(line for line in listed.splitlines() if line.startswith(name)).count("(reconstructed)")
        == 1
    )
    (row,) = results.load(directory)
    assert row.name == f"{name} (reconstructed)" and row.strategy == name
    assert f"{name} (reconstructed)" in run_files.find([directory.parent])
    assert load(name).reconstructed and "(reconstructed)" in (
        sys.modules[load(name).__module__].__doc__ or ""
    )
