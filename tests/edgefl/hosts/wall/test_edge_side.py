"""How an edge uses the coordinator's Setup."""

from __future__ import annotations

import pytest
from builders import experiment

from edgefl.hosts.wall.edge.side import matched
from edgefl.loading.file import shared_digest, to_json


@pytest.mark.parametrize(("own", "joins"), [("auto", True), (0.4, True), (1.0, False)])
def test_an_edge_takes_the_speed_that_the_coordinator_has_chosen(
    own: float | str, joins: bool
) -> None:
    theirs = experiment(speed=0.4)
    entry = theirs.strategies[0]
    here = matched(experiment(speed=own), to_json(theirs, entry))
    assert (shared_digest(here, entry) == shared_digest(theirs, entry)) is joins
    assert here.chosen_speed == (0.4 if joins else 1.0)


def test_a_damaged_setup_gives_the_edge_its_own() -> None:
    own = experiment(speed="auto", seed=4)
    for damaged in ("{", '{"speed": []}', "[]"):
        here = matched(own, damaged)
        assert (here.seed, here.chosen_speed) == (4, 1.0)
