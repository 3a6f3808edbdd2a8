"""configs/tdma has the paper's groups, times and delays, and models that fit their slots."""

from __future__ import annotations

import pytest
from paths import CONFIGS

from edgefl.config.experiment import Experiment
from edgefl.hosts.setup.plan import devices, slots_of_model, timetable
from edgefl.loading.file import load
from edgefl.strategies.base.slotted import SlottedOptions
from edgefl.vectors import Layout, LayoutEntry
from emulator.tdma.closed_form import Tdma

FOLDER = CONFIGS / "tdma"
MNIST, CIFAR = 8_490, 10_790  # parameters of the model
SETTINGS = {  # name -> N, r, tau_comp, steps, elements, slots
    "mnist": (100, 1, 50, 1, MNIST, 50_000),
    "mnist_five_steps": (100, 1, 50, 5, MNIST, 50_000),
    "mnist_five_steps_unit": (100, 1, 50, 5, MNIST, 50_000),
    "mnist_five_fifths": (100, 1, 50, 5, MNIST, 50_000),
    "mnist_50_5": (100, 5, 250, 1, MNIST, 50_000),
    "mnist_10_1": (100, 1, 10, 1, MNIST, 50_000),
    "mnist_10_5": (100, 5, 50, 1, MNIST, 50_000),
    "mnist_2_1": (100, 1, 2, 1, MNIST, 50_000),
    "mnist_2_5": (100, 5, 10, 1, MNIST, 50_000),
    "cifar10": (20, 1, 4, 1, CIFAR, 100_000),
    "rounds": (20, 1, 4, 1, 310, 100_000),
    "map": (20, 1, 4, 1, 1_210, 4_000),
    "wallclock": (12, 1, 8, 1, MNIST, 600),
}
READINGS = {
    "mnist": 0.01,
    "mnist_five_steps": 0.01,
    "mnist_five_steps_unit": 0.01,
    "mnist_five_fifths": 0.002,
}
SIZES = {100: {1, 5, 10, 25, 50, None}, 20: {1, 2, 5, 10, None}, 12: {1, 3, None}}
SIZES_OF_THE_MAP = {1, 2, 5}


def layout(size: int) -> Layout:
    return Layout((LayoutEntry("w", (size,), 0, "parameter", ""),))


def test_every_config_is_looked_at() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(SETTINGS)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_settings_are_those_of_the_paper(name: str) -> None:
    edges, transfer, computes, steps, size, slots = SETTINGS[name]
    experiment: Experiment = load(FOLDER / f"{name}.toml")
    table = timetable(experiment, layout(size), devices(experiment))
    assert (
        len(experiment.edges.ids()) == edges
        and round((experiment.stop.emulated_s or 0) * 1e9) == slots * table.slot_ns
    )
    assert table.transfer_slots == transfer == slots_of_model(experiment, 4 * size)
    assert {table.compute_slots(edge, 250, steps) for edge in experiment.edges.ids()} == {
        computes
    } and table.known
    options = [entry.options() for entry in experiment.strategies]
    sizes = SIZES_OF_THE_MAP if name == "map" else SIZES[edges]
    assert {each.get("per_round") for each in options} == sizes and {
        each.get("local_steps", SlottedOptions().local_steps) for each in options
    } == {steps}
    assert sum(entry.strategy == "idfl" for entry in experiment.strategies) == len(sizes - {None})


def test_a_turn_is_one_gradient_unless_the_config_says_otherwise() -> None:
    """The paper's equations as written (A); the other interpretations have their own names."""
    assert SlottedOptions().local_steps == 1
    rates = {name: load(FOLDER / f"{name}.toml").training.learning_rate for name in READINGS}
    assert rates == READINGS


@pytest.mark.parametrize(
    ("per_round", "d_star", "alpha"), [(5, 9, 10), (10, 5, 4), (25, 2, 1), (50, 1, 0)]
)
def test_the_delays_of_the_mnist_setting(per_round: int, d_star: int, alpha: int) -> None:
    """tau_comp = 50, r = 1 (proposition 1, equations 32 and 33)."""
    experiment = load(FOLDER / "mnist.toml")
    table = timetable(experiment, layout(MNIST), devices(experiment))
    assert (Tdma(100, per_round, 1, 50).d_star, table.auto_delay(100, per_round, 50)) == (
        d_star,
        alpha,
    )
