"""How an edge uses the coordinator's Setup."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import experiment

from edgefl.errors import UserError
from edgefl.hosts.wall.edge.side import SideBuilder, matched
from edgefl.loading.file import shared_digest, to_json
from edgefl.protocol.messages import Setup


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


@pytest.mark.parametrize(("seed", "place"), [(1, "cut"), (2, "cut/seed2")])
def test_an_edge_with_its_own_shard_reads_it_whatever_the_coordinator_has(
    seed: int, place: str, tmp_path: Path
) -> None:
    (tmp_path / "cut" / "seed2").mkdir(parents=True)
    theirs = experiment(seed=seed)
    builder = SideBuilder("a", None, None, [], tmp_path / "cut")
    mine, _ = builder.experiment(Setup(to_json(theirs, theirs.strategies[0]), "fedavg"))
    assert (mine.data.source, mine.data.dir) == ("shard", str(tmp_path / place))
    entry = theirs.strategies[0]
    assert shared_digest(mine, entry) == shared_digest(theirs, entry)


def test_a_shard_is_no_data_set_of_an_edges_own(tmp_path: Path) -> None:
    theirs = experiment(data={"source": "local"})
    builder = SideBuilder("a", None, None, [], tmp_path)
    with pytest.raises(UserError, match=r'--shards: the run has data.source = "local"'):
        builder.experiment(Setup(to_json(theirs, theirs.strategies[0]), "fedavg"))
