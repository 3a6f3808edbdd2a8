"""The energy of edges from what they do, by hand."""

from __future__ import annotations

from emulator.energy.account import EnergyAccount, Spent
from emulator.energy.power import EdgePower

S = 1_000_000_000
W = 1_000_000  # in microwatts
J = 10**15  # in femtojoules
# 1 W always; 4 W more in training, 2 W in sending, 1 W in receiving
PLAIN = EdgePower(1 * W, 4 * W, 2 * W, 1 * W)
TAILED = EdgePower(0, 0, 2 * W, 1 * W, tail_uw=W // 2, tail_ns=10 * S)


def joined(power: EdgePower, *edges: str) -> EnergyAccount:
    account = EnergyAccount(dict.fromkeys(edges, power))
    assert all(account.joined(edge, 0) for edge in edges)
    return account


def sums(account: EnergyAccount, edge: str, now: int) -> dict[str, float]:
    return {state: fj / J for state, (fj, _) in account.by_edge(now)[edge].items() if fj}


def test_states_add_up_and_may_overlap() -> None:
    account = joined(PLAIN, "a")
    account.compute_begins("a", 1, 2 * S)
    account.transferred("a", "down", 3 * S, 6 * S, 100)
    account.compute_ends("a", 1, 7 * S)
    account.transferred("a", "up", 7 * S, 9 * S, 100)
    account.end(10 * S)
    assert sums(account, "a", 10 * S) == {"idle": 10, "compute": 20, "send": 4, "receive": 3}
    assert account.total.at(10 * S) == 37 * J
    assert account.by_edge(10 * S)["a"]["compute"][1] == 5 * S


def test_an_edge_that_only_waits_uses_its_idle_power_until_the_end() -> None:
    account = joined(PLAIN, "a", "b")
    account.end(8 * S)
    assert sums(account, "b", 99 * S) == {"idle": 8}


def test_an_edge_counts_from_its_first_joining_on() -> None:
    account = EnergyAccount({"a": PLAIN})
    assert account.joined("a", 4 * S) and not account.joined("a", 6 * S)
    assert not account.joined("stranger", 6 * S)
    assert sums(account, "a", 10 * S) == {"idle": 6} and account.total.at(10 * S) == 6 * J


def test_training_under_way_counts_while_it_lasts_and_at_the_end() -> None:
    account = joined(PLAIN, "a")
    account.compute_begins("a", 1, 0)
    assert account.total.at(2 * S) == 10 * J
    assert account.end(3 * S) == [Spent("a", "compute", 0, 3 * S, 12 * J)]
    assert account.end(4 * S) == [], "a run ends once"


def test_only_the_task_that_is_computed_can_end_it() -> None:
    account = joined(PLAIN, "a")
    account.compute_begins("a", 2, 0)
    assert account.compute_ends("a", 1, 2 * S) == []
    assert account.compute_begins("a", 2, 3 * S) == [], "told twice"
    assert account.compute_begins("a", 3, 4 * S) == [Spent("a", "compute", 0, 4 * S, 16 * J)]
    assert account.compute_ends("a", None, 5 * S) == [Spent("a", "compute", 4 * S, 5 * S, 4 * J)]
    assert account.compute_ends("a", None, 6 * S) == []


def test_a_pause_that_is_known_later_is_taken_back() -> None:
    account = joined(PLAIN, "a")
    account.compute_begins("a", 1, 0)
    account.total.at(5 * S)
    account.compute_ends("a", 1, 4 * S)
    account.compute_begins("a", 1, 6 * S)
    assert account.total.at(7 * S) == (7 + 16 + 4) * J


def test_bytes_cost_energy_of_their_own_and_slots_only_their_own_time() -> None:
    account = joined(EdgePower(0, 0, 2 * W, 0, send_fj_bit=J // 10**6), "a")  # 1 J per Mbit
    account.transferred("a", "up", 0, 4 * S, 250_000)
    assert sums(account, "a", 4 * S) == {"send": 8 + 2}
    account.transferred("a", "up", 4 * S, 9 * S, 0, active_ns=1 * S)
    assert sums(account, "a", 9 * S) == {"send": 12}


def test_the_tail_of_a_transfer_ends_with_the_next_one() -> None:
    account = joined(TAILED, "a")
    account.transferred("a", "up", 0, 1 * S, 0)
    assert account.total.at(5 * S) == (2 + 2) * J, "4 s of tail so far"
    (tail, sent) = account.transferred("a", "down", 5 * S, 6 * S, 0)
    assert (tail.state, tail.began_ns, tail.ended_ns, tail.fj) == ("tail", 1 * S, 5 * S, 2 * J)
    assert sent.state == "receive"
    account.end(30 * S)
    assert sums(account, "a", 30 * S) == {"send": 2, "receive": 1, "tail": 2 + 5}
    assert account.total.at(30 * S) == 10 * J


def test_the_end_of_a_run_cuts_a_tail_short() -> None:
    account = joined(TAILED, "a")
    account.transferred("a", "up", 0, 1 * S, 0)
    account.end(3 * S)
    assert sums(account, "a", 3 * S) == {"send": 2, "tail": 1}
    assert account.total.at(3 * S) == 3 * J


def test_a_tail_begins_after_the_last_of_two_transfers_at_once() -> None:
    account = joined(TAILED, "a")
    account.transferred("a", "down", 2 * S, 3 * S, 0)
    account.transferred("a", "up", 0, 5 * S, 0)
    account.transferred("a", "down", 4 * S, 4 * S, 0)
    account.end(30 * S)
    assert sums(account, "a", 30 * S) == {"send": 10, "receive": 1, "tail": 5}
    assert account.total.at(30 * S) == 16 * J


def test_edges_without_a_model_cost_nothing() -> None:
    account = EnergyAccount({})
    assert account.compute_begins("a", 1, 0) == account.compute_ends("a", 1, 5) == []
    assert account.transferred("a", "up", 0, 5, 5) == []
    assert account.by_edge(9) == {}
