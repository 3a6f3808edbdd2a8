"""The speed that a host can keep up with: a higher one is refused, or this one is chosen."""

from __future__ import annotations

import pytest
from builders import experiment

from edgefl.clocks.process_messages import FleetReady
from edgefl.clocks.wall.speed_check import auto_speed, host_per_s, tidy, too_fast

DEVICES = {"samples_per_s": 1000.0, "slowest_ratio": 1.0}  # three of them
SAMPLES = {"a": 10, "b": 10, "c": 10}


def host(samples_per_s: float | None, cores: int = 2, not_measured: str = "") -> FleetReady:
    return FleetReady("d", samples_per_s, cores, SAMPLES, not_measured, ())


@pytest.mark.parametrize(
    ("speed", "found"),
    [
        (5.0, 1.0),
        (0.999, 0.8),
        (0.8, 0.8),
        (0.119, 0.1),
        (0.0999, 0.08),
        (0.0031, 0.003),
    ],
)
def test_a_tidy_speed_is_never_above(speed: float, found: float) -> None:
    assert tidy(speed) == found <= max(speed, found)


def test_the_strategy_with_the_most_devices_at_work_decides() -> None:
    entries = [{"strategy": "fedavg", "clients_per_round": n, "label": f"of{n}"} for n in (1, 3, 2)]
    given = experiment(devices=DEVICES, speed="auto", strategies=entries)
    # 0.7 * 3000 samples/s are enough for two devices; three need it at 0.7
    assert auto_speed(given, None, host(3000.0)) == 0.6
    assert auto_speed(given, None, host(1000.0, cores=4)) == 0.6, "a core is left to coordinate"
    (found,) = too_fast(given.model_copy(update={"speed": 1.0}), None, host(2500.0))
    assert found.strategy == "of3"
    assert "set speed=0.5 or speed=auto" in str(found)


@pytest.mark.parametrize("speed", ["auto", 1.0])
def test_a_failed_measurement_is_not_a_fast_host(speed: float | str) -> None:
    """Every strategy is refused, with the reason, and strained if the run is forced."""
    entries = [{"strategy": "fedavg", "label": "one"}, {"strategy": "fedasync"}]
    given = experiment(devices=DEVICES, speed=speed, strategies=entries)
    unknown = host(None, not_measured="a trial training failed on 3 edges of 3, on a: step 1")
    found = too_fast(given, None, unknown)
    assert [each.strategy for each in found] == ["one", "fedasync"]
    assert "strategy one: speed cannot be chosen or checked" in str(found[0])
    assert "failed on 3 edges of 3, on a: step 1" in str(found[0]) and "--force" in str(found[0])
    assert "could not be measured (a trial training failed" in found[0].strain
    assert host_per_s(unknown) is None


def test_what_is_not_measured_is_not_slowed_down() -> None:
    given = experiment(devices=DEVICES, speed="auto")
    assert auto_speed(given, None, host(None)) == 1.0, "edges elsewhere"
    native = experiment(devices={"kind": "native"}, speed="auto")
    assert auto_speed(native, None, host(1.0)) == 1.0, "takes the time that it takes"
