"""The set-up of the TDMA paper's experiments: readings, sizes S, and the names of methods."""

from __future__ import annotations

from collections.abc import Sequence

from reproduction.entry import CONFIGS, MethodPlan

FOLDER = CONFIGS / "tdma"
SLOT_S = 0.1  # emulated seconds of a slot in all configs
MNIST_SIZES = (1, 5, 10, 25, 50, 100)  # S; the last one is all devices
CIFAR_SIZES = (1, 2, 5, 10, 20)
MARKERS = "evaluation.every_s=100"  # the paper's markers: every 1,000 slots
CHEAP = 'model.pool="stride"'  # the paper does not give the CNN's sizes: these take a third
READINGS = {  # letter -> the entry that has its runs on MNIST
    "A": "seed1-mnist-a",
    "B": "seed1-mnist-b",
    "B-unit": "seed1-mnist-b-unit",
}
# with these S the longest free delay is 0 rounds: the runs with and without delay are the same
NO_DELAY = {"mnist": (50, 100), "cifar10": (10, 20)}


def seconds(slots: int) -> str:
    """Return the override that stops a run after some slots."""
    return f"stop.emulated_s={slots * SLOT_S:g}"


def plain(sizes: Sequence[int]) -> dict[float, str]:
    """Return S -> the method without delay."""
    return {float(size): f"tdma-s{size}" for size in sizes}


def delayed(sizes: Sequence[int], data: str = "mnist") -> dict[float, str]:
    """Return S -> the method with delay: that without delay where no delay is free."""
    return {
        float(size): f"tdma-s{size}" if size in NO_DELAY[data] else f"idfl-s{size}"
        for size in sizes
    }


def methods(sizes: Sequence[int], data: str = "mnist") -> tuple[MethodPlan, ...]:
    """Return all methods of a config, without the runs that would be the same twice."""
    labels = [*plain(sizes).values(), *delayed(sizes, data).values()]
    return tuple(MethodPlan(label) for label in dict.fromkeys(labels))
