"""An edge has the half of each strategy of a comparison."""

from __future__ import annotations

from builders import experiment

from edgefl.clocks.wall.edge.membership import SideBuilder
from edgefl.config.file import to_json
from edgefl.protocol.messages import Setup
from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.moon import Contrast
from edgefl.strategies.syncdrop import SubModel


def test_an_edge_in_a_terminal_of_its_own_has_each_strategy_s_half() -> None:
    """It keeps data and model; the coordinator sends each strategy alone."""
    given = experiment(
        strategies=[{"strategy": "fedavg"}, {"strategy": "moon"}, {"strategy": "syncdrop"}]
    )
    builder = SideBuilder("a", None, None, [])
    kinds, loaded = [], []
    for entry in given.strategies:
        kinds.append(type(builder.side(Setup(to_json(given, entry), entry.strategy)).edge.rule))
        loaded.append(builder.learned.workspace)
    assert kinds == [LocalRule, Contrast, SubModel] and loaded[0] is loaded[1] is loaded[2]
