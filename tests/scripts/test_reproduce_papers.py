"""Single papers: their rules on invented results, measures by hand, equations and closed forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reproduced import made_up, results_of, row_of
from reproduction import dissemination, measures, registry, tdma
from reproduction.entry import Finding, Scale, Verdict
from reproduction.judges import judged, of_readings
from reproduction.measures import MEASURES
from reproduction.results import CurveRow, Results
from torch import nn

from edgefl.models.workspace import Workspace, flat
from emulator.tdma.closed_form import Tdma

HOLDS, FAILS, UNKNOWN = Verdict.holds, Verdict.fails, Verdict.unknown
LOSS = tdma.LOSS


def verdict(
    entry: str, words: str, table: Mapping[str, float], usual: float = 0.5, scatter: float = 0.001
) -> Verdict:
    """Return the verdict of a claim on made-up results whose seeds differ by ``scatter``.

    ``table``: the number of a "part/method/column", "part/method", "method" or "column".
    """

    def number(part: str, method: str, column: str, seed: int) -> float:
        keys = (f"{part}/{method}/{column}", f"{part}/{method}", method, column)
        return next((table[key] for key in keys if key in table), usual) + scatter * seed

    found = registry.find(entry)
    (claim,) = (claim for claim in found.claims if words in claim.text)
    return judged(claim.judge, made_up(found, number, find=registry.find)).verdict


@pytest.mark.parametrize(
    ("entry", "words", "table", "expected"),
    [
        ("seed0-linear", "Merging a fresh", {"staleness_after": 4.0}, FAILS),
        ("seed0-linear", "Fresh models cost", {"down_MB": 1.02}, HOLDS),
        ("seed0-fig8", "The advantage", {"links100/fedasmu": 0.6}, HOLDS),
        ("seed2-table2", "is more accurate than FedAsync", {"fedasmu": 0.6}, HOLDS),
        ("seed0-map", "merging gains somewhere", {"work5-dirichlet0.5/with-flat": 0.6}, HOLDS),
        ("seed1-corners", "Worst corner", {"worst/idfl-s3": 0.501}, HOLDS),
        ("seed3-mrpc-clocks", "MiniLM", {"wall/ca2fl": 0.46}, FAILS),
        ("seed3-payload", "a twentieth", {"lte-all": 11, "dsl-all": 11, "nb-iot-all": 9}, FAILS),
        ("seed4-table3", "raises the share", {"wkafl-no-selection": 0.9}, FAILS),
        ("seed4-table2", "loses least", {"p150/twafl": 0.6, "p150/sasgd": 0.6}, HOLDS),
    ],
)
def test_rules_of_the_papers(
    entry: str, words: str, table: dict[str, float], expected: Verdict
) -> None:
    assert verdict(entry, words, table) is expected


# ------------------------------------------------------------------ timely dissemination
@pytest.mark.parametrize(
    ("same", "less", "expected"),
    [
        (0.2, 0.01, HOLDS),
        (0.01, 0.2, FAILS),
        (0.1, 0.1, Verdict.equal),
    ],  # the last: as far from both
)
def test_a_merge_like_a_smaller_alpha(same: float, less: float, expected: Verdict) -> None:
    entry = registry.find("seed0-linear")
    away = {"fedasmu-da": 0.0, "fedasync": same, "fedasync-smaller": less}
    curves = [
        CurveRow(Scale.paper, "main", method, seed, 1e3 * at, at, 0.5, loss, None)
        for method, distance in away.items()
        for seed in (1, 2, 3)
        for at in range(21)
        for loss in [2 - at / 20 + distance * (1 + seed / 50)]
    ]
    found = judged(entry.claims[0].judge, Results(entry, Scale.paper, (), curves))
    assert found.verdict is expected


def test_the_smaller_alpha_is_that_of_the_linear_regime() -> None:
    """v = alpha c (d - G v) with and without a merge: iterate both, with G = 9, to their speeds."""

    def speed(alpha: float, beta: float, share: float) -> float:
        path = [0.0] * 10  # models, newest last; a step of training is d = 1
        for _ in range(2_000):
            begun, asked = path[-10], path[-1 - round(9 * (1 - share))]
            merged = (1 - beta) * (begun + share) + beta * asked
            path = [*path[1:], (1 - alpha) * path[-1] + alpha * (merged + 1 - share)]
        return path[-1] - path[-2]

    share, beta = 1 / 3, 0.6  # whole updates: a third of nine
    smaller = 0.5 * (1 - beta * share)
    assert speed(0.5, beta, share) == pytest.approx(speed(smaller, 0.0, share), rel=1e-6)
    assert speed(0.5, 0.0, share) > 1.04 * speed(smaller, 0.0, share)


@pytest.mark.parametrize(("score", "expected"), [(0.75, HOLDS), (0.6, FAILS)])
def test_a_learning_rate_learns_if_its_best_score_is_near_the_best_of_both(
    score: float, expected: Verdict
) -> None:
    """Without merging .08 ends at .3; with it at ``score``, against .78 with .02.

    It fails only if no part is left that was not tuned.
    """
    entry = registry.find("seed0-stability")
    rows = [
        row_of(
            method,
            101,
            {"convergence_accuracy": accuracy},
            "tuning",
            "work30-steps5",
            setting={"training.learning_rate": rate, "alpha": alpha},
        )
        for method, rate, alpha, accuracy in (
            ("with", "0.02", "0.6", 0.7),
            ("with", "0.08", "0.6", 0.2),
            ("with", "0.08", "0.3", score),
            ("without", "0.02", "0.6", 0.78),
            ("without", "0.08", "0.6", 0.3),
        )
    ]
    (claim,) = [each for each in entry.claims if "larger learning rate" in each.text]
    results = Results(entry, Scale.paper, rows)
    of_all = judged(claim.judge, results)
    assert of_all.verdict is (HOLDS if expected is HOLDS else Verdict.missing)
    found = dissemination.learns_at_larger_steps(
        results, "with", "without", ["work30-steps5"], 0.05
    )
    assert found.verdict is expected
    rates = {HOLDS: "work30-steps5 0.08 to 0.02", FAILS: "work30-steps5 0 to 0.02"}[expected]
    assert rates in found.why and found.ours == (rates if expected is HOLDS else "nowhere")


# ------------------------------------------------------------------ TDMA
def three(value: float) -> dict[int, float]:
    """Return three seeds around a value."""
    return {1: value - 0.01, 2: value, 3: value + 0.01}


def of_paper(without: dict[int, float], with_delay: dict[int, float]) -> Results:
    """Return results in which S has these late losses; both dictionaries: S -> loss."""
    numbers = {f"tdma-s{size}": three(loss) for size, loss in without.items()}
    numbers |= {f"idfl-s{size}": three(loss) for size, loss in with_delay.items()}
    return results_of(LOSS, numbers)


STATEMENTS = {
    name: statement
    for name, statement in registry.find("seed1-readings").claims[0].judge["statements"].items()
    if name not in ("large S is faster per round", "large S is steadier")  # of other columns
}
PAPER = of_paper(
    {1: 2.3, 5: 1.9, 10: 1.2, 25: 0.9, 50: 0.5, 100: 0.8}, {1: 0.6, 5: 0.5, 10: 0.2, 25: 0.4}
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_results_as_in_the_paper_make_its_statements_hold(statement: str) -> None:
    assert judged(STATEMENTS[statement], PAPER).verdict is HOLDS


def test_a_trend_is_a_rank_correlation_seed_by_seed() -> None:
    assert tdma.correlation([1, 5, 10], [3.0, 2.0, 1.0]) == -1.0
    assert tdma.correlation([1, 5, 10], [1.0, 1.0, 1.0]) == 0.0
    assert tdma.correlation([1, 2, 3], [1.0, 1.0, 2.0]) == pytest.approx(3**0.5 / 2)
    falling = {1.0: three(3.0), 5.0: three(2.0), 10.0: three(1.0)}
    mixed = {1.0: {1: 1.0, 2: 3.0}, 5.0: {1: 2.0, 2: 2.0}, 10.0: {1: 3.0, 2: 1.0}}
    for values, expected in (
        (falling, HOLDS),
        ({-x: its for x, its in falling.items()}, FAILS),
        (mixed, UNKNOWN),
        ({1.0: three(1.0)}, UNKNOWN),
    ):
        assert tdma.trend_falls(PAPER, values, "x").verdict is expected


def test_one_reading_must_give_all_statements() -> None:
    good, bad, open_one = (Finding("", each) for each in (HOLDS, FAILS, UNKNOWN))
    one = of_readings({"A": {"x": good, "y": bad}, "B": {"x": good, "y": good}}, [])
    assert one.verdict is HOLDS and "A: 1 of 2" in one.ours and "against it: y" in one.why
    assert of_readings({"A": {"x": bad}, "B": {"x": bad}}, []).verdict is FAILS
    assert of_readings({"A": {"x": bad}, "B": {"x": open_one}}, []).verdict is UNKNOWN
    partly = of_readings({"A": {"x": bad}}, ["B"])
    assert partly.verdict is UNKNOWN and "Not run: reading B" in partly.why


def test_table_1_is_compared_at_the_papers_scale_and_with_the_closed_form_else() -> None:
    (claim, _) = registry.find("seed1-table1").claims
    for scale, slots in ((Scale.paper, 100_000), (Scale.small, 5_000)):
        counts = {size: Tdma(20, size, 1, 4).models_by(slots) for size in (1, 2, 5, 10, 20)}
        given = {f"tdma-s{size}": {1: float(count)} for size, count in counts.items()}
        assert judged(claim.judge, results_of("models", given, scale=scale)).verdict is HOLDS
        given["tdma-s5"] = {1: 1.0}
        assert judged(claim.judge, results_of("models", given, scale=scale)).verdict is FAILS


def test_runs_that_would_be_the_same_are_made_once() -> None:
    for name, devices, computes in (("seed1-mnist-a", 100, 50), ("seed1-cifar10", 20, 4)):
        labels = [method.label for method in registry.find(name).parts[0].methods]
        sizes = {int(each.partition("-s")[2]) for each in labels if each.startswith("tdma")}
        free = {f"idfl-s{size}" for size in sizes if Tdma(devices, size, 1, computes).auto_delay}
        assert {each for each in labels if each.startswith("idfl")} == free
    ages = {(each.size, each.computes): each for each in tdma.cells(registry.find("seed1-map"))}
    assert (ages[1, 4].age, ages[1, 4].least, ages[1, 20].least) == (19, 2, 10)
    assert (ages[5, 20].age, ages[5, 20].least, ages[5, 20].kinds) == (3, 3, ("tdma",))


@pytest.mark.parametrize("age", [0, 1, 9, 25])
def test_the_bound_separates_stable_from_unstable_recursions(age: int) -> None:
    """w_{k+1} = w_k - kappa lambda w_{k-d}, iterated."""
    bound = tdma.linear_bound(age)
    assert tdma.linear_bound(0) == pytest.approx(2.0) and bound > 0
    for factor, grows in ((0.95, False), (1.05, True)):
        past = [1.0] * (age + 1)
        for _ in range(4000):
            past = [*past[1:], max(min(past[-1] - factor * bound * past[0], 1e30), -1e30)]
        assert (max(map(abs, past)) > 10.0) is grows


# ------------------------------------------------------------------ curvature
@pytest.mark.parametrize("spectrum", [[5.0, 2.0, 1.0, 0.5], [0.1, -4.0, 1.0], [0.0, 0.0]])
def test_power_iteration_finds_the_eigenvalue_of_largest_magnitude(spectrum: list[float]) -> None:
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.normal(size=(len(spectrum), len(spectrum))))[0]
    matrix = torch.tensor(basis @ np.diag(spectrum) @ basis.T, dtype=torch.float32)
    found = measures.largest_eigenvalue(lambda vector: matrix @ vector, len(spectrum))
    assert found == pytest.approx(max(spectrum, key=abs), rel=1e-2, abs=1e-6)
    assert measures.largest_eigenvalue(lambda vector: vector * float("nan"), 3) is None


def test_the_product_is_that_with_the_hessian_of_the_mean_loss() -> None:
    """Least squares: the Hessian of mean (w x - y)^2 / 2 is the mean of x x^T."""
    workspace = Workspace(lambda: nn.Linear(3, 1, bias=False))
    inputs = torch.randn(600, 3, generator=torch.Generator().manual_seed(2))
    inputs *= torch.tensor([3.0, 1.0, 0.5])

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 0.5 * (outputs[:, 0] - targets).pow(2).mean()

    weights = flat(workspace.model)
    product = measures.hessian_product(workspace, weights, inputs, torch.zeros(600), loss)
    hessian = inputs.T @ inputs / 600
    for column in torch.eye(3):
        assert torch.allclose(product(column), hessian @ column, atol=1e-5)
    assert np.array_equal(flat(workspace.model), weights)


# ------------------------------------------------------------------ measures of a run
def left(run: Path, summary: Mapping[str, Any], events: list[dict], **tables: str) -> Path:
    """Write what a made-up run leaves; return its directory."""
    (run / "summary.json").write_text(json.dumps(summary))
    (run / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    for name, text in tables.items():
        (run / f"{name}.csv").write_text(text)
    return run


def told(run: Path, *names: str) -> dict[str, float | None]:
    return {name: MEASURES[name](run) for name in names}


def update(t: float, numbers: Mapping[str, float], values: Mapping[str, float]) -> dict[str, Any]:
    return {
        "t": t,
        "event": "update_arrived",
        "edge": "e0",
        "numbers": {"steps": 10.0, **numbers},
        "decisions": [{"do": "report", "values": values, "edge": "e0"}],
    }


OF_UPDATES = {
    "beta_mid": 0.25,  # of .2 and .3
    "alpha_mid": 0.5,  # of .5, .5 and .7
    "staleness_share_mid": 0.5,  # of 1 - .1/.4, 1 - .1/.2 and 1 - .3/.4
    "controls_moved": pytest.approx(0.4),  # lambda: 1 to 1.4
    "request_share": pytest.approx(0.4),  # of .4, .2, .4 and .6
    "staleness_median": 7.0,
    "staleness_before": 8.0,
    "staleness_after": 3.0,
    "refresh_point_mean": 1.75,
    "newer_share": 0.8,
    "waiting_mean_s": 0.5,
    "down_MB": 3.0,
    "extra_down_MB": 1.0,
}


def test_measures_of_merging(tmp_path: Path) -> None:
    """A run of 100 s; only the updates from 40 to 60 s are mid-run."""
    merged = {"merged": 1.0, "merge_step": 4.0}
    said = {"alpha": 0.5, "xi": 0.4, "lambda": 1.0, "sigma": 0.5, "iota": 0.1}
    events = [
        update(10.0, {**merged, "beta": 0.9}, {**said, "xi": 0.1}),
        update(40.0, {**merged, "beta": 0.2, "merge_step": 2.0}, said),
        update(50.0, {"merged": 0.0}, {**said, "xi": 0.2}),
        update(60.0, {**merged, "beta": 0.3}, {**said, "iota": 0.3, "alpha": 0.7}),
        update(61.0, {**merged, "beta": 0.01, "merge_step": 6.0}, {**said, "lambda": 1.4}),
    ]
    summary = {
        "emulated_s": 100.0,
        "staleness": {"0": 1, "2": 1, "7": 3},
        "bytes_down": 3_000_000,
        "dissemination": {
            "requests": 5,
            "newer": 4,
            "refresh_points": {"1": 3, "4": 1},
            "extra_bytes_down": 1_000_000,
            "waiting_mean_s": 0.5,
            "staleness_before": {"mean": 8.0, "median": 8},
            "staleness_after": {"mean": 3.0, "median": 3},
        },
    }
    (tmp_path / "none").mkdir()
    assert told(left(tmp_path, summary, events), *OF_UPDATES) == OF_UPDATES
    nothing = {"emulated_s": 100.0, "staleness": {}, "bytes_down": 0}
    found = told(left(tmp_path / "none", nothing, [update(50.0, {}, {})]), *OF_UPDATES)
    assert found == {**dict.fromkeys(OF_UPDATES), "down_MB": 0.0, "extra_down_MB": 0.0}


def test_measures_of_tdma_and_distillation(tmp_path: Path) -> None:
    losses = [2.3, 2.0, 1.0, 0.5, 0.7, 0.6]
    head = "version,emulated_s,train_loss\n"
    rows = "".join(f"{k},{k}.0,{loss}\n" for k, loss in enumerate(losses))
    values = [
        {"end_slot": 7, "staleness_most": 3.0, "checkpoints": 3.0, "alpha": 0.4},
        {"checkpoints": 5.0},
    ]
    run = left(tmp_path, {}, [update(0.7, {}, each) for each in values], metrics=head + rows)
    names = ("roughness", "mean_loss", "staleness", "checkpoints", "alpha", "long_accuracy")
    expected = [(0.2 + 0.1) / 2, sum(losses) / 6, 3.0, 5.0, 0.4, None]
    assert list(told(run, *names).values()) == [each and pytest.approx(each) for each in expected]
    run = left(tmp_path, {}, [], metrics=f"{head}0,0.0,2.3\n1,1.0,nan\n")
    assert told(run, *names[:4]) == dict.fromkeys(names[:4])


def test_the_majority_class_follows_from_the_accuracies_of_the_labels(tmp_path: Path) -> None:
    """660 of 1,000 test pairs have label 1."""
    summary = {"final_accuracy": 0.72, "bytes_up": 3_000_000, "updates_received": 6}
    rows = f"version,emulated_s,accuracy,f1\n0,0.0,{0.34 + 0.66 * 0.04},\n2,9.0,0.72,0.81\n"
    per_label = "version,emulated_s,label_0,label_1\n0,0.0,1.0,0.04\n2,9.0,0.3,0.9\n"
    run = left(tmp_path, summary, [], metrics=rows, labels=per_label)
    assert list(told(run, "majority", "above_majority", "f1", "update_mb").values()) == [
        pytest.approx(0.66), pytest.approx(0.06), 0.81, 0.5,
    ]  # fmt: skip
    alike = "version,emulated_s,label_0,label_1\n0,0.0,0.4,0.4\n"
    run = left(tmp_path, summary, [], metrics=rows, labels=alike)
    assert told(run, "majority", "above_majority") == {"majority": None, "above_majority": None}


@pytest.mark.parametrize(
    ("gaps", "expected"), [((1, 2, 3), 1.0), ((3, 2, 1), -1.0), ((2, 2, 2), None), ((1, 2), None)]
)
def test_measures_of_gradients(
    gaps: tuple[int, ...], expected: float | None, tmp_path: Path
) -> None:
    steps = [
        {"aggregated": float(count), "weighted_staleness": float(gap)}
        for count, gap in enumerate(gaps, 1)
        for _ in range(measures.LEAST_STEPS)
    ]
    rare = {"aggregated": 9.0, "weighted_staleness": -50.0}
    found = measures.linearity_of([*steps, rare])
    assert found == (None if expected is None else pytest.approx(expected)), "nine is too rare"
    section = {"tau_ave": 2.0, "clipped_share": None, "predominant": {"5": 3, "6": 1}}
    run = left(tmp_path, {"aggregation": section}, [])
    names = ("tau_ave", "clipped_share", "share_of_few", "linearity")
    assert list(told(run, *names).values()) == [2.0, None, 0.75, None]


def test_a_gain_somewhere_is_not_refuted_by_the_cells_that_were_run() -> None:
    entry = registry.find("seed0-map")
    (claim,) = [each for each in entry.claims if "merging gains somewhere" in each.text]
    for gain, of_all, of_some in ((0.0, Verdict.equal, Verdict.missing), (0.1, HOLDS, HOLDS)):

        def number(part: str, method: str, column: str, seed: int, gain: float = gain) -> float:
            return 0.5 + 0.0001 * seed + gain * method.startswith("with-")

        whole = made_up(entry, number)
        assert judged(claim.judge, whole).verdict is of_all
        some = replace(whole, rows=[row for row in whole.rows if row.part != "work30-dirichlet10"])
        assert judged(claim.judge, some).verdict is of_some


def test_gains_of_parts_under_two_versions_of_the_rule_are_not_compared() -> None:
    entry = registry.find("seed0-fig8")
    (claim,) = [each for each in entry.claims if "The advantage" in each.text]
    whole = made_up(entry, lambda part, method, column, seed: 0.5 + 0.01 * seed)
    rows = [replace(row, rule=1 if row.part == "links50" else 2) for row in whole.rows]
    assert judged(claim.judge, whole).verdict is not Verdict.missing
    assert judged(claim.judge, replace(whole, rows=rows)).verdict is Verdict.missing


def test_a_loss_after_some_rounds_is_that_of_the_nearest_evaluation_that_was_kept() -> None:
    entry = registry.find("seed1-mnist-a")
    curves = [
        CurveRow(Scale.paper, "main", "tdma-s1", seed, 1.0 * at, at, None, None, float(at))
        for seed in (1, 2)
        for at in (0, 475, 950)
    ]
    losses, at = tdma.near_version(Results(entry, Scale.paper, (), curves), "tdma-s1", 331.0)
    assert losses == {1: 475.0, 2: 475.0} and at == 475.0
