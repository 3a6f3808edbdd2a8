"""The TDMA entries: judges on invented results, curvature against known spectra, the bound."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from reproduced import curve_rows, entry_of, part_of, results_of
from reproduction.entries import _tdma_causes as causes
from reproduction.entries import _tdma_figures as figures
from reproduction.entries import _tdma_judges as judges
from reproduction.entries import _tdma_map as maps
from reproduction.entries import _tdma_measures as measures
from reproduction.entries import _tdma_runs as runs
from reproduction.entries import _tdma_shared as shared
from reproduction.entry import Finding, Scale, Verdict
from reproduction.results import CurveRow, NoResults, Results
from torch import nn

from edgefl.models.workspace import Workspace, flat
from emulator.tdma.closed_form import Tdma

LOSS = judges.LOSS
OF_OTHER_DATA = {"large S is faster per round", "large S is steadier"}  # curves, a measure


def three(value: float, step: float = 0.01) -> dict[int, float]:
    """Return three seeds around a value."""
    return {1: value - step, 2: value, 3: value + step}


def of_paper(without: dict[int, float], with_delay: dict[int, float]) -> Results:
    """Return results in which S has these late losses; both dictionaries: S -> loss."""
    numbers = {f"tdma-s{size}": three(loss) for size, loss in without.items()}
    numbers |= {f"idfl-s{size}": three(loss) for size, loss in with_delay.items()}
    return results_of(LOSS, numbers)


PAPER = of_paper(
    {1: 2.3, 5: 1.9, 10: 1.2, 25: 0.9, 50: 0.5, 100: 0.8}, {1: 0.6, 5: 0.5, 10: 0.2, 25: 0.4}
)


# ------------------------------------------------------------------ judges
@pytest.mark.parametrize(
    "short", [each.short for each in figures.STATEMENTS if each.short not in OF_OTHER_DATA]
)
def test_results_as_in_the_paper_make_its_statements_hold(short: str) -> None:
    (statement,) = (each for each in figures.STATEMENTS if each.short == short)
    assert statement.judge(PAPER).verdict is Verdict.holds


def test_results_as_under_reading_a_do_not() -> None:
    """Best S 10 without delay and 5 with it; the optimum falls all the same."""
    given = of_paper(
        {1: 2.3, 5: 1.0, 10: 0.43, 25: 0.75, 50: 1.1, 100: 1.6},
        {1: 0.9, 5: 0.2, 10: 0.3, 25: 0.6},
    )
    found = {each.short: each for each in figures.STATEMENTS}
    verdicts = {
        short: found[short].judge(given).verdict
        for short in (
            "best S without delay is 50",
            "best S with delay is 10",
            "best S becomes smaller",
        )
    }
    assert list(verdicts.values()) == [Verdict.fails, Verdict.fails, Verdict.holds]


def test_a_trend_is_a_rank_correlation_seed_by_seed() -> None:
    assert judges.correlation([1, 5, 10], [3.0, 2.0, 1.0]) == -1.0
    assert judges.correlation([1, 5, 10], [1.0, 1.0, 1.0]) == 0.0
    assert judges.correlation([1, 2, 3], [1.0, 1.0, 2.0]) == pytest.approx(3**0.5 / 2)
    falling = {1.0: three(3.0), 5.0: three(2.0), 10.0: three(1.0)}
    assert judges.falls(falling, "x").verdict is Verdict.holds
    rising = {-x: values for x, values in falling.items()}
    assert judges.falls(rising, "x").verdict is Verdict.fails
    mixed = {1.0: {1: 1.0, 2: 3.0}, 5.0: {1: 2.0, 2: 2.0}, 10.0: {1: 3.0, 2: 1.0}}
    assert judges.falls(mixed, "x").verdict is Verdict.unknown
    assert judges.falls({1.0: three(1.0)}, "x").verdict is Verdict.unknown
    assert (
        judges.falls({1.0: {1: 2.0}, 2.0: {1: 1.0}, 3.0: {1: 0.0}}, "x").verdict is Verdict.unknown
    )


def test_models_that_learn_nothing_do_not_count_as_steady() -> None:
    numbers = {
        f"tdma-s{size}": three(loss) for size, loss in ((1, 2.3), (5, 0.5), (10, 0.5), (25, 0.5))
    }
    given = results_of(LOSS, numbers)
    rough = {"tdma-s1": 0.0, "tdma-s5": 0.3, "tdma-s10": 0.2, "tdma-s25": 0.1}
    for row in given.rows:
        row.numbers["roughness"] = rough[row.method]  # type: ignore[index]  # a dictionary here
    family = {float(size): f"tdma-s{size}" for size in (1, 5, 10, 25)}
    found = judges.steadier(given, family)
    assert found.verdict is Verdict.holds and "not learning: S = 1" in found.why


def test_the_loss_of_a_round_is_that_of_the_latest_evaluation() -> None:
    """A model is constant between its versions, and what was not evaluated is not known."""
    entry = entry_of(part_of(["a"]))
    points = [(0, 2.0), (100, 1.0), (200, 0.5)]
    rows = [
        CurveRow(Scale.paper, "main", "a", 1, float(version), version, None, None, loss)
        for version, loss in points
    ]
    results = Results(entry, Scale.paper, (), rows)
    assert judges.at_version(results, "a", 50) == {1: 2.0}
    assert judges.at_version(results, "a", 100) == {1: 1.0}
    assert judges.at_version(results, "a", 900) == {1: 0.5}
    with pytest.raises(NoResults):
        judges.at_version(Results(entry, Scale.paper, (), curve_rows("a", 1)), "a", 50)


def test_a_run_that_diverged_has_the_loss_of_a_guess() -> None:
    given = results_of(LOSS, {"a": {1: None, 2: 0.5}})
    assert judges.losses(given, "a") == {1: pytest.approx(2.302585), 2: 0.5}


def test_one_reading_must_give_all_statements() -> None:
    good, bad, open_one = (
        Finding("", each) for each in (Verdict.holds, Verdict.fails, Verdict.unknown)
    )
    one = judges.one_for_all({"A": {"x": good, "y": bad}, "B": {"x": good, "y": good}})
    assert one.verdict is Verdict.holds and "A: 1 of 2" in one.ours and "against it: y" in one.why
    none = judges.one_for_all({"A": {"x": bad}, "B": {"x": bad}})
    assert none.verdict is Verdict.fails
    assert judges.one_for_all({"A": {"x": bad}, "B": {"x": open_one}}).verdict is Verdict.unknown
    partly = judges.one_for_all({"A": {"x": bad}}, ["B"])
    assert partly.verdict is Verdict.unknown and "Not run: reading B" in partly.why


# ------------------------------------------------------------------ curvature and the bound
@pytest.mark.parametrize("spectrum", [[5.0, 2.0, 1.0, 0.5], [0.1, -4.0, 1.0], [0.0, 0.0]])
def test_power_iteration_finds_the_eigenvalue_of_largest_magnitude(spectrum: list[float]) -> None:
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.normal(size=(len(spectrum), len(spectrum))))[0]
    matrix = torch.tensor(basis @ np.diag(spectrum) @ basis.T, dtype=torch.float32)
    found = measures.largest_eigenvalue(lambda vector: matrix @ vector, len(spectrum))
    assert found == pytest.approx(max(spectrum, key=abs), rel=1e-2, abs=1e-6)


def test_no_eigenvalue_of_what_is_not_finite() -> None:
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
    found = measures.largest_eigenvalue(product, 3)
    assert found == pytest.approx(float(torch.linalg.eigvalsh(hessian)[-1]), rel=1e-2)
    assert np.array_equal(flat(workspace.model), weights)


@pytest.mark.parametrize("age", [0, 1, 2, 5, 9, 25])
def test_the_bound_separates_stable_from_unstable_recursions(age: int) -> None:
    """w_{k+1} = w_k - kappa lambda w_{k-d}, iterated."""
    bound = measures.linear_bound(age)
    assert measures.linear_bound(0) == pytest.approx(2.0) and bound > 0
    for factor, grows in ((0.95, False), (1.05, True)):
        past = [1.0] * (age + 1)
        for _ in range(4000):
            past = [*past[1:], max(min(past[-1] - factor * bound * past[0], 1e30), -1e30)]
        assert (max(map(abs, past)) > 10.0) is grows


# ------------------------------------------------------------------ measures of a run
def test_measures_of_a_finished_run(tmp_path: Path) -> None:
    losses = [2.3, 2.0, 1.0, 0.5, 0.7, 0.6]
    rows = "".join(f"{k},{k}.0,{loss}\n" for k, loss in enumerate(losses))
    (tmp_path / "metrics.csv").write_text(f"version,emulated_s,train_loss\n{rows}")
    assert measures.roughness(tmp_path) == pytest.approx((0.2 + 0.1) / 2)
    assert measures.mean_loss(tmp_path) == pytest.approx(sum(losses) / 6)
    report = {"do": "report", "values": {"end_slot": 7, "staleness_most": 3.0}}
    event = json.dumps({"t": 0.7, "event": "update_arrived", "decisions": [report]})
    (tmp_path / "events.jsonl").write_text(event + "\n")
    assert measures.staleness(tmp_path) == 3.0
    (tmp_path / "metrics.csv").write_text("version,emulated_s,train_loss\n0,0.0,2.3\n1,1.0,nan\n")
    assert measures.roughness(tmp_path) is None and measures.mean_loss(tmp_path) is None
    (tmp_path / "events.jsonl").write_text("")
    assert measures.staleness(tmp_path) is None


# ------------------------------------------------------------------ the entries
def test_runs_that_would_be_the_same_are_made_once() -> None:
    for sizes, data, devices, computes in (
        (shared.MNIST_SIZES, "mnist", 100, 50),
        (shared.CIFAR_SIZES, "cifar10", 20, 4),
    ):
        free = {size for size in sizes if Tdma(devices, size, 1, computes).auto_delay}
        assert free == set(sizes) - set(shared.NO_DELAY[data])
        names = [each.label for each in shared.methods(sizes, data)]
        assert len(set(names)) == len(names) == len(sizes) + len(free)


def test_table_1_is_compared_at_the_papers_scale_and_with_the_closed_form_else() -> None:
    for scale, slots in runs.SLOTS.items():
        counts = {size: Tdma(20, size, 1, 4).models_by(slots) for size in shared.CIFAR_SIZES}
        given = {f"tdma-s{size}": {1: float(count)} for size, count in counts.items()}
        assert runs.table_1(results_of("models", given, scale=scale)).verdict is Verdict.holds
        given["tdma-s5"] = {1: 1.0}
        assert runs.table_1(results_of("models", given, scale=scale)).verdict is Verdict.fails


def test_the_bound_is_compared_with_what_learns() -> None:
    """lambda = 10: eta lambda = .1 is below the bound up to d = 15."""
    parts = [
        part_of(causes.CURVED, name) for name in ("standard-500", "standard-2000", "standard-10000")
    ]
    rows = [
        row
        for part in parts
        for row in results_of("curvature", {method: three(10.0) for method in causes.CURVED}).rows
    ]
    named = [
        type(row)(row.scale, part.name, row.method, row.role, row.seed, row.setting, row.numbers)
        for part, chunk in zip(parts, (rows[:6], rows[6:12], rows[12:]))
        for row in chunk
    ]
    learning = of_paper(
        {1: 2.3, 5: 2.3, 10: 0.4, 25: 0.5, 50: 0.6, 100: 0.7}, {1: 2.3, 5: 0.2, 10: 0.2, 25: 0.3}
    )
    given = Results(entry_of(*parts), Scale.paper, named, (), lambda name: learning)
    found = causes.predicts("A", given)
    assert found.verdict is Verdict.holds and found.ours == "right for 10 of 10"
    all_learn = of_paper(dict.fromkeys(shared.MNIST_SIZES, 0.4), dict.fromkeys((1, 5, 10, 25), 0.4))
    given = Results(entry_of(*parts), Scale.paper, named, (), lambda name: all_learn)
    found = causes.predicts("A", given)
    assert found.verdict is Verdict.fails and "updates 99 rounds old" in found.why


def test_cells_of_the_map_know_their_ages() -> None:
    ages = {(cell.size, cell.computes): (cell.age, cell.least) for cell in maps.CELLS}
    assert ages[1, 4] == (19, 2) and ages[1, 20] == (19, 10) and ages[5, 20] == (3, 3)
    assert maps.kinds(maps.Cell(5, 20)) == ("tdma",)
