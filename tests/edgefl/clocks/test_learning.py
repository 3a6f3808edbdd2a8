"""What the warm parent makes once for all edges is equal to what each edge would make."""

from __future__ import annotations

import pytest
from builders import experiment

from edgefl.clocks.setup.learning import learning, with_experiment
from edgefl.clocks.setup.network import devices
from edgefl.config.experiment import PartFinder, parts
from edgefl.data import edge_data

BURSTS = {"samples_per_s": 100.0, "slowest_ratio": 3.0}


def test_devices_that_were_made_before_the_forks_are_the_same_and_not_shared() -> None:
    learned = learning(experiment(devices=BURSTS), None)
    edge, *_ = learned.shards
    before = learned.edge_maker(0)(edge).device
    learned.speeds = devices(learned.experiment, learned.samples)
    first, second = (learned.edge_maker(0)(edge).device for _ in range(2))
    assert first == before and second == before and first is not second


def test_another_seed_has_devices_of_its_own() -> None:
    one = experiment(devices=BURSTS)
    learned = learning(one, None)
    learned.speeds = devices(learned.experiment, learned.samples)
    other = with_experiment(learned, one.model_copy(update={"seed": 2}))
    edges = list(learned.shards)
    found, expected = (
        [each.edge_maker(0)(edge).device for edge in edges]
        for each in (other, learning(other.experiment, None))
    )
    assert found == expected


def test_shares_in_one_array_are_those_of_the_partition() -> None:
    given = experiment(partition={"name": "dirichlet", "alpha": 0.3})
    learned = learning(given, None)
    cut = edge_data.cut(given, None, learned.task.dataset)
    assert list(learned.shards) == list(cut) and len(learned.shards) == len(cut)
    for edge, share in cut.items():
        assert learned.shards[edge].tolist() == share.tolist()
        assert learned.shards[edge].base is learned.shards.indices
    assert learned.samples == {edge: len(share) for edge, share in cut.items()}
    assert learned.data_digest() == edge_data.digest(learned.task.dataset, cut)
    assert "nobody" not in learned.shards
    with pytest.raises(KeyError):
        learned.shards["nobody"]


def test_an_edge_is_found_in_its_group() -> None:
    sizes = {"a": 3, "b": 1, "c": 6}
    groups = [{"name": name, "count": count} for name, count in sizes.items()]
    given = experiment(edges={"count": 10}, groups=groups)
    finder = PartFinder(given)
    for part in parts(given):
        for place, edge in enumerate(part.ids):
            assert (finder.part(edge), finder.find(edge)[1]) == (part, place)
    with pytest.raises(KeyError):
        finder.find("e010")
