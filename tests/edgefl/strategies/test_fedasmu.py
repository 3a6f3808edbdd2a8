"""FedASMU's server, event by event: trigger, bound, eqs. 1 and 2, fresher models, kept models; its
ablations; bad options.
"""

from __future__ import annotations

import gc
import importlib
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Desk, S, Server, experiment, make, vector
from merging import PATH, deliver
from paths import BENCHMARKS
from pydantic import ValidationError

from edgefl.errors import UserError
from edgefl.loading.names import strategy_warnings
from edgefl.protocol.messages import FreshRequest, Joined
from edgefl.strategies.base.catalog import load, strategy_names
from edgefl.strategies.base.decisions import SendFresh
from edgefl.strategies.base.events import EdgeLost, FreshRequested
from edgefl.strategies.base.local_rule import LocalRule
from edgefl.strategies.dissemination.device import LearningRateRule, Refresh
from edgefl.strategies.fedasmu import FedASMU, FedASMUOptions
from edgefl.strategies.fedasmu_0 import FedASMU0
from edgefl.strategies.fedasmu_da import FedASMUDA
from edgefl.strategies.fedasmu_fa import FedASMUFA
from edgefl.streams import Streams
from edgefl.vector_store import VectorStore
from edgefl.vector_terms import cosine, inner, mix_keeping
from edgefl.vectors import BLOCK, Layout, LayoutEntry, aligned

ONE = {
    "mu_alpha": 1.0,
    "lambda0": 0.5,
    "iota0": 0.5,
    "eta_lambda": 0.0,
    "eta_sigma": 0.0,
    "eta_iota": 0.0,
}


def replacing(kind: type = FedASMU, count: int = 2, **options: Any) -> Server:
    return Server(
        make(
            kind,
            dispatch="replace",
            concurrency=count,
            **(ONE if kind in (FedASMU, FedASMUFA) else {}) | options,
        )
    )


# ------------------------------------------------------------------ eqs. 1 and 2
def test_an_arriving_model_is_mixed_in_by_eq_2() -> None:
    """a: t = 1, s = 1: xi = 1, alpha = 1/2. b: t = 2, s = 2, sigma = 1/2: xi = 0.5 / (sqrt(2)
    sqrt(2)) + 0.5 = 0.75, alpha = 3/7.
    """
    story = replacing()
    story.start("a", "b")
    assert deliver(story, "a", (4, 8, 0)) == {
        "alpha": 0.5,
        "xi": 1.0,
        "lambda": 0.5,
        "sigma": 0.5,
        "iota": 0.5,
        "gap": 0.0,
        "product": 0.0,
        "vectors": 1,
    }
    assert story.weights == [2, 4, 0]
    values = deliver(story, "b", (9, 4, 7))
    assert (values["gap"], values["xi"], values["alpha"]) == (
        1.0,
        pytest.approx(0.75),
        pytest.approx(3 / 7),
    )
    assert story.weights == pytest.approx([5, 4, 3])


def test_the_report_stands_before_the_version_that_it_tells_of() -> None:
    story = replacing(FedASMU0, alpha=0.5)
    story.start("a", "b")
    lines = story.deliver("a", 4, 8, 0)
    assert lines[:2] == ["report a alpha=0.5 gap=0", "publish 2 4 0"] and lines[2].startswith(
        "assign a <- 2 4 0"
    )


@pytest.mark.parametrize(("tau", "kept"), [(1, 1), (2, 2), (3, 3)])
def test_staleness_beyond_tau_is_discarded(tau: int, kept: int) -> None:
    """Algorithm 1, line 10: s = t - o + 1 > tau. Three start at version 0; their staleness is 1,
    2, 3.
    """
    story = replacing(count=3, tau=tau)
    story.start("a", "b", "c")
    found = [bool(deliver(story, edge, (1, 1, 1))) for edge in "abc"]
    assert found == [number < kept for number in range(3)] and story.version == kept


def test_a_tighter_max_staleness_holds_too() -> None:
    story = replacing(tau=99, max_staleness=0)
    story.start("a", "b")
    assert deliver(story, "a", (1, 1, 1)) and not deliver(story, "b", (1, 1, 1))


@pytest.mark.parametrize(
    "said", [{"learning_rate": 0.0}, {"steps": 0.0}, {"steps": -3.0}, {"learning_rate": -1.0}]
)
def test_a_device_that_says_nonsense_moves_no_controls(said: dict[str, float]) -> None:
    story = replacing(count=1, eta_iota=1.0)
    story.start("a")
    deliver(story, "a", (1, 1, 1))
    assert deliver(story, "a", (5, 5, 5), **said)["iota"] == 0.5


def test_normalisation_buffers_are_mixed_but_no_gradient() -> None:
    """The layout has one trainable element: p uses only that one."""
    layout = Layout(
        (LayoutEntry("w", (1,), 0, "parameter", ""), LayoutEntry("mean", (2,), 1, "buffer", ""))
    )
    for controls in ("device", "shared"):
        options = FedASMUOptions.model_validate(
            ONE
            | {
                "dispatch": "replace",
                "concurrency": 1,
                "most_product": 1e6,
                "controls": controls,
            }
        )
        story = Server(FedASMU(vector(4, 0, 0), layout, options, Streams(1)))
        story.start("a")
        deliver(story, "a", (2, 8, 8))
        assert story.weights == [3, 4, 4]
        assert deliver(story, "a", (3 - PATH, 90, 90))["product"] == pytest.approx(-2, rel=1e-5)


# ------------------------------------------------------------------ the trigger
def test_the_tables_trigger_is_ten_devices_every_ten_seconds() -> None:
    story = Server(make(FedASMU, concurrency=15))
    lines = story.start(*(f"e{number:02d}" for number in range(30)))
    assert len(story.open) == 10 and lines[-1] == "alarm dispatch at 10"
    story.ring(10 * S)
    assert len(story.open) == 15, "min(m', cap - running)"


def test_the_conferences_trigger_is_one_device_every_five_seconds() -> None:
    story = Server(make(FedASMU, clients_per_trigger=1, period_s=5.0, concurrency=3))
    story.start(*(f"e{number:02d}" for number in range(30)))
    for number in range(1, 6):
        assert len(story.open) == min(number, 3)
        assert story.ring(5 * number * S)[-1] == f"alarm dispatch at {5 * number + 5}"


# ------------------------------------------------------------------ fresher models
def ask(story: Server, edge: str) -> SendFresh:
    task, version, _ = story.open[edge]
    (answer,) = story.strategy.handle(FreshRequested(edge, task, version, 6), 0)
    assert isinstance(answer, SendFresh) and (answer.edge, answer.task) == (edge, task)
    return answer


def test_only_a_newer_model_is_sent() -> None:
    """g > o; the array of the version itself, not a copy."""
    story = replacing()
    story.start("a", "b")
    assert ask(story, "b").weights is None
    deliver(story, "a", (4, 8, 0))
    assert ask(story, "b").weights is story.strategy.weights and ask(story, "a").weights is None


def test_ablations_without_merging_have_nothing_newer() -> None:
    for kind in (FedASMUFA, FedASMU0):
        story = replacing(kind)
        story.start("a", "b")
        deliver(story, "a", (4, 8, 0))
        assert ask(story, "b").weights is None


@pytest.mark.parametrize("subtract", [True, False])
def test_the_merges_jump_can_be_left_out_of_the_gradient(subtract: bool) -> None:
    """True gradient 12.5 in x throughout, 8 steps of 0.01, merged after 4 with beta = 1/2; W -
    w_q = -2. The jump would count as training.
    """
    story = replacing(most_product=1e6, subtract_merge=subtract)
    story.start("a", "b")
    deliver(story, "a", (-2, 0, 0))  # w_1 = (-1, 0, 0), and a starts from it
    base = story.open["a"][2]
    deliver(story, "b", (8, 0, 0))
    fresh = ask(story, "a").weights
    assert fresh is not None
    half = vector(12.5 * 0.04, 0, 0)
    values = deliver(
        story,
        "a",
        0.5 * (base - half) + 0.5 * fresh - half,
        merged=1.0,
        beta=0.5,
        merge_step=4.0,
        fresh_version=2.0,
    )
    jump = 0.5 * float(fresh[0] - base[0])
    expected = -2 * 12.5 if subtract else -2 * (0.75 * 12.5 * PATH - jump) / PATH
    assert values["product"] == pytest.approx(expected, rel=1e-5) and story.strategy.sent == {}


# ------------------------------------------------------------------ what is kept
def test_older_versions_are_shared_and_freed_when_no_task_starts_from_them() -> None:
    """Shared mode keeps w_{o-1} with each live w_o, by reference: they are the published arrays."""
    story = replacing(count=3, controls="shared")
    story.start("a", "b", "c")
    published = []
    for _ in range(20):
        deliver(story, "a", (1, 2, 3))
        published.append(weakref.ref(story.strategy.weights))
    steps = story.strategy.weighing.steps
    assert sorted(steps) == [20], (
        "a works from version 20; b and c still from 0, which no step made"
    )
    assert steps[20].newer is story.strategy.weights and steps[20].older is published[-2]()
    gc.collect()
    assert [ref() is not None for ref in published] == [False] * 18 + [True] * 2
    deliver(story, "b", (1, 2, 3))
    assert (
        sorted(steps := story.strategy.weighing.steps) == [20, 21]
        and deliver(story, "a", (1, 2, 3))["vectors"] == 3
    )
    assert sorted(story.strategy.weighing.steps) == [21, 22]


def test_a_closed_task_frees_its_version() -> None:
    story = replacing(count=2, controls="shared", subtract_merge=True)
    story.start("a", "b")
    deliver(story, "a", (1, 2, 3))
    deliver(story, "b", (1, 2, 3))
    ask(story, "a")
    assert set(story.strategy.sent) == {"a"}
    story.close("a")
    assert story.strategy.sent == {}
    deliver(story, "b", (1, 2, 3))
    assert 1 not in story.strategy.weighing.steps


def test_vectors_of_devices_lie_in_a_file_that_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = VectorStore(1000)
    for number in range(100):
        store.row(f"e{number}")[:] = number
    assert [float(store.row(f"e{number}")[-1]) for number in range(100)] == list(
        range(100)
    ) and len(store) == 100
    assert all(store.row(f"e{number}").ctypes.data % 64 == 0 for number in range(100))
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_one_line_and_no_bus_error(monkeypatch: pytest.MonkeyPatch) -> None:
    store = VectorStore(1000, 'controls = "shared"')
    store.row("a")[:] = 1

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(
        UserError,
        match=r'no room for .* \(1 are stored\): set TMPDIR, or controls = "shared" \(No space',
    ):
        store.row("b")
    assert len(store) == 1 and store.row("a")[0] == 1


def test_passes_are_the_plain_formulas() -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    a, b, c, d = (rng.normal(size=BLOCK + 1000).astype(np.float32) for _ in range(4))
    size = BLOCK + 17
    one, other = (0.25 * a + 0.75 * b)[:size].astype(np.float64), d[:size].astype(np.float64)
    assert cosine(((a, 0.25), (b, 0.75)), ((d, 1.0),), size) == pytest.approx(
        one @ other / np.linalg.norm(one) / np.linalg.norm(other), abs=1e-6
    )
    assert (
        cosine(((a, 2.0),), ((a, -0.5),), size) == pytest.approx(-1)
        and cosine(((a, 0.0),), ((b, 1.0),), size) == 0.0
    )
    assert inner(((a, 0.25), (b, 0.75), (c, -1.0)), ((d, 1.0),), size) == pytest.approx(
        float((0.25 * a + 0.75 * b - c)[:size].astype(np.float64) @ d[:size]), rel=1e-4
    )
    change = aligned(size)
    np.testing.assert_allclose(mix_keeping(a, b, 0.25, change), a + 0.25 * (b - a), rtol=1e-6)
    assert (change == (b - a)[:size]).all()


# ------------------------------------------------------------------ the ablations
def test_the_ablations_are_a_two_by_two_factorial() -> None:
    names = {
        "fedasmu": (True, Refresh),
        "fedasmu-da": (False, Refresh),
        "fedasmu-fa": (True, LearningRateRule),
        "fedasmu-0": (False, LocalRule),
    }
    assert set(names) < set(strategy_names())
    for name, (learned, rule) in names.items():
        kind = load(name)
        assert (kind.learned, kind.rule) == (learned, rule)
        assert (
            "mu_alpha" in kind.Options.model_fields,
            "mu_beta" in kind.Options.model_fields,
        ) == (learned, rule is Refresh)
    assert (
        FedASMUDA.Options().alpha == FedASMU0.Options().alpha
        and FedASMUDA.Options().a == FedASMU0.Options().a
    )


def test_fixed_weights_are_fedasyncs_polynomial() -> None:
    """alpha (gap + 1)^-a: 1/2, then 1/2 / 2 at gap 1."""
    for kind in (FedASMUDA, FedASMU0):
        story = replacing(kind, alpha=0.5, a=1.0)
        story.start("a", "b")
        assert deliver(story, "a", (4, 0, 0)) == {"alpha": 0.5, "gap": 0.0}
        assert deliver(story, "b", (6, 0, 0)) == {"alpha": 0.25, "gap": 1.0} and story.weights == [
            3,
            0,
            0,
        ]


# ------------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"tau": 0}, "tau"),
        ({"period_s": 0.0}, "period_s"),
        ({"selector": "fixed"}, "refresh_point"),
        ({"refresh_point": 3}, "refresh_point"),
        ({"selector": "fixed", "refresh_point": 0}, "refresh_point"),
        ({"mu_beta": 0.0}, "mu_beta"),
        ({"sigma0": 6.0}, "sigma0"),
        ({"epsilon": 1.1}, "epsilon"),
        ({"on_request": "go"}, "on_request"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], key: str) -> None:
    """tau = 0 would discard everything: a fresh update has staleness 1. With a trigger every 0 s,
    time would never pass.
    """
    with pytest.raises(ValidationError) as caught:
        FedASMUOptions.model_validate(options)
    assert key in str(caught.value)


def test_one_epoch_and_refresh_points_beyond_the_last_are_told() -> None:
    entries = [
        {"strategy": "fedasmu"},
        {"strategy": "fedssmu"},
        {"strategy": "fedasmu-fa"},
        {"strategy": "fedasmu", "selector": "fixed", "refresh_point": 5, "label": "late"},
        {"strategy": "fedasmu", "selector": "fixed", "refresh_point": 4, "label": "last"},
    ]
    lines = strategy_warnings(experiment(strategies=entries), None)
    assert [line.partition(":")[0] for line in lines] == [
        "fedasmu",
        "fedssmu",
        "late",
        "last",
    ] and lines[0] == (
        "fedasmu: a task of 1 epoch has no refresh point: devices never ask for a fresher model,"
        " whatever the selector (training.epochs)"
    )
    (line,) = strategy_warnings(experiment(strategies=entries, training={"epochs": 5}), None)
    assert (
        line
        == "late: refresh_point = 5 is beyond the last point of 5 epochs: devices ask after epoch 4"
    )


# ------------------------------------------------------------------ faults, at the coordinator
def desk(folder: Path) -> Desk:
    strategy = make(
        FedASMU, dispatch="replace", concurrency=2, selector="h2", subtract_merge=True, **ONE
    )
    return Desk(folder, strategy, stop={"versions": 100}, network={"grace_s": 1.0})


def test_a_request_for_a_closed_task_is_called_off(tmp_path: Path) -> None:
    """The edge gets a message to stop, and the strategy gets no event."""
    table = desk(tmp_path)
    table.start("a", "b")
    table.hear("a", EdgeLost("a"))
    table.wake(2 * S)
    assert table.hear("a", FreshRequest(0, 0, 6), 3 * S) == ["a <- CancelTask 0"]
    assert not [event for event in table.events() if event.get("event") == "fresh_requested"]


def test_an_edge_that_dies_between_request_and_merge_leaves_nothing_behind(tmp_path: Path) -> None:
    table = desk(tmp_path)
    table.start("a", "b", "c")
    first, second = sorted(table.coordinator.tasks.by_edge)
    table.update(first, table.coordinator.tasks.by_edge[first].number, 4, 8, 0)
    number = table.coordinator.tasks.by_edge[second].number
    assert table.hear(second, FreshRequest(number, 0, 6)) == [
        f"{second} <- fresh {number} v1 (2 4 0)"
    ]
    assert set(table.coordinator.strategy.sent) == {second}
    table.hear(second, EdgeLost(second))
    table.wake(2 * S)
    assert (
        table.coordinator.strategy.sent == {} and second not in table.coordinator.strategy.running
    )
    table.hear(second, Joined(1, []), 3 * S)
    assert (
        sorted(table.coordinator.tasks.by_edge) == sorted(table.coordinator.strategy.running)
        and len(table.coordinator.tasks.open) == 2
    )


def test_reports_and_what_the_device_said_are_in_the_events_row(tmp_path: Path) -> None:
    table = desk(tmp_path)
    table.start("a", "b")
    table.update("a", 0, 4, 8, 0)
    (row,) = [event for event in table.events() if event.get("event") == "update_arrived"]
    assert row["numbers"] == {"samples": 1.0}
    report = row["decisions"][0]
    assert (
        report["do"] == "report"
        and report["edge"] == "a"
        and report["values"]["lambda"] == 0.5
        and report["values"]["alpha"] == 0.5
    )
    assert [decision["do"] for decision in row["decisions"]] == ["report", "publish", "assign"]


def test_the_bench_times_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    bench = importlib.import_module("strategies")
    rows = bench.rows(1000, 1)
    assert len(rows) == 2 * (len(bench.CASES) + len(bench.STEPS)) and all(
        row.value > 0 for row in rows
    )
    assert [
        row.goal for row in rows if row.name.startswith("fedasmu, ") and "times" in row.name
    ] == [bench.GOAL, bench.GOAL]
