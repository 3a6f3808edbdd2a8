"""What the warm parent makes once for all edges is equal to what each edge would make."""

from __future__ import annotations

from builders import experiment

from edgefl.hosts.setup.learning import learning, with_experiment
from edgefl.hosts.setup.plan import devices

BURSTS = {"samples_per_s": 100.0, "slowest_ratio": 3.0}


def test_devices_that_were_made_before_the_forks_are_the_same_and_not_shared() -> None:
    learned = learning(experiment(devices=BURSTS), None)
    edge, *_ = learned.shards
    before = learned.edges(0, [edge])[edge].device
    learned.speeds = devices(learned.experiment, learned.samples)
    first, second = (learned.edges(0, [edge])[edge].device for _ in range(2))
    assert first == before and second == before and first is not second


def test_another_seed_has_devices_of_its_own() -> None:
    one = experiment(devices=BURSTS)
    learned = learning(one, None)
    learned.speeds = devices(learned.experiment, learned.samples)
    other = with_experiment(learned, one.model_copy(update={"seed": 2}))
    edges = list(learned.shards)
    found, expected = (
        [each.edges(0, edges)[edge].device for edge in edges]
        for each in (other, learning(other.experiment, None))
    )
    assert found == expected
