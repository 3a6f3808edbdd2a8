"""Runs with [compression]: every strategy, both clocks, the journal, broken-off runs, bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import EXAMPLES, experiment, small_run
from every_strategy import LARGE_STEPS, PAYLOADS, RUN, SMALL, medium
from kills import files_of, killed_run, some, whole_run
from paths import SUPPORT
from safetensors.numpy import load_file

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.setup.rundir import replay_run
from edgefl.config.file import load as load_config
from edgefl.errors import UserError
from edgefl.results.compare import load_run
from edgefl.results.read import read_csv, read_events
from edgefl.strategies.base.catalog import load

LOSSY = {"up": {"name": "top_k", "share": 0.25}, "down": {"name": "int8"}}
CONFIG = f"""
name = "packed"
seed = 3
task = "{SUPPORT / "own_task.py"}:build"
edges = {{count = 3}}
training = {{batch_size = 16}}
devices = {{samples_per_s = 400.0, slowest_ratio = 2.0}}
links = {{up_mbit_s = 0.2, down_mbit_s = 0.5, latency_ms = 5.0}}
stop = {{versions = 5}}
compression = {{up = {{name = "random_k", share = 0.5}}, down = "int8"}}
strategies = [{{strategy = "fedasync", concurrency = 2}}]
"""


def compressed(
    folder: Path, name: str, compression: dict[str, Any] | None, **sections: Any
) -> tuple[dict[str, Any], Path]:
    small = {key: value for key, value in SMALL.items() if key in load(name).Options.model_fields}
    entry = {"strategy": name, **small, **LARGE_STEPS.get(name, {})}
    table = {} if compression is None else {"compression": compression}
    return small_run(folder, **(RUN | medium(name) | {"strategies": [entry]} | table | sections))


def sent(directory: Path, kind: str) -> list[int]:
    return [int(row["bytes"]) for row in read_csv(directory / "links.csv") if row["kind"] == kind]


KINDS = ("fedavg", "fedasmu", "fedssmu", "fedac", "syncdrop", "idfl", "fedecho", "wkafl", "moon")


@pytest.mark.parametrize("name", KINDS)  # they differ in what they send
@pytest.mark.slow
def test_strategies_send_less_and_replay(name: str, tmp_path: Path) -> None:
    _, whole = compressed(tmp_path / "whole", name, None)
    summary, packed = compressed(tmp_path / "packed", name, LOSSY, **PAYLOADS)
    assert summary["versions"] == 5 and summary["updates_discarded"] == {}
    for kind in ("task", "update"):
        assert max(sent(packed, kind)) < min(sent(whole, kind))
    assert np.isfinite(load_file(packed / "model.safetensors")["weights"]).all()
    assert replay_run(packed).version == 5
    row = load_run(packed, name)
    assert row.raw_bytes_up is not None and row.raw_bytes_down is not None
    assert row.raw_bytes_up > row.bytes_up and row.raw_bytes_down > row.bytes_down
    assert load_run(whole, name).raw_bytes_up is None


@pytest.mark.parametrize("name", ["idfl", "fedasync"])
@pytest.mark.slow
def test_raw_bytes_are_those_of_the_models_that_were_sent(name: str, tmp_path: Path) -> None:
    """As many as without compression. A broadcast counts once, and a damaged update, which travels
    again, twice; models that are under way at the end do not count, as in `down`.
    """
    _, whole = compressed(tmp_path / "whole", name, None)
    ways, faults = {"up": "int8", "down": "float16"}, [{"kind": "corrupt", "every_s": 0.4}]
    summary, run = compressed(tmp_path / "packed", name, ways, faults=faults)
    row, updates = load_run(run, name), sent(run, "update")
    assert len(updates) > summary["updates_received"]
    assert {row.raw_bytes_up} == {size * len(updates) for size in sent(whole, "update")}
    assert {row.raw_bytes_down} == {size * len(sent(run, "task")) for size in sent(whole, "task")}


@pytest.mark.parametrize("up", ["float16", "int8", "sign", "top_k", "random_k"])
@pytest.mark.slow
def test_every_method_learns(up: str, tmp_path: Path) -> None:
    few = {"share": 0.25} if up.endswith("_k") else {}
    table = {"up": {"name": up, **few}}
    summary, _ = compressed(tmp_path, "fedavg", table, stop={"versions": 20})
    assert summary["best_accuracy"] > 0.6


def test_packing_takes_the_device_time(tmp_path: Path) -> None:
    """100 samples/s: 50 samples are half a second of the slowest step by step."""
    ends = []
    for cost in (0.0, 50.0):
        table = {"up": {"name": "sign"}, "cost_samples": cost}
        _, directory = compressed(
            tmp_path / str(cost), "fedavg", table, devices={"samples_per_s": 100.0}
        )
        first = next(
            row
            for row in read_events(directory / "events.jsonl")
            if row.get("fact") == "update_ready"
        )
        ends.append(first["t"])
    assert ends[1] - ends[0] == pytest.approx(0.5, abs=0.001)


def test_a_killed_run_goes_on_with_its_errors(tmp_path: Path) -> None:
    learned = learning(
        experiment(
            **RUN
            | {"compression": LOSSY, "links": {"up_mbit_s": 0.05, "down_mbit_s": 0.1}}
            | {"strategies": [{"strategy": "fedasync", "concurrency": 2}]}
        ),
        EXAMPLES,
    )
    steps = whole_run(learned, tmp_path / "whole")
    killed_run(learned, tmp_path / "killed", some(range(1, steps + 1)))
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ('up = "topk"', "compression.up.name: unknown compression 'topk' (nearest: 'top_k')"),
        ("up = {name = 'top_k', share = 0.0}", "compression.up.share: expected"),
        ("up = {name = 'top_k', k = 0}", "compression.up.k: unknown key"),
        ('down = "sign"', "compression.down: sign keeps little of a model"),
        ("cost_samples = 5.0", "compression.cost_samples: nothing is packed"),
        ('up = "none.py:build"', "compression.up.name: no file"),
    ],
)
def test_a_wrong_table_is_one_line(table: str, expected: str, tmp_path: Path) -> None:
    text = CONFIG.splitlines()
    text[-2] = f"compression = {{{table}}}"
    (tmp_path / "bad.toml").write_text("\n".join(text))
    with pytest.raises(UserError) as refused:
        load_config(tmp_path / "bad.toml", [])
    assert expected in str(refused.value) and "\n" not in str(refused.value)
