"""Measure how fast this host computes, and which emulated devices it can run in time.

This is the only part of the devices that reads a real clock.
"""

from __future__ import annotations

import importlib
import math
import shlex
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.errors import BadValue, check_positive, check_whole
from emulator.profiles import DEVICES
from emulator.units import NS_PER_S

STEP_BATCH = 32
STEP_REPEAT, STEP_WARM_UP = 200, 20
COMMAND_REPEAT, COMMAND_WARM_UP = 5, 1
MOST_REPEAT = 1_000_000
MOST_SAMPLES = 1e15  # of one run; with more, its speed may be no finite number


@dataclass(frozen=True, slots=True)
class Timing:
    """Run times of one repeated workload; each run processes ``samples``."""

    samples: float
    times_ns: tuple[int, ...]

    @property
    def median_ns(self) -> int:
        return round(statistics.median(self.times_ns))

    @property
    def p90_ns(self) -> int:
        """The smallest of the times that 90 % of the runs do not exceed (nearest rank)."""
        return sorted(self.times_ns)[-(-9 * len(self.times_ns) // 10) - 1]

    def samples_per_s(self, ns: int) -> float:
        """The speed of a run that takes ``ns``."""
        return self.samples * NS_PER_S / max(ns, 1)


@dataclass(frozen=True, slots=True)
class Playable:
    """What a host can emulate in time: ``devices`` at once, each at ``samples_per_s``.

    Slower devices with the same total speed are also possible. One core is reserved for the
    network and its pacing. The speed is that of the 90th percentile, rounded down to two digits.
    With the median instead, every second step would take too long.
    """

    samples_per_s: float
    devices: int

    @classmethod
    def on(cls, timing: Timing, cores: int) -> Playable:
        return cls(two_digits_down(timing.samples_per_s(timing.p90_ns)), max(cores - 1, 1))

    def at_a_time(self, samples_per_s: float) -> int:
        """How many devices of this speed can train at once, sharing the cores.

        0 if a single device needs more than one core.
        """
        if samples_per_s > self.samples_per_s:
            return 0
        return math.floor(self.devices * self.samples_per_s / samples_per_s * (1 + 1e-12))

    def profiles(self) -> dict[str, int]:
        """How many of each named device can train at once, if the reference step was timed."""
        return {name: self.at_a_time(float(figure.value)) for name, figure in DEVICES.items()}


def two_digits_down(number: float) -> float:
    """Round down to two significant digits: 5713 -> 5700, 0.0678 -> 0.067."""
    if number <= 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return float(f"{math.floor(number / step * (1 + 1e-12)) * step:.2g}")


def measure(
    run: Callable[[], object],
    repeat: int,
    warm_up: int,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> tuple[int, ...]:
    """Measure the ns of each of ``repeat`` runs, after ``warm_up`` runs that do not count."""
    check_whole("repeat", repeat, 1, MOST_REPEAT)
    for _ in range(warm_up):
        run()
    times_ns = []
    for _ in range(repeat):
        began = clock_ns()
        run()
        times_ns.append(clock_ns() - began)
    return tuple(times_ns)


def time_command(command: str, samples: float = 1.0, repeat: int = COMMAND_REPEAT) -> Timing:
    """Time a program from start to exit; its output is discarded.

    BadValue if it cannot be started or fails.
    """
    check_positive("samples", samples)
    if samples > MOST_SAMPLES:
        raise BadValue(f"samples {samples:g}: expected at most {MOST_SAMPLES:g}")
    words = _words(command)
    return Timing(samples, measure(lambda: _run(command, words), repeat, COMMAND_WARM_UP))


def time_step(repeat: int = STEP_REPEAT) -> Timing:
    """Time ``profiles.REFERENCE_STEP`` in this process. BadValue if torch is not installed."""
    torch = _torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # an emulated device trains with one thread
    try:
        with torch.random.fork_rng(devices=[]):
            return Timing(STEP_BATCH, measure(_lenet_step(torch), repeat, STEP_WARM_UP))
    finally:
        torch.set_num_threads(threads)


def _words(command: str) -> Sequence[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadValue(f"command {command!r}: {error}") from None
    if not words:
        raise BadValue("command: expected a program and its arguments")
    return words


def _run(command: str, words: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise BadValue(f"command {command!r}: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise BadValue(
            f"command {command!r}: exit status"
            f" {done.returncode}{f', last error line: {said[-1]}' if said else ''}"
        )


def _torch() -> Any:
    # Imported by name and only here: no other part of the emulator may need torch.
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise BadValue(
            "the built-in step needs torch, which is not installed; time your own program instead:"
            " --command 'PROGRAM ...'"
        ) from None


def _lenet_step(torch: Any) -> Callable[[], None]:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=0.01), nn.CrossEntropyLoss()
    images, labels = torch.randn(STEP_BATCH, 1, 28, 28), torch.arange(STEP_BATCH) % 10

    def step() -> None:
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        optimizer.step()

    return step
