"""FedASMU's server, event by event: trigger, bound, eqs. 1 and 2, fresher models, kept models; its
ablations; bad options.
"""

from __future__ import annotations

from typing import Any

import pytest
from builders import Server, make, vector
from merging import PATH, deliver

from edgefl.errors import UserError
from edgefl.strategies.base.catalog import load, strategy_names
from edgefl.strategies.base.events_and_decisions import FreshRequested, SendFresh
from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.dissemination.device import LearningRateRule, Refresh
from edgefl.strategies.fedasmu import FedASMU, FedASMUOptions
from edgefl.strategies.fedasmu_0 import FedASMU0
from edgefl.strategies.fedasmu_da import FedASMUDA
from edgefl.strategies.fedasmu_fa import FedASMUFA
from edgefl.streams import Streams
from edgefl.vector_store import VectorStore
from edgefl.vectors import Layout, LayoutEntry

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


# ------------------------------------------------------------------ faults, at the coordinator
