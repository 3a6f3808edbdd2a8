"""An edge that joins run after run, and how it uses each coordinator's Setup."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import experiment

from edgefl.clocks.wall.edge import membership
from edgefl.clocks.wall.edge.membership import (
    MOST_LINES,
    BackOff,
    Membership,
    News,
    SideBuilder,
    matched,
)
from edgefl.config.file import shared_digest, to_json
from edgefl.errors import UserError
from edgefl.protocol.messages import Refused, RunFinished, Setup, Unreachable

ADDRESS = "tcp://192.0.2.1:7700"


def pauses(name: str, number: int) -> list[float]:
    back_off = BackOff(name)
    return [back_off.pause_s() for _ in range(number)]


def test_the_same_edge_has_the_same_pauses_and_two_edges_have_others() -> None:
    assert pauses("pi-1", 8) == pauses("pi-1", 8)
    spread = [pauses(f"pi-{number}", 6)[5] for number in range(100)]
    assert len(set(spread)) == 100
    # 100 edges that lost the same coordinator return over the whole time, in no large group
    filled = {int((pause_s - 15) / 1.5) for pause_s in spread}
    assert filled == set(range(10))


def test_a_line_is_news_once_until_they_are_cleared() -> None:
    told: list[str] = []
    news = News(told.append)
    for line in ("a", "a", "b", "a"):
        news.tell(line)
    assert told == ["a", "b"]
    news.clear()
    news.tell("a")
    assert told == ["a", "b", "a"]
    for number in range(10 * MOST_LINES):
        news.tell(str(number))
    assert len(news._told) <= MOST_LINES


# ------------------------------------------------------------------ the runs
class Hosts:
    """Replacement of EdgeHost: each run ends as the next outcome says."""

    def __init__(self, *outcomes: RunFinished | Exception | type[BaseException]) -> None:
        self.outcomes = iter(outcomes)
        self.patience: list[float] = []
        self.sends_setup = True

    def __call__(self, *words: Any, state: Any) -> Hosts:
        self.build = words[3]
        return self

    def run(self, patience_s: float, in_a_run_s: float) -> RunFinished:
        self.patience.append(patience_s)
        outcome = next(self.outcomes)
        if not isinstance(outcome, RunFinished):
            raise outcome
        if self.sends_setup:
            self.build(None)
        return outcome


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``member(*outcomes)``: an edge, what it says, its pauses, and how often it loads data."""

    def made(*outcomes: Any) -> Any:
        found = SimpleNamespace(said=[], pauses=[], loaded=0, hosts=Hosts(*outcomes))
        monkeypatch.setattr(membership, "EdgeHost", found.hosts)
        monkeypatch.setattr(membership, "time", SimpleNamespace(sleep=found.pauses.append))

        def builder() -> Any:
            found.loaded += 1
            return SimpleNamespace(side=lambda setup: None, strategy="fedavg")

        found.edge = Membership("a", None, lambda patience_s: ADDRESS, builder, found.said.append)
        return found

    return made


def over(more: bool = False) -> RunFinished:
    return RunFinished("versions", more)


def test_one_run_has_all_its_strategies_and_loads_its_data_once(member: Any) -> None:
    one = member(over(more=True), over(more=True), over())
    one.edge.one_run()
    assert one.said == [
        f"a: joining {ADDRESS}",
        *["a: fedavg: the run is over (versions)"] * 3,
    ]
    assert one.loaded == 1 and one.hosts.patience == [60.0, 900.0, 900.0]


def test_one_run_is_not_tried_again(member: Any) -> None:
    one = member(Unreachable("no answer for 60 s"), over())
    with pytest.raises(Unreachable, match=rf"^{ADDRESS}: no answer for 60 s$"):
        one.edge.one_run()
    one = member(Refused("edge id"), over())
    with pytest.raises(Refused, match=rf"^refused by {ADDRESS}: edge id$"):
        one.edge.one_run()


def test_an_edge_that_stays_survives_refusals_and_tells_each_once(member: Any) -> None:
    refused, silent = Refused("edge id: 'a' is not one"), Unreachable("no answer for 10 s")
    here = UserError("no file data/a.safetensors")
    stays = member(
        *[silent, refused, refused, silent, here, over(), silent, silent, over()],
        KeyboardInterrupt,
    )
    with pytest.raises(KeyboardInterrupt):
        stays.edge.forever()
    again = "; trying again until a signal ends this edge"
    lost, ended = (
        f"a: {ADDRESS}: no answer for 10 s{again}",
        "a: fedavg: the run is over (versions)",
    )
    assert stays.said == [
        f"a: joining {ADDRESS}",
        lost,
        f"a: refused by {ADDRESS}: edge id: 'a' is not one{again}",
        f"a: no file data/a.safetensors{again}",
        ended,
        f"a: joining {ADDRESS}",  # what was told before the run may be news again
        lost,
        ended,
        f"a: joining {ADDRESS}",
    ]
    # each run loads its data anew: files may have changed since the last one
    assert stays.loaded == 10 and set(stays.hosts.patience) == {10.0}
    longest = [1.0, 2.0, 4.0, 8.0, 16.0, 1.0, 2.0, 4.0, 1.0]
    assert all(most / 2 <= pause_s <= most for pause_s, most in zip(stays.pauses, longest))
    assert len(stays.pauses) == 9


def test_a_coordinator_that_ends_every_session_at_once_gets_growing_pauses(member: Any) -> None:
    """RunFinished without a Setup: there is no run to join."""
    stays = member(*[over()] * 6, KeyboardInterrupt)
    stays.hosts.sends_setup = False
    with pytest.raises(KeyboardInterrupt):
        stays.edge.forever()
    assert all(first < second for first, second in pairwise(stays.pauses[:5]))
    assert stays.said.count("a: fedavg: the run is over (versions)") == 1


# ------------------------------------------------------------------ edge side
@pytest.mark.parametrize(("own", "joins"), [("auto", True), (0.4, True), (1.0, False)])
def test_an_edge_takes_the_speed_that_the_coordinator_has_chosen(
    own: float | str, joins: bool
) -> None:
    theirs = experiment(speed=0.4)
    entry = theirs.strategies[0]
    here = matched(experiment(speed=own), to_json(theirs, entry))
    assert (shared_digest(here, entry) == shared_digest(theirs, entry)) is joins
    assert here.chosen_speed == (0.4 if joins else 1.0)


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
