"""Mean, worst tenth and spread of the scores on the edges, from clients.csv."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from drawn import of_rows, of_runs
from recorded import record
from rich.console import Console

from edgefl.config.scores import ACCURACY, SCORES
from edgefl.errors import UserError
from edgefl.plugins.sweep.choice import METRICS_BY_NAME
from edgefl.results.families.edge_scores import COLUMNS, FAMILY, LOSS, over_edges, scored_versions

HEAD = "version,emulated_s,edge,loss,accuracy,samples"
PERPLEXITY = SCORES["perplexity"]


def written(run: Path, *rows: str, head: str = HEAD) -> Path:
    run.mkdir(parents=True, exist_ok=True)
    (run / "clients.csv").write_text("\n".join((head, *rows, "")))
    return run


# ---------------------------------------------------------------------- numbers
def test_the_tenths_are_rounded_up_to_whole_edges() -> None:
    """15 edges with 0.00, 0.01, ...: two in a tenth. The variance of 0..n-1 is (n^2 - 1) / 12."""
    found = over_edges([edge / 100 for edge in range(15)], ACCURACY)
    assert found == pytest.approx(
        {"mean": 0.07, "worst_tenth": 0.005, "best_tenth": 0.135}
        | {"std": math.sqrt((15**2 - 1) / 12) / 100}
    )
    alone = {"mean": 0.5, "worst_tenth": 0.5, "best_tenth": 0.5, "std": 0.0}
    assert over_edges([0.5], ACCURACY) == alone


def test_the_worst_of_a_loss_is_the_largest() -> None:
    losses = np.random.Generator(np.random.PCG64(1)).random(100)
    found = over_edges(losses.tolist(), LOSS)
    assert found["worst_tenth"] == pytest.approx(np.sort(losses)[-10:].mean())
    assert found["best_tenth"] == pytest.approx(np.sort(losses)[:10].mean())
    assert found["std"] == pytest.approx(losses.std())


def test_versions_of_the_file(tmp_path: Path) -> None:
    run = written(
        tmp_path / "run",
        *("0,0.0,a,2.0,0.1,4", "0,0.0,b,3.0,0.2,4", "0,0.0,c,,,0"),
        *("5,9.5,a,nan,0.5,4", "5,9.5,b,1.0,0.75,4", "5,9.5,c,,,0"),
        "9,12.0,a,0.5,1.0,4",  # the run was broken off in the middle of these rows
    )
    first, second = scored_versions(run)
    assert (first.number, second.number, second.at_s) == (0, 5, 9.5)
    assert first.scores == {"a": 0.1, "b": 0.2} and first.losses == {"a": 2.0, "b": 3.0}
    assert second.scores == {"a": 0.5, "b": 0.75} and second.losses == {"b": 1.0}
    assert second.edges == ["a", "b", "c"]
    found = scored_versions(run, PERPLEXITY)
    assert found[0].scores == pytest.approx({"a": math.exp(2), "b": math.exp(3)})
    assert scored_versions(tmp_path) == []


def test_a_damaged_row_is_one_line(tmp_path: Path) -> None:
    run = written(tmp_path / "run", "0,0.0,a,2.0,0.1,4", "0,0.0,b", "1,0.0,a,2.0,0.1,4")
    with pytest.raises(UserError, match=r"clients\.csv"):
        scored_versions(run)


# ---------------------------------------------------------------------- the section
ROWS = [f"3,8.0,e{edge:02d},{2 - edge / 10},{edge / 20},5" for edge in range(20)]


def test_the_section(tmp_path: Path) -> None:
    run = written(record(tmp_path / "run"), *ROWS, "3,8.0,e20,,,0")
    found = FAMILY.section(run, 8.0)
    assert found is not None
    assert (found["score"], found["version"], found["emulated_s"]) == ("accuracy", 3, 8.0)
    assert (found["edges"], found["edges_without"]) == (20, 1)
    assert found["mean"] == pytest.approx(0.475) and found["worst_tenth"] == pytest.approx(0.025)
    assert found["best_tenth"] == pytest.approx(0.925)
    assert found["loss_worst_tenth"] == pytest.approx(1.95)


def test_the_perplexity_of_the_edges_is_e_to_their_loss(tmp_path: Path) -> None:
    run = written(record(tmp_path / "run"), "3,8.0,a,1.0,0.5,5", "3,8.0,b,2.0,0.5,5")
    (run / "config.toml").write_text('[evaluation]\nmetric = "perplexity"\n')
    found = FAMILY.section(run, 8.0)
    assert found is not None and found["score"] == "perplexity"
    assert found["worst_tenth"] == pytest.approx(math.exp(2), rel=1e-6)


def test_scores_that_an_app_measures_itself_have_no_samples(tmp_path: Path) -> None:
    head = HEAD.removesuffix(",samples")
    run = written(record(tmp_path / "run"), "3,8.0,a,1.0,0.5", "3,8.0,b,1.0,0.7", head=head)
    found = FAMILY.section(run, 8.0)
    assert found is not None and found["mean"] == pytest.approx(0.6)


def finished(folder: Path, accuracies: list[float], seed: int) -> Path:
    rows = [f"3,8.0,e{at},1.0,{value},5" for at, value in enumerate(accuracies)]
    run = written(record(folder, seed=seed), *rows)
    facts = orjson.loads((run / "summary.json").read_bytes())
    facts |= {"edge_scores": FAMILY.section(run, 8.0)}
    (run / "summary.json").write_bytes(orjson.dumps(facts))
    return run


def test_the_table_has_means_over_seeds(tmp_path: Path) -> None:
    for seed, values in ((1, [0.2, 0.6]), (2, [0.4, 0.8])):
        finished(tmp_path / "fedavg" / f"seed{seed}", values, seed)
    table = FAMILY.table([tmp_path / "fedavg"])
    assert table is not None
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(table)
    lines = capture.get().splitlines()
    assert lines[0].startswith("The last model on each edge's samples: accuracy")
    at = next(at for at, line in enumerate(lines) if line.startswith("fedavg"))
    means = ["0.500", "0.300", "0.700", "0.200", "1.000", "1.000"]
    assert lines[at].split() == ["fedavg", "2", "3", *means]
    assert lines[at + 1].split()[2:5] == ["±0.141"] * 3


def test_a_sweep_can_choose_by_the_worst_tenth(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", [0.2, 0.6], 1)
    metric = METRICS_BY_NAME["worst_tenth"]
    assert metric.of(run) == pytest.approx(0.2) and metric.better is max
    assert metric.of(record(tmp_path / "plain")) is None


# ---------------------------------------------------------------------- the figure
def figure(rows: list[tuple[Any, ...]], score: str = "accuracy", **style: Any) -> Any:
    return of_rows("clients", (*COLUMNS, score), rows, **style)


def test_runs_without_the_file_have_no_figure(tmp_path: Path) -> None:
    record(tmp_path / "run")
    with pytest.raises(UserError, match=r"it is of runs with \[evaluation.edges\]"):
        of_runs("clients", tmp_path / "run")
