"""Entries of FedEcho and WKAFL: valid plans, claims on made-up results, measures by hand."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from paths import STUDIES


@pytest.fixture(autouse=True)
def studies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(STUDIES)


def of(name: str) -> Any:
    return importlib.import_module(f"reproduction.{name}")


def entry(name: str) -> Any:
    return of("registry").find(name)


ENTRIES = (
    "seed3-table2",
    "seed3-table2-dir03",
    "seed3-cifar10",
    "seed3-table2-resnet",
    "seed3-table3",
    "seed3-table4",
    "seed3-table5",
    "seed3-ablations",
    "seed3-map",
    "seed4-table3",
    "seed4-fig5",
    "seed4-fig2",
    "seed4-pixels",
    "seed4-map",
    "seed4-table2",
    "seed4-emnist",
    "seed4-cifar10",
    "seed4-natural",
    "seed4-fig11",
)
Numbers = Callable[[str, str, str], float]  # (part, method, column) -> the mean over the seeds


def made_up(name: str, numbers: Numbers, scatter: float = 0.001) -> Any:
    """Return results of three seeds of every method; seeds differ by ``scatter``."""
    results, given = of("results"), entry(name)
    rows = [
        results.RunRow(
            scale=of("entry").Scale.paper,
            part=part.name,
            method=method.shown,
            role=results.RESULT,
            seed=seed,
            setting={},
            numbers={
                column: numbers(part.name, method.shown, column)
                + scatter * (seed + len(method.shown) * seed % 3)
                for column in (*results.NUMBERS, *part.measures)
            },
        )
        for part in given.parts
        for method in part.methods
        for seed in (1, 2, 3)
    ]
    scale = of("entry").Scale.paper
    return results.Results(given, scale, rows, (), lambda other: made_up(other, numbers, scatter))


def verdicts(name: str, numbers: Numbers, scatter: float = 0.0) -> dict[str, str]:
    """Return each claim's verdict on made-up results."""
    results, rules = made_up(name, numbers, scatter), of("rules")
    return {
        claim.text: str(rules.judged(claim.judge, results).verdict) for claim in entry(name).claims
    }


def by(table: Mapping[str, float], usual: float = 0.5) -> Numbers:
    """Return numbers: that of the "part/method", the "method" or the "column", else ``usual``."""

    def numbers(part: str, method: str, column: str) -> float:
        keys = (f"{part}/{method}", method, column)
        return next((table[key] for key in keys if key in table), usual)

    return numbers


# ------------------------------------------------------------------ plans
@pytest.mark.parametrize("name", ENTRIES)
def test_the_plans_are_valid_and_fair_and_say_what_they_cost(name: str, tmp_path: Path) -> None:
    given = entry(name)
    for part in given.parts:
        for scale in part.scales:
            of("plans").PartPlan(given, part, scale, tmp_path).check()
    assert of("entry").Scale.paper in given.hours and given.reading.endswith(".")
    assert given.parts or given.uses or given.needs


@pytest.mark.parametrize("name", ENTRIES)
def test_claims_read_columns_that_there_are_and_are_not_run_without_results(name: str) -> None:
    given, results = entry(name), of("results")
    cannot_run = name in ("seed3-table4", "seed3-table5")
    found = verdicts(name, lambda *_: 0.5, 0.001)
    assert set(found.values()) <= {
        "holds",
        "does not hold",
        "cannot be told at this budget",
        *(["not run"] if cannot_run else []),
    }
    assert not any(text.endswith(".") for text in found), "the page ends the sentence"
    nothing = results.Results(given, of("entry").Scale.paper)
    for claim in given.claims:
        assert str(of("rules").judged(claim.judge, nothing).verdict) == "not run", claim.text


def test_seven_methods_of_wkafl_s_table_have_equal_tuning_and_time() -> None:
    given = entry("seed4-table3")
    one, ten, steps = given.parts
    assert {len(axis) for method in one.methods for axis in method.axes.values()} == {4}
    assert ten.tuning.share == 0.1 < one.tuning.share
    assert [method.shown for method in steps.methods] == ["gsgm"]
    assert "partition.labels=10" in ten.overrides


# ------------------------------------------------------------------ WKAFL's claims
def told(found: Mapping[str, str], part_of_text: str) -> str:
    (verdict,) = (verdict for text, verdict in found.items() if part_of_text in text)
    return verdict


def test_the_clipping_alone_may_be_wkafl_s_margin() -> None:
    accuracies = {"wkafl": 0.97, "twafl-clipped": 0.97, "twafl": 0.9, "sasgd": 0.8, "gsgm": 0.7}
    found = verdicts("seed4-table3", by(accuracies))
    assert told(found, "more accurate than TWAFL with one") == "holds"
    assert told(found, "within .01") == told(found, "Clipping alone") == "holds"
    worse = verdicts("seed4-table3", by(accuracies | {"twafl": 0.98, "twafl-clipped": 0.9}))
    assert told(worse, "more accurate than TWAFL with one") == "does not hold"
    assert told(worse, "within .01") == told(worse, "Clipping alone") == "does not hold"
    assert told(worse, "most accurate with ten") == "does not hold"


def test_a_smaller_stability_is_steadier() -> None:
    steady = by({"gsgm": 0.01, "wkafl": 0.02, "twafl": 0.05, "sasgd": 0.09, "ten/wkafl": 0.01})
    found = verdicts("seed4-table3", steady)
    assert told(found, "GSGM is the steadiest") == "holds"
    assert told(found, "steadier than TWAFL") == "holds"
    assert told(found, "steadier with more labels") == "does not hold", "TWAFL is as steady"


def test_selection_raises_the_share_of_a_label_if_it_does_with_every_seed() -> None:
    above = verdicts("seed4-table3", by({"wkafl": 0.9, "wkafl-no-selection": 0.7}))
    below = verdicts("seed4-table3", by({"wkafl": 0.6, "wkafl-no-selection": 0.7}))
    text = "Selecting gradients that agree"
    assert (told(above, text), told(below, text)) == ("holds", "does not hold")


def test_the_ablations_are_judged_on_the_runs_of_the_table() -> None:
    found = verdicts("seed4-fig5", by({"wkafl": 0.9, "wkafl-no-staleness": 0.3}))
    assert told(found, "without any of its parts") == "holds"
    assert told(found, "Without the handling of staleness") == "holds"


def test_the_weights_of_figure_2() -> None:
    weights = {"share_of_few": 0.99, "linearity": 0.95, "staleness_mean": 160.0, "effective": 1.5}
    assert set(verdicts("seed4-fig2", by(weights)).values()) == {"holds"}
    few = verdicts("seed4-fig2", by(weights | {"share_of_few": 0.5, "staleness_mean": 60.0}))
    assert told(few, "at most five gradients") == "does not hold"
    assert told(few, "at least P/2K") == "does not hold", "60 is enough at P/K = 100 alone"


def test_figure_2_draws_a_point_for_each_seed() -> None:
    (figure,) = entry("seed4-fig2").figures
    lines = figure.lines(made_up("seed4-fig2", by({"n_ave": 3.0, "tau_ave": 20.0}), 0.0))[""]
    assert len(lines) == 5
    assert [(point.x, point.y) for point in lines["K = 20"]] == [(3.0, 20.0)] * 3
    assert figure.lines(of("results").Results(entry("seed4-fig2"), "paper")) == {"": {}}


def test_the_maps_draw_a_line_for_each_row() -> None:
    accuracies = {"wkafl": 0.9, "twafl-clipped": 0.8, "k-async": 0.5}
    (figure,) = entry("seed4-map").figures
    panels = figure.lines(made_up("seed4-map", by(accuracies), 0.0))
    assert set(panels) == {"over twafl-clipped", "over k-async"}
    assert len(panels["over k-async"]) == 4
    for points in panels["over k-async"].values():
        assert [point.x for point in points] == [20, 100, 300]
        assert all(point.y == pytest.approx(0.4) for point in points)
    (figure,) = entry("seed3-map").figures
    gains = figure.lines(made_up("seed3-map", by({"fedecho-100": 0.6, "fadas-adaptive": 0.7}), 0))
    (first, *_) = gains["over FADAS, delay-adaptive"]["mild delay"]
    assert (first.x, first.y) == (100, pytest.approx(-0.1))
    empty = of("results").Results(entry("seed4-map"), of("entry").Scale.paper)
    assert not any(entry("seed4-map").figures[0].lines(empty)["over k-async"].values())


# ------------------------------------------------------------------ FedEcho's claims
def test_fedecho_s_margins_and_the_level_method() -> None:
    accuracies = {"fedecho": 0.75, "fadas-adaptive": 0.76, "fedac": 0.7, "fadas": 0.7}
    found = verdicts("seed3-table2", by(accuracies, usual=0.5))
    assert told(found, "more accurate than fedbuff") == "holds"
    assert told(found, "delay-adaptive steps under large") == "does not hold"
    assert told(found, "FedAC and FADAS are more accurate") == "holds"
    assert told(found, "level under large and mild") == "holds"
    assert (
        told(verdicts("seed3-table2", by({"checkpoints": 9.0})), "eight models") == "does not hold"
    )


def test_an_order_of_sample_counts() -> None:
    right = {"samples-5000": 0.8, "fedecho": 0.7, "samples-1000": 0.6, "samples-500": 0.5}
    found = verdicts("seed3-ablations", by(right, usual=0.4))
    assert told(found, "More samples") == "holds"
    wrong = verdicts("seed3-ablations", by(right | {"samples-1000": 0.75}, usual=0.4))
    assert told(wrong, "More samples") == "does not hold"


def test_what_the_public_data_give() -> None:
    found = verdicts(
        "seed3-map", by({"fedecho-2000": 0.7, "fadas-adaptive": 0.71, "no-distillation": 0.5})
    )
    assert told(found, "the distillation gives") == "holds"
    assert told(found, "as much as") == "holds"


# ------------------------------------------------------------------ measures
def leave(run: Path, aggregation: Mapping[str, Any] | None = None, *reports: Any) -> Path:
    """Write summary.json and events.jsonl of a made-up run."""
    (run / "summary.json").write_text(json.dumps({"aggregation": aggregation}))
    events = [
        {"event": "update_arrived", "version": number, "decisions": [{"do": "report"} | report]}
        for number, report in enumerate(reports)
    ]
    (run / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return run


def test_measures_of_gradients_by_hand(tmp_path: Path) -> None:
    measures = of("entries._gradient_measures")
    run = leave(tmp_path, {"tau_ave": 2.0, "clipped_share": None, "predominant": {"5": 3, "6": 1}})
    assert measures.of_aggregation("tau_ave")(run) == 2.0
    assert measures.of_aggregation("clipped_share")(run) is None
    assert measures.share_of_few(run) == 0.75
    assert measures.linearity(run) is None, "a run without steps"
    assert measures.share_of_few(leave(tmp_path)) is None


@pytest.mark.parametrize(
    ("gaps", "expected"), [((1, 2, 3), 1.0), ((3, 2, 1), -1.0), ((2, 2, 2), None), ((1, 2), None)]
)
def test_linearity_is_the_correlation_of_figure_2b_s_points(
    gaps: tuple[int, ...], expected: float | None
) -> None:
    measures = of("entries._gradient_measures")
    steps = [
        {"aggregated": float(count), "weighted_staleness": float(gap)}
        for count, gap in enumerate(gaps, 1)
        for _ in range(measures.LEAST_STEPS)
    ]
    rare = {"aggregated": 9.0, "weighted_staleness": -50.0}
    found = measures.linearity_of([*steps, rare])
    assert found == (None if expected is None else pytest.approx(expected)), "nine is too rare"


def test_measures_of_distillation_by_hand(tmp_path: Path) -> None:
    measures = of("entries._distillation_measures")
    rounds = [{"values": {"checkpoints": 3.0, "alpha": 0.4}}, {"values": {"checkpoints": 5.0}}]
    run = leave(tmp_path, None, *rounds)
    assert (measures.checkpoints(run), measures.alpha(run)) == (5.0, 0.4)
    assert measures.long_accuracy(run) is None, "no labels.csv"
    assert measures.checkpoints(leave(tmp_path)) is None
