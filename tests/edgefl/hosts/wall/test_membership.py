"""An edge that joins run after run: its pauses, what it says, and what ends it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from edgefl.errors import UserError
from edgefl.hosts.wall.edge import membership
from edgefl.hosts.wall.edge.membership import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    MOST_LINES,
    BackOff,
    Membership,
    News,
)
from edgefl.protocol.errors import Refused, Unreachable
from edgefl.protocol.messages import RunFinished

ADDRESS = "tcp://192.0.2.1:7700"


def pauses(name: str, number: int) -> list[float]:
    back_off = BackOff(name)
    return [back_off.pause_s() for _ in range(number)]


def test_pauses_double_up_to_the_longest_one_and_lose_up_to_half_of_it() -> None:
    longest = [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert (longest[0], longest[-1]) == (FIRST_PAUSE_S, LONGEST_PAUSE_S)
    for name in ("pi-1", "pi-2", "a"):
        for pause_s, most_s in zip(pauses(name, 8), longest):
            assert most_s / 2 <= pause_s <= most_s


def test_the_same_edge_has_the_same_pauses_and_two_edges_have_others() -> None:
    assert pauses("pi-1", 8) == pauses("pi-1", 8)
    spread = [pauses(f"pi-{number}", 6)[5] for number in range(100)]
    assert len(set(spread)) == 100
    # 100 edges that lost the same coordinator return over the whole time, in no large group
    filled = {int((pause_s - 15) / 1.5) for pause_s in spread}
    assert filled == set(range(10))


def test_after_a_reset_the_pauses_begin_again() -> None:
    back_off = BackOff("a")
    first = [back_off.pause_s() for _ in range(6)]
    back_off.reset()
    assert back_off.pause_s() <= FIRST_PAUSE_S < first[-1]


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


def test_a_bug_ends_it(member: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        member(ZeroDivisionError()).edge.forever()
