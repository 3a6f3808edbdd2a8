"""Many runs against a baseline: x, target, pairs of seeds, what differs, runs that were killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compared_runs import evaluated_run

from edgefl.errors import UserError
from edgefl.results.compare import Comparison, Question, answer
from edgefl.results.tables import grid, latex, markdown

SLOW, FAST = [0.1, 0.3, 0.5, 0.7, 0.8], [0.1, 0.5, 0.8, 0.85, 0.9]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three seeds of two strategies; fedbuff reaches the target in half the time of fedavg."""
    for seed in (1, 2, 3):
        evaluated_run(tmp_path / "fedavg" / f"seed{seed}", seed, SLOW, step_s=seed)
        evaluated_run(tmp_path / "fedbuff" / f"seed{seed}", seed, FAST, step_s=seed)
    return tmp_path


def ask(*paths: Path, **changes: Any) -> Comparison:
    return answer(paths, Question(**changes))


def cells(comparison: Comparison, key: str) -> list[str]:
    return list(grid(comparison, [key]).columns[key].cells)


def test_the_needed_seeds_are_for_the_observed_difference_or_for_what_matters(
    folder: Path,
) -> None:
    told = ask(folder, baseline="fedavg")
    assert cells(told, "gain_seeds") == ["-", "2"], "the seeds agree: no scatter"
    assert "seeds: for 80 % power at the observed difference (paired t-test)" in grid(told).notes
    matters = ask(folder, baseline="fedavg", target=0.8, effect=0.01)
    told_by = "seeds: for 80 % power at 1 points and the observed speed-up (paired t-test)"
    assert told_by in grid(matters).notes


def test_without_a_baseline_there_are_means_and_intervals(folder: Path) -> None:
    found = ask(folder)
    assert [each.name for each in found.strategies] == ["fedavg", "fedbuff"]
    fedavg, fedbuff = found.strategies
    assert fedavg.accuracy.spread.mean == pytest.approx(0.8)
    assert [each.x for each in fedbuff.reached] == [2.0, 4.0, 6.0]
    assert fedbuff.to_target.spread.mean == 4.0
    interval = fedbuff.to_target.interval
    assert interval is not None and interval.method == "t"
    assert (interval.low, interval.high) == pytest.approx((0, 4 + 4.968), abs=1e-3), (
        "no time is below 0"
    )
    assert fedavg.gain is fedbuff.speed_up is None
    assert list(grid(found).columns) == [
        "name",
        "seeds",
        "accuracy",
        "accuracy_interval",
        "to_target",
        "to_target_interval",
        "verdict",
    ]


def test_against_a_baseline_each_seed_is_a_pair(folder: Path) -> None:
    fedavg, fedbuff = ask(folder, baseline="fedavg").strategies
    assert fedavg.gain is fedavg.speed_up is None
    assert fedbuff.gain is not None and fedbuff.speed_up is not None
    assert fedbuff.gain.size == pytest.approx(0.1)
    assert fedbuff.speed_up.size == pytest.approx(2), "in every seed, although the times differ"
    assert fedbuff.speed_up.interval is not None
    assert fedbuff.speed_up.interval.low == pytest.approx(2)
    assert fedbuff.speed_up.adjusted == 0, "three equal ratios leave no doubt under normality"


@pytest.mark.parametrize(
    ("x", "times"),
    [
        ("emulated_s", [4.0, 8.0, 12.0]),
        ("version", [4.0, 4.0, 4.0]),
        ("round", [4.0, 4.0, 4.0]),
        ("bytes", [12_000.0] * 3),
        ("wall_s", [4.0, 8.0, 12.0]),
    ],
)
def test_the_target_on_each_x(folder: Path, x: str, times: list[float]) -> None:
    found = ask(folder, x=x)
    assert [each.x for each in found.strategies[0].reached] == times


def test_wall_seconds_of_runs_at_another_speed_are_marked(tmp_path: Path) -> None:
    auto = {"speed": "auto"}
    runs = (
        evaluated_run(tmp_path / "a", 1, SLOW, config=auto, speed=1.0),
        evaluated_run(tmp_path / "b", 1, SLOW, config=auto, speed=0.5),
    )
    assert cells(ask(*runs, x="wall_s"), "name") == ["a", "b"], "the virtual clock has no speed"
    for run in runs:
        text = (run / "config.toml").read_text()
        (run / "config.toml").write_text(text.replace('clock = "virtual"', 'clock = "wall"'))
    assert cells(ask(*runs), "name") == ["a", "b"], "it changes no emulated second"
    found = ask(*runs, x="wall_s")
    assert cells(found, "name") == ["a", "b *"]
    assert "* b differs: speed = 0.5 instead of 1" in grid(found).notes


def test_another_target_is_read_from_the_evaluations(folder: Path) -> None:
    found = ask(folder, target=0.85, baseline="fedavg")
    assert [each.x for each in found.strategies[1].reached] == [3.0, 6.0, 9.0]
    assert [each.x for each in found.strategies[0].reached] == [None] * 3
    assert cells(found, "speed_up") == ["-", "> 1.33\u00d7"], "fedavg ends at 4, 8 and 12"
    assert cells(found, "to_target") == ["-", "6.00 ± 3.00"]


def test_only_common_seeds_are_pairs(folder: Path) -> None:
    evaluated_run(folder / "fedasync" / "seed3", 3, FAST, step_s=3)
    evaluated_run(folder / "fedasync" / "seed4", 4, FAST, step_s=1)
    found = ask(folder, baseline="fedavg")
    asynchronous = next(each for each in found.strategies if each.name == "fedasync")
    assert asynchronous.gain is not None and asynchronous.gain.pairs == 1
    assert asynchronous.gain.test is not None and asynchronous.gain.test.p is None
    notes = grid(found).notes
    assert "fedasync: 1 of 3 seeds in common with fedavg" in notes
    assert "* fedasync differs: seeds = [3, 4] instead of [1, 2, 3]" in notes


def test_several_tests_are_adjusted(folder: Path) -> None:
    for seed in (1, 2, 3):
        evaluated_run(folder / "other" / f"seed{seed}", seed, [0.1, 0.8 + seed / 100], step_s=seed)
        evaluated_run(folder / "third" / f"seed{seed}", seed, [0.1, 0.8 + seed / 90], step_s=seed)
    found = ask(folder, baseline="fedavg")
    gains = [each.gain for each in found.strategies if each.gain is not None]
    raw = [each.test.p for each in gains if each.test is not None and each.test.p is not None]
    assert len(raw) == 3 and min(raw) == 0
    assert [each.adjusted for each in gains] == pytest.approx([0, 2 * raw[1], 2 * raw[1]])
    assert "p is adjusted for 3 comparisons (Holm)" in grid(found).notes


def test_what_is_said_of_the_adjustment_counts_the_tests_that_were_made(tmp_path: Path) -> None:
    """Of three strategies one shares a single seed, and one does not reach the target."""
    for seed in range(1, 7):
        evaluated_run(tmp_path / "base" / f"seed{seed}", seed, [0.1, 0.7])
        evaluated_run(tmp_path / "good" / f"seed{seed}", seed, [0.1, 0.7 + seed / 50])
        evaluated_run(tmp_path / "poor" / f"seed{seed}", seed, [0.1, 0.2 + seed / 50])
        evaluated_run(tmp_path / "other" / f"seed{seed + 5}", seed + 5, [0.1, 0.7])
    found = ask(tmp_path, baseline="base", target=0.65)
    good = next(each for each in found.strategies if each.name == "good")
    assert good.gain is not None and good.gain.adjusted == 2 * 2 / 64
    assert good.speed_up is not None and good.speed_up.adjusted == 1.0, "one test: not adjusted"
    notes = grid(found).notes
    assert "p is adjusted for 2 comparisons of the accuracy and 1 of the speed-up (Holm)" in notes
    told = "with 6 seeds no p can be below 0.062: at least 7 seeds are needed, or --method t"
    assert told in notes
    alone = ask(*(tmp_path / name for name in ("base", "good", "other")), baseline="base")
    assert not [note for note in grid(alone).notes if "Holm" in note or "no p can" in note]


def test_six_seeds_are_resampled(tmp_path: Path) -> None:
    for seed in range(1, 7):
        evaluated_run(tmp_path / "a" / f"seed{seed}", seed, [0.1, 0.7])
        evaluated_run(tmp_path / "b" / f"seed{seed}", seed, [0.1, 0.7 + seed / 50])
    found = ask(tmp_path, baseline="a", target=0.5)
    assert found.strategies[1].gain is not None
    assert found.strategies[1].gain.adjusted == 2 / 64
    assert "95 % intervals: bootstrap; p: paired permutation test" in grid(found).notes
    t = ask(tmp_path, baseline="a", target=0.5, method="t")
    assert "95 % intervals: Student's t; p: paired t-test" in grid(t).notes


def test_tests_that_cannot_be_significant_say_so(tmp_path: Path) -> None:
    for seed in range(1, 7):
        for place, name in enumerate("abc"):
            evaluated_run(tmp_path / name / f"seed{seed}", seed, [0.1, 0.7 + place * seed / 50])
    told = "with 6 seeds no p can be below 0.062: at least 7 seeds are needed, or --method t"
    assert told in grid(ask(tmp_path, baseline="a", target=0.5)).notes
    assert told not in grid(ask(tmp_path, baseline="a", target=0.5, method="t")).notes
    assert told not in grid(ask(tmp_path, target=0.5)).notes


def test_a_killed_run_counts_as_far_as_it_got(folder: Path) -> None:
    evaluated_run(folder / "killed" / "seed1", 1, FAST[:4], killed=True)
    found = ask(folder, baseline="fedavg")
    killed = found.strategies[-1]
    assert (killed.verdict, killed.reached[0].x, killed.reached[0].end) == ("unfinished", 2.0, 3.0)
    assert killed.rows[0].clock == "virtual", "its config says so"
    assert killed.gain is not None and killed.gain.size == pytest.approx(0.85 - 0.8)
    assert killed.speed_up is not None and killed.speed_up.size == pytest.approx(2)
    assert cells(found, "name")[-1] == "killed *†"
    assert any(note.startswith("† killed: unfinished: no complete") for note in grid(found).notes)


def test_a_strained_run_is_marked(tmp_path: Path) -> None:
    evaluated_run(tmp_path / "a", 1, SLOW)
    late = {"verdict": "strained", "reasons": ["7 of 39 transfers late"]}
    evaluated_run(tmp_path / "b", 1, SLOW, fidelity=late)
    found = ask(tmp_path)
    assert cells(found, "name") == ["a", "b †"]
    assert grid(found).notes == ("† b: strained: 7 of 39 transfers late",)


# ------------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("question", "line"),
    [
        ({"x": "byte"}, "--x byte: there is no such x (nearest: 'bytes')"),
        (
            {"x": "moons"},
            "--x moons: there is no such x (valid: bytes, emulated_s, joules, version, wall_s)",
        ),
        ({"baseline": "fedvag"}, "baseline fedvag: there is no such run (nearest: 'fedavg')"),
        (
            {"x": "joules"},
            "--x joules: no run has joules: their configs have no [devices.energy] or"
            " [links.radio]",
        ),
    ],
)
def test_unknown_names(folder: Path, question: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        ask(folder, **question)
    assert str(caught.value) == line


def test_a_baseline_may_be_the_end_of_a_name(tmp_path: Path) -> None:
    for experiment in ("x", "y"):
        for strategy in ("fedavg", f"only_{experiment}"):
            evaluated_run(tmp_path / experiment / strategy, 1, SLOW)
    paths = [tmp_path / "x", tmp_path / "y"]
    assert ask(*paths, baseline="only_x").baseline == "only_x"
    assert ask(*paths, baseline="x/fedavg").baseline == "x/fedavg"
    assert ask(*paths, baseline=f"{tmp_path}/y/fedavg/").baseline == "y/fedavg"
    with pytest.raises(UserError) as caught:
        ask(*paths, baseline="fedavg")
    assert str(caught.value) == "baseline fedavg: there are several: x/fedavg, y/fedavg"


def test_runs_without_a_common_target(tmp_path: Path) -> None:
    evaluated_run(tmp_path / "a", 1, SLOW, target=0.8)
    evaluated_run(tmp_path / "b", 1, FAST, target=0.9)
    evaluated_run(tmp_path / "c", 1, FAST, target=None)
    said = "the runs have no common target accuracy (a 0.8, b 0.9, c none): say --target 0.9"
    for question in ({"baseline": "a"}, {"x": "bytes"}):
        with pytest.raises(UserError) as caught:
            ask(tmp_path, **question)
        assert str(caught.value) == said
        found = ask(tmp_path, target=0.5, **question)
        assert (found.target, grid(found).notes) == (0.5, ())
        assert [row.time_to_target_s for row in found.rows] == [2.0, 1.0, 1.0]
    assert ask(tmp_path).target is None, "a plain table needs none"


def test_runs_without_any_target_have_differences_but_no_x(tmp_path: Path) -> None:
    evaluated_run(tmp_path / "a", 1, SLOW, target=None)
    evaluated_run(tmp_path / "b", 1, FAST, target=None)
    found = ask(tmp_path, baseline="a")
    assert cells(found, "gain") == ["-", "+10.0"] and "speed_up" not in grid(found).columns
    assert grid(found).notes == ("no target accuracy, so no speed-up: --target 0.9 would give one",)
    with pytest.raises(UserError, match=r"have no evaluation.target_accuracy: say --target 0.9"):
        ask(tmp_path, x="bytes")


# ------------------------------------------------------------------ what is made of it
def test_markdown(folder: Path) -> None:
    evaluated_run(folder / "a_b", 1, SLOW, fidelity={"verdict": "strained", "reasons": ["late"]})
    chosen = grid(ask(folder, baseline="fedavg"), ["accuracy", "speed_up", "bytes_up"])
    assert markdown(chosen).splitlines()[:5] == [
        "| strategy | accuracy, final | speed-up vs fedavg | up (kB) |",
        "| :-- | --: | --: | --: |",
        "| a\\_b \\*† | 0.800 | 1.00\u00d7 | 4.00 |",
        "| fedavg | 0.800 ± 0.000 | - | 4.00 ± 0.00 |",
        "| fedbuff | 0.900 ± 0.000 | 2.00\u00d7 | 4.00 ± 0.00 |",
    ]


def test_latex(folder: Path) -> None:
    evaluated_run(
        folder / "a_b", 1, SLOW, fidelity={"verdict": "strained", "reasons": ["5 % late"]}
    )
    found = ask(folder, baseline="fedbuff")
    text = latex(grid(found, ["accuracy_interval", "gain", "speed_up"]), "edgefl compare runs")
    assert text.splitlines()[:8] == [
        r"% \usepackage{booktabs}; made by: edgefl compare runs",
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r"strategy & 95 \% interval & points vs fedbuff & speed-up vs fedbuff \\",
        r"\midrule",
        r"a\_b${}^{\ast\dagger}$ & -- & $-$10.0 & 0.500$\times$ \\",
        r"fedavg & {[0.800, 0.800]} & $-$10.0 & 0.500$\times$ \\",
        r"fedbuff & {[0.900, 0.900]} & -- & -- \\",
    ]
    assert r"\noindent ${}^{\dagger}$ a\_b: strained: 5 \% late\par" in text.splitlines()


@pytest.mark.parametrize("killed", [False, True])
def test_joules_as_x(tmp_path: Path, killed: bool) -> None:
    """With 3 J a second, "slow" reaches 0.8 after 12 J and "fast" after 6 J."""
    paths = []
    for name, accuracies in (("slow", SLOW), ("fast", FAST)):
        run = evaluated_run(tmp_path / name, 1, accuracies, killed=killed)
        (run / "energy.csv").write_text(
            "edge,state,began_s,ended_s,joules,watts\na,idle,0.000000000,,,3.0\n"
        )
        head, *rows = (run / "metrics.csv").read_text().splitlines()
        rows = [f"{row},{3 * v}" for v, row in enumerate(rows[:5])]
        (run / "metrics.csv").write_text("\n".join([f"{head},joules", *rows, ""]))
        paths.append(run)
    found = ask(*paths, x="joules", baseline="slow")
    assert [each.reached[0].x for each in found.strategies] == [12.0, 6.0]
    assert cells(found, "speed_up") == ["-", "2.00\u00d7"]
    assert grid(found).columns["speed_up"].heading == "factor vs slow"
    assert [row.joules_to_target for row in ask(*paths, target=0.5).rows] == [6.0, 3.0]
    if killed:
        assert [row.joules for row in found.rows] == [12.0, 12.0]
        assert [row.joules_to_target for row in found.rows] == [12.0, 6.0]
        assert {row.joules_kind for row in found.rows} == {"modelled"}
