"""The entries on timely dissemination: their plans, their measures, and their judges on invented
results.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from reproduced import row_of
from reproduction import registry
from reproduction.entries import _dissemination as shared
from reproduction.entries import dissemination, dissemination_causes, dissemination_map
from reproduction.entries._dissemination_measures import MEASURES
from reproduction.entry import Entry, Scale, Verdict
from reproduction.plans import PartPlan
from reproduction.results import CurveRow, NoResults, Results
from reproduction.rules import judged

SEEDS = (1, 2, 3)


# ------------------------------------------------------------------ plans
def test_all_methods_have_equal_time_and_equal_tuning(tmp_path: Path) -> None:
    for reading, entry in zip(shared.READINGS, dissemination.ENTRIES):
        (main, *_) = entry.parts
        plan = PartPlan(entry, main, Scale.paper, tmp_path)
        sweep = plan.sweep(lambda key: None)
        assert {len(its) for method, its in sweep.first if method.axes} == {8}
        runs = plan.table({})
        assert {run.run.experiment.stop.emulated_s for run in runs} == {reading.budget_s}


@pytest.mark.parametrize("reading", shared.READINGS, ids=lambda reading: reading.key)
def test_the_readings_differ_in_what_an_epoch_is(reading: Any, tmp_path: Path) -> None:
    """Both take 40 s on the fastest device and 200 s on the slowest."""
    entry = registry.find(f"seed0-table4-{reading.key}")
    whole = PartPlan(entry, entry.part("main"), Scale.paper, tmp_path).experiment()
    training, devices = whole.training, whole.devices
    samples = 5 * (600 if training.batches_per_epoch is None else 32)
    assert (training.epochs, training.batch_size, training.learning_rate) == (5, 32, 0.005)
    assert training.batches_per_epoch == (1 if reading is shared.BATCH else None)
    assert samples / (devices.samples_per_s or 0) == 40.0 and devices.slowest_ratio == 5.0


# ------------------------------------------------------------------ judges
Numbers = Mapping[str, tuple[float, ...]]  # column -> a number per seed


def made(entry: Entry, part: str, methods: Mapping[str, Numbers]) -> Results:
    """Return invented results of one part."""
    return Results(entry, Scale.paper, rows_of(part, methods))


def rows_of(part: str, methods: Mapping[str, Numbers]) -> list[Any]:
    nothing = dict.fromkeys(MEASURES)
    return [
        row_of(
            method,
            seed,
            {**nothing, "emulated_s": 100.0, **{name: each[at] for name, each in given.items()}},
            part=part,
        )
        for method, given in methods.items()
        for at, seed in enumerate(SEEDS)
    ]


BATCH = registry.find("seed0-table4-batch")


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ((4.0, 4.1, 3.9), Verdict.holds),
        ((9.0, 9.1, 8.9), Verdict.fails),  # 1 to 1.2 above
        ((8.0, 4.0, 12.0), Verdict.unknown),
    ],
)
def test_a_merge_reduces_staleness(after: tuple[float, ...], verdict: Verdict) -> None:
    before = {"staleness_before": (8.0, 7.9, 7.9), "staleness_after": after}
    results = made(BATCH, "main", {"fedasmu": before})
    found = shared.falls(results, "fedasmu", "staleness_before", "staleness_after")
    assert found.verdict is verdict


def test_merging_counts_from_a_tenth_on() -> None:
    for betas, verdict in (
        ((0.30, 0.31, 0.32), Verdict.holds),
        ((0.02, 0.03, 0.02), Verdict.fails),
        ((0.05, 0.10, 0.15), Verdict.unknown),
    ):
        results = made(BATCH, "main", {"fedasmu": {"beta_mid": betas}})
        assert shared.merging_counts(results, "fedasmu").verdict is verdict
        results = made(BATCH, "main", {"fedasmu": {"staleness_share_mid": betas}})
        assert shared.weight_follows_staleness(results, "fedasmu").verdict is verdict


def test_fresh_models_at_most_double_the_downlink() -> None:
    for extra, verdict in ((50.0, Verdict.holds), (60.0, Verdict.fails)):
        given = {"down_MB": (100.0,) * 3, "extra_down_MB": (extra,) * 3}
        found = shared.one_more_model(made(BATCH, "main", {"fedasmu": given}), "fedasmu")
        assert found.verdict is verdict
    assert "60 % of the downlink" in found.ours
    with pytest.raises(NoResults, match="says what it sent down"):
        shared.one_more_model(made(BATCH, "main", {"fedasmu": {}}), "fedasmu")


def test_an_advantage_that_grows() -> None:
    """Gains of .02 at links50, and of .05, .02 or .021 at links100."""
    entry = registry.find("seed0-fig8")
    for later, verdict in (
        ((0.65, 0.651, 0.649), Verdict.holds),
        ((0.61, 0.611, 0.609), Verdict.fails),
        ((0.61, 0.65, 0.62), Verdict.unknown),
    ):
        rows = [
            *rows_of("links50", {"fedasmu": {"a": (0.62,) * 3}, "fedasync": {"a": (0.6,) * 3}}),
            *rows_of("links100", {"fedasmu": {"a": later}, "fedasync": {"a": (0.6,) * 3}}),
        ]
        found = shared.grows(
            Results(entry, Scale.paper, rows), "fedasmu", "fedasync", "a", ("links50", "links100")
        )
        assert found.verdict is verdict


def test_the_conference_paper_takes_the_journals_runs() -> None:
    """It holds in the reading with the better runs, although the other one has none."""
    batch = made(
        BATCH,
        "main",
        {
            "fedasmu": {shared.ACCURACY: (0.80, 0.81, 0.80)},
            "fedasync": {shared.ACCURACY: (0.70, 0.71, 0.705)},
            "fedbuff": {shared.ACCURACY: (0.72, 0.73, 0.72)},
        },
    )

    def load(name: str) -> Results:
        if name != BATCH.name:
            raise NoResults("no runs")
        return batch

    first = dissemination.CONFERENCE.claims[0]
    results = Results(dissemination.CONFERENCE, Scale.paper, load=load)
    assert judged(first.judge, results).verdict is Verdict.holds


# ------------------------------------------------------------------ the linear regime
def losses(distance: float, method: str) -> list[CurveRow]:
    """Return losses that fall from 2 to 1, plus a distance that differs a little by seed."""
    return [
        CurveRow(
            Scale.paper,
            "main",
            method,
            seed,
            1e3 * at,
            at,
            0.5,
            2 - at / 20 + distance * (1 + seed / 50),
            None,
        )
        for seed in SEEDS
        for at in range(21)
    ]


@pytest.mark.parametrize(
    ("same", "less", "verdict"),
    [
        (0.2, 0.01, Verdict.holds),  # the losses of the smaller alpha
        (0.01, 0.2, Verdict.fails),
        (0.1, 0.1, Verdict.fails),  # as far from both
    ],
)
def test_a_merge_like_a_smaller_alpha(same: float, less: float, verdict: Verdict) -> None:
    causes = dissemination_causes
    curves = [
        *losses(0.0, causes.MERGED),
        *losses(same, causes.SAME),
        *losses(less, causes.LESS),
    ]
    found = causes.like_a_smaller_alpha(Results(causes.LINEAR, Scale.paper, (), curves))
    assert found.verdict is verdict


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


# ------------------------------------------------------------------ the map
def cells(gains: Mapping[str, tuple[float, ...]]) -> Results:
    """Return a map whose parts gain ``gains``; without merging, other weights are better."""
    rows = []
    for part, gain in gains.items():
        column = shared.ACCURACY
        rows += rows_of(
            part,
            {
                "with": {column: tuple(0.7 + each for each in gain)},
                **{name: {column: (0.5, 0.5, 0.5)} for name in dissemination_map.WITH[1:]},
                "without": {column: (0.6, 0.6, 0.6), "staleness_median": (9.0, 9.0, 9.0)},
                **{name: {column: (0.7, 0.7, 0.7)} for name in dissemination_map.WITHOUT[1:]},
            },
        )
    return Results(dissemination_map.MAP, Scale.paper, rows)


def test_a_gain_is_that_over_the_best_weight() -> None:
    found = dissemination_map.gain(cells({"work10-dirichlet0.1": (0.02, 0.03, 0.02)}), BASE)
    assert found.mean == pytest.approx(0.07 / 3)


BASE = dissemination_map.cell(*dissemination_map.BASE)


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ({BASE: (0.02, 0.03, 0.02), "work5-dirichlet10": (-0.1, -0.1, -0.11)}, Verdict.holds),
        ({BASE: (0.001, 0.002, 0.001)}, Verdict.fails),  # surely below a point
        ({BASE: (0.001, 0.03, 0.02)}, Verdict.unknown),
        ({BASE: (-0.02, -0.03, -0.02)}, Verdict.fails),
        ({BASE: (-0.02, 0.05, 0.02)}, Verdict.unknown),
    ],
)
def test_a_gain_somewhere(gains: Mapping[str, tuple[float, ...]], verdict: Verdict) -> None:
    assert dissemination_map.somewhere(cells(gains)).verdict is verdict


def test_the_maps_figure_has_a_point_for_each_cell_with_runs() -> None:
    results = cells(
        {BASE: (0.02, 0.03, 0.02), "point4": (0.0, 0.0, 0.0), "down24": (0.0, 0.0, 0.0)}
    )
    stale, asked, down = dissemination_map.lines(results).values()
    assert [(point.x, round(point.y, 4)) for point in stale["Dirichlet 0.1"]] == [(9.0, 0.0233)]
    assert stale["Dirichlet 10"] == []
    assert [point.x for point in asked["Dirichlet 0.1"]] == [0.4, 0.8]
    assert [point.x for point in down["Dirichlet 0.1"]] == [0.0, 0.2]


def test_a_rising_gain() -> None:
    results = cells({"one": (0.0, 0.0, 0.0), "other": (0.02, 0.03, 0.02)})
    given = Results(_named("one", "other"), Scale.paper, results.rows)
    assert dissemination_map.rises(given, "one", "other").verdict is Verdict.holds
    assert dissemination_map.rises(given, "other", "one").verdict is Verdict.fails


def _named(*names: str) -> Entry:
    """Return an entry with parts of the map under other names."""
    from dataclasses import replace

    part = dissemination_map.CELLS[0]
    return replace(dissemination_map.MAP, parts=tuple(replace(part, name=name) for name in names))


# ------------------------------------------------------------------ measures
def update(t: float, numbers: Mapping[str, float], values: Mapping[str, float]) -> dict[str, Any]:
    return {
        "t": t,
        "event": "update_arrived",
        "edge": "e0",
        "numbers": {"steps": 10.0, **numbers},
        "decisions": [{"do": "report", "values": values, "edge": "e0"}],
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run of 100 s; only the updates from 40 to 60 s are mid-run."""
    merged = {"merged": 1.0, "merge_step": 4.0}
    said = {"alpha": 0.5, "xi": 0.4, "lambda": 1.0, "sigma": 0.5, "iota": 0.1}
    events = [
        update(10.0, {**merged, "beta": 0.9}, {**said, "xi": 0.1}),
        update(40.0, {**merged, "beta": 0.2, "merge_step": 2.0}, said),
        update(50.0, {"merged": 0.0}, {**said, "xi": 0.2}),
        update(60.0, {**merged, "beta": 0.3}, {**said, "iota": 0.3, "alpha": 0.7}),
        update(61.0, {**merged, "beta": 0.01, "merge_step": 6.0}, {**said, "lambda": 1.4}),
    ]
    (tmp_path / "events.jsonl").write_bytes(b"".join(orjson.dumps(e) + b"\n" for e in events))
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
    (tmp_path / "summary.json").write_bytes(orjson.dumps(summary))
    return tmp_path


def test_measures_of_a_run_by_hand(run: Path) -> None:
    assert {name: measure(run) for name, measure in MEASURES.items()} == {
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


def test_a_run_without_requests_has_no_numbers_of_merges(run: Path) -> None:
    (run / "events.jsonl").write_bytes(
        orjson.dumps(update(50.0, {}, {})) + b"\n" + orjson.dumps({"t": 1.0, "event": "other"})
    )
    summary = {"emulated_s": 100.0, "staleness": {}, "bytes_down": 0}
    (run / "summary.json").write_bytes(orjson.dumps(summary))
    found = {name: measure(run) for name, measure in MEASURES.items()}
    assert found == {**dict.fromkeys(MEASURES), "down_MB": 0.0, "extra_down_MB": 0.0}
