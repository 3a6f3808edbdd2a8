"""The state of edges under faults that the tests inject one by one."""

from __future__ import annotations

import pytest

from edgefl.exchange.machine import Effect, FaultLives
from emulator.faults import Fault

KILL, RESTART = Fault(0, "a", "kill"), Fault(0, "a", "restart")


def freeze(at_ns: int, until_ns: int) -> Fault:
    return Fault(at_ns, "a", "freeze", until_ns - at_ns)


def struck(lives: FaultLives, fault: Fault, now: int = 0) -> list[Effect]:
    return list(lives.strike(fault, now))


@pytest.fixture
def lives() -> FaultLives:
    return FaultLives("ab", revives=True)


# ------------------------------------------------------------------ down and back
def test_an_edge_dies_once_and_comes_back(lives: FaultLives) -> None:
    assert struck(lives, KILL) == [Effect.DIED] and lives.down == {"a"}
    assert struck(lives, KILL) == []
    assert struck(lives, RESTART) == [Effect.CAME_BACK] and not lives.down


def test_a_restart_of_a_living_edge_kills_it_first(lives: FaultLives) -> None:
    effects = lives.strike(RESTART, 0)
    assert next(effects) is Effect.DIED and lives.down == {"a"}
    assert next(effects) is Effect.CAME_BACK and not lives.down
    assert next(effects, None) is None


@pytest.mark.parametrize("kind", ["cut", "cut_up", "slow"])
def test_faults_of_links_and_devices_strike_no_process(lives: FaultLives, kind: str) -> None:
    assert struck(lives, Fault(0, "a", kind, 5)) == []


def test_who_is_left(lives: FaultLives) -> None:
    final = FaultLives("ab", revives=False)
    assert not lives.some_return
    for each in (lives, final):
        struck(each, KILL)
    assert lives.some_return and not final.some_return and not final.deserted
    for each in (lives, final):
        struck(each, Fault(0, "b", "kill"))
    assert final.deserted and not lives.deserted


# ------------------------------------------------------------------ frozen
def test_a_second_freeze_lengthens_the_first(lives: FaultLives) -> None:
    assert struck(lives, freeze(10, 30), 10) == [Effect.FROZE]
    assert struck(lives, freeze(20, 50), 20) == [Effect.STAYS_FROZEN]
    assert lives.frozen_until("a") == 50 and lives.frozen_until("b") == 0


def test_who_is_killed_while_frozen_comes_back_awake(lives: FaultLives) -> None:
    struck(lives, freeze(10, 90), 10)
    assert struck(lives, KILL, 20) == [Effect.DIED] and lives.frozen_until("a") == 0
    assert struck(lives, freeze(25, 80), 25) == []
    struck(lives, RESTART, 30)
    assert lives.frozen_until("a") == 0
    assert struck(lives, freeze(40, 60), 40) == [Effect.FROZE]


# ------------------------------------------------------------------ plans and marks


@pytest.mark.parametrize("faults", [[KILL], [KILL, RESTART], [RESTART]])
def test_a_plan_of_an_earlier_life_is_void(lives: FaultLives, faults: list[Fault]) -> None:
    done: list[tuple[str, int]] = []
    plan = lives.in_this_life("a", lambda edge, now: done.append((edge, now)))
    for fault in faults:
        struck(lives, fault)
    plan(7)
    assert done == []


def test_a_mark_is_taken_once_and_outlives_a_death(lives: FaultLives) -> None:
    for _ in range(2):
        assert struck(lives, Fault(0, "a", "corrupt")) == []
    struck(lives, KILL)
    assert not lives.take("corrupt", "b") and not lives.take("duplicate", "a")
    assert lives.take("corrupt", "a") and not lives.take("corrupt", "a")
