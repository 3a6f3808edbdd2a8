"""Several seeds of a strategy: config key, directories, mean and deviation, table and figure."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from edgefl.config.file import dump, load
from edgefl.errors import UserError
from edgefl.results import compare, run_files, statistics
from edgefl.results.figures import curves
from edgefl.results.tables import table

CONFIG = "[stop]\nversions = 3\n[[strategies]]\nstrategy = 'fedavg'\n"


def config(folder: Path, head: str = "") -> Path:
    path = folder / "seeds.toml"
    path.write_text(head + CONFIG)
    return path


def run(
    directory: Path,
    seed: int,
    accuracy: float | None = 0.9,
    target_s: float | None = 1.0,
    **changes: Any,
) -> Path:
    """Write the summary and metrics of a finished run by hand."""
    directory.mkdir(parents=True)
    facts = {
        "strategy": "fedavg",
        "clock": "wall",
        "seed": seed,
        "finished": "versions",
        "versions": 2,
        "updates_received": 10,
        "updates_applied": 10,
        "updates_discarded": {},
        "emulated_s": 12.5,
        "wall_s": 1.0,
        "final_accuracy": accuracy,
        "convergence_accuracy": accuracy,
        "best_accuracy": accuracy,
        "target_accuracy": 0.8,
        "time_to_target_s": target_s,
        "bytes_up": 1_000_000,
        "bytes_down": 2_000_000,
        "staleness": {"0": 10},
        "fidelity": {"verdict": "faithful", "reasons": []},
    }
    (directory / "summary.json").write_text(json.dumps(facts | changes))
    (directory / "metrics.csv").write_text(
        "version,emulated_s,accuracy,bytes_up,bytes_down\n0,0,0.1,0,0\n"
        f"2,{10 * seed},{accuracy},1000,2000\n"
    )
    return directory


def shown(rows: list[compare.Row], width: int = 80) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table(rows, width))
    return capture.get()


# ------------------------------------------------------------------ the config
def test_an_experiment_for_each_seed(tmp_path: Path) -> None:
    whole = load(config(tmp_path, "seeds = [3, 1]\n"))
    alone = load(config(tmp_path, "seed = 3\n"))
    first, second = whole.by_seed()
    assert (first, second.seed) == (alone, 1)
    assert dump(first, {}) == dump(alone, {}), "config.toml is that of the seed alone"
    assert alone.by_seed() == [alone]
    assert load(config(tmp_path, "seed = 1\n"), ["seeds=[1, 2]"]).seeds == (
        1,
        2,
    ), "the default seed, even if said, does not stand in the way"


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("seeds = []", "seeds: expected at least one, found an array of 0"),
        ("seeds = [1, 2, 1]", "seeds: expected different numbers, found 1 twice"),
        (
            "seed = 4\nseeds = [1, 2]",
            "give seed or seeds, not both (found seed = 4, seeds = [1, 2])",
        ),
        ("seeds = 3", "seeds: expected an array, found 3; one: seed"),
        ("seeds = [1, -2]", "seeds[1]: expected greater than or equal to 0, found -2"),
        ("seeds = [1, 2.0]", "seeds[1]: expected a whole number, found 2.0"),
        ("seeds = [true]", "seeds[0]: expected a whole number, found true"),
    ],
)
def test_bad_seeds_are_one_line(tmp_path: Path, head: str, line: str) -> None:
    with pytest.raises(UserError) as caught:
        load(config(tmp_path, head + "\n"))
    assert str(caught.value) == f"{tmp_path}/seeds.toml: {line}"


def test_no_strategy_may_be_called_like_a_seed(tmp_path: Path) -> None:
    with pytest.raises(
        UserError,
        match=(
            r"strategies\[0\].label: expected a name for a directory .* found 'seed7', which is"
            r" the name of a seed's directory"
        ),
    ):
        load(config(tmp_path), ["strategies.0.label=seed7"])


# ------------------------------------------------------------------ directories
def test_the_seeds_of_a_strategy_are_found_in_order_from_every_level(tmp_path: Path) -> None:
    runs = [run(tmp_path / "x" / "fedavg" / f"seed{seed}", seed) for seed in (10, 2, 1)]
    alone = run(tmp_path / "x" / "fedbuff", 1)
    (tmp_path / "x" / "figures").mkdir()
    in_order = runs[::-1]  # by number, not alphabetically
    assert run_files.find([tmp_path / "x"]) == {"fedavg": in_order, "fedbuff": [alone]}
    assert run_files.find([tmp_path / "x" / "fedavg"]) == {"fedavg": in_order}
    assert run_files.find([runs[0], alone]) == {"fedavg/seed10": [runs[0]], "fedbuff": [alone]}
    other = run(tmp_path / "y" / "fedavg" / "seed10", 10)
    assert run_files.find([runs[0], other]) == {
        "x/fedavg/seed10": [runs[0]],
        "y/fedavg/seed10": [other],
    }
    assert list(run_files.find([tmp_path / "x", tmp_path / "y"])) == [
        "x/fedavg",
        "fedbuff",
        "y/fedavg",
    ]
    assert [run_files.title(each) for each in (runs[0], alone)] == ["fedavg seed 10", "fedbuff"]


# ------------------------------------------------------------------ arithmetic
def test_mean_and_sample_deviation_by_hand() -> None:
    """2, 4, 9: mean 5; squares 9 + 1 + 16 = 26; 26 / (3 - 1) = 13."""
    assert statistics.spread([2, 4, 9]) == statistics.Spread(3, 3, 5.0, pytest.approx(13**0.5))
    assert statistics.spread([7]) == statistics.Spread(1, 1, 7.0, None)
    assert statistics.spread([2, None, 4]) == statistics.Spread(2, 3, None, None), (
        "no mean over fewer than all"
    )
    assert statistics.spread([None, None]) == statistics.Spread(0, 2, None, None)


def test_the_table_shows_mean_deviation_and_who_never_got_there(tmp_path: Path) -> None:
    """Accuracy: squares .0004 + 0 + .0004; times 2, 4, 9: 13 ** 0.5 = 3.61."""
    for seed, accuracy, target_s in ((1, 0.90, 2.0), (2, 0.92, 4.0), (3, 0.94, 9.0)):
        run(tmp_path / "fedavg" / f"seed{seed}", seed, accuracy, target_s)
        late_s = target_s if seed > 1 else None
        run(tmp_path / "fedbuff" / f"seed{seed}", seed, accuracy, late_s, versions=1000 * seed)
    lines = [line.split() for line in shown(compare.load(tmp_path)).splitlines()]
    place = next(at for at, words in enumerate(lines) if words[:1] == ["fedavg"])
    assert lines[place][:5] == ["fedavg", "0.920", "5.00", "2.0", "10.0"]
    assert lines[place + 1][:5] == ["3", "seeds", "±.020", "±3.61", "±0"]
    (other,) = (words for words in lines if words[:1] == ["fedbuff"])
    assert other[2:6] == ["2", "of", "3", "2000"]


def test_a_mean_has_the_worst_verdict_of_its_runs_and_warns_of_short_ones(tmp_path: Path) -> None:
    run(tmp_path / "fedavg" / "seed1", 1)
    run(
        tmp_path / "fedavg" / "seed2",
        2,
        finished="interrupted",
        emulated_s=3.25,
        fidelity={"verdict": "strained", "reasons": ["late"]},
    )
    text = shown(compare.load(tmp_path))
    assert [line.split()[-1] for line in text.splitlines()[3:4]] == [
        "interrupted"
    ] and "1 of 2" in text
    notes = " ".join(text.split())
    assert (
        "fedavg seed 2: strained: late" in notes
        and "fedavg seed 2: interrupted after 3.25 emulated s; the mean still includes it" in notes
    )


@pytest.mark.parametrize("width", [80, 60, 40])
def test_the_verdict_is_never_cut_off(tmp_path: Path, width: int) -> None:
    """Also with wide numbers and a long name in a narrow terminal."""
    name = "a_rather_long_name_for_a_strategy"
    for seed in (1, 2):
        run(
            tmp_path / name / f"seed{seed}",
            seed,
            versions=123_456 * seed,
            updates_applied=9_876_543 * seed,
            updates_discarded={"late": 54_321},
            emulated_s=123_456.0 + seed,
            time_to_target_s=98_765.4 * seed,
            staleness={"0": 1, "1234": 9},
            bytes_up=987_654_321,
            bytes_down=12_345 * seed,
            fidelity={"verdict": "strained", "reasons": ["r"]},
        )
    (tmp_path / "short").mkdir()
    (tmp_path / "short" / "events.jsonl").touch()
    text = shown(compare.load(tmp_path), width)
    assert all(len(line) <= width for line in text.splitlines()) and "…" not in text
    assert "strained" in text and "unfinished" in text and "no room in" in text
    if width == 80:
        assert all(
            number in text for number in ("185k", "±87.3k", "14.8M", "_for_a_strategy")
        )  # mean of 123,456 and 246,912


def test_the_files_for_pandas(tmp_path: Path) -> None:
    for seed, accuracy, target_s in ((1, 0.5, None), (2, 0.75, 4.0)):
        run(tmp_path / "fedavg" / f"seed{seed}", seed, accuracy, target_s)
    rows = compare.load(tmp_path)
    compare.write_csv(rows, tmp_path / "comparison.csv")
    compare.write_seeds_csv(rows, tmp_path / "comparison_seeds.csv")
    with (tmp_path / "comparison.csv").open(newline="") as file:
        assert [
            (row["name"], row["seed"], row["final_accuracy"], row["finished"])
            for row in csv.DictReader(file)
        ] == [("fedavg", "1", "0.5", "versions"), ("fedavg", "2", "0.75", "versions")]
    with (tmp_path / "comparison_seeds.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["name"], row["runs"], row["final_accuracy_mean"], row["final_accuracy_n"]) == (
        "fedavg",
        "2",
        "0.625",
        "2",
    )
    assert float(row["final_accuracy_std"]) == pytest.approx(
        0.125 * 2**0.5
    )  # 0.125 ** 2 twice, by 1
    assert (
        row["time_to_target_s_mean"],
        row["time_to_target_s_std"],
        row["time_to_target_s_n"],
        row["emulated_s_mean"],
    ) == ("", "", "1", "12.500000000")


# ------------------------------------------------------------------ the figure
def test_the_line_of_several_seeds_by_hand() -> None:
    """One curve is 0 from x = 0 on, and 1 from 2 on. The other is 0 from 0 on, and .5 from 1 on.

    A value holds until the next one, so at x = 1 they have 0 and .5; at x = 2, where the first
    curve ends, 1 and .5. Straight lines would give the first one .5 at x = 1, which no model had.
    """
    line = curves.over_seeds([([0, 2], [0.0, 1.0]), ([0, 1, 4], [0.0, 0.5, 0.5])])
    x, mean, deviation = map(list, zip(*line))
    assert x == [0, 1, 2] and mean == [0, 0.25, 0.75]
    assert deviation == pytest.approx([0, 0.25 * 2**0.5, 0.25 * 2**0.5])
    assert curves.over_seeds([([0, 1], [0.1, 0.2])]) == [(0, 0.1, None), (1, 0.2, None)]
    many = np.linspace(0, 1, 5001).tolist()
    assert len(curves.over_seeds([(many, many), ([0.0, 1.0], [0.0, 1.0])])) == curves.MOST_POINTS
