"""The slot gate: completion from the slot table, and no two devices at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.capacity.service import bytes_served, served_at
from emulator.capacity.slotted import Slotted
from emulator.errors import BadValue
from emulator.units import FOREVER, NS_PER_S

MS = NS_PER_S // 1000


def test_service_only_in_own_slots_less_the_guard() -> None:
    gate = Slotted(
        10 * MS, 4, own=[1], guard_ns=2 * MS, rate_bit_s=8000
    )  # 1 byte per ms in [10, 18), [50, 58), ...
    assert [gate.segment(t * MS) for t in (0, 10, 17, 18, 49)] == [
        (0, 10 * MS),
        (8000, 18 * MS),
        (8000, 18 * MS),
        (0, 40 * MS),
        (0, 50 * MS),
    ]
    assert [served_at(gate, 0, size) for size in (1, 8, 9, 16, 8_000_000)] == [
        11 * MS,
        18 * MS,
        51 * MS,
        58 * MS,
        (40 * 999_999 + 18) * MS,
    ]
    assert [bytes_served(gate, 15 * MS, t * MS) for t in (16, 18, 50, 55, 95)] == [1, 3, 3, 8, 16]


def test_neighbouring_slots_join_without_a_guard_only() -> None:
    joined = Slotted(10, 4, own=[3, 0], rate_bit_s=7)
    assert [joined.segment(t) for t in (0, 10, 30, 35)] == [(7, 10), (0, 30), (7, 40), (7, 40)]
    assert Slotted(10, 2, own=[0, 1]).segment(3)[1] == FOREVER
    assert Slotted(10, 2, own=[0, 1], guard_ns=1, rate_bit_s=7).segment(9) == (0, 10)
    assert Slotted(10, 2, own=[1], offset_ns=25, rate_bit_s=7).segment(0) == (
        7,
        5,
    )  # frames also repeat before the offset


tables = st.integers(1, 8).flatmap(
    lambda slots: st.tuples(
        st.integers(2, 10**6),
        st.just(slots),
        st.lists(st.integers(0, 3), min_size=slots, max_size=slots),
        st.integers(0, 10**6),
    )
)


@settings(deadline=None)
@given(tables, st.data())
def test_devices_never_overlap(table: tuple[int, int, list[int], int], data: st.DataObject) -> None:
    slot_ns, slots, owners, offset_ns = table
    guard_ns = data.draw(st.integers(0, slot_ns - 1))
    gates = {
        owner: Slotted(
            slot_ns, slots, {n for n in range(slots) if owners[n] == owner}, guard_ns, 5, offset_ns
        )
        for owner in set(owners)
    }
    for t in data.draw(st.lists(st.integers(0, 10**9), min_size=1, max_size=10)):
        number, within_ns = divmod((t - offset_ns) % (slots * slot_ns), slot_ns)
        open_now = {owner for owner, gate in gates.items() if gate.segment(t)[0]}
        assert open_now == ({owners[number]} if within_ns < slot_ns - guard_ns else set())


@settings(deadline=None)
@given(tables, st.integers(0, 10**9), st.integers(1, 10**6))
def test_completion_is_the_slot_table_in_closed_form(
    table: tuple[int, int, list[int], int], start: int, size: int
) -> None:
    slot_ns, slots, owners, offset_ns = table
    own = {n for n in range(slots) if owners[n] == owners[0]}
    gate = Slotted(slot_ns, slots, own, 1, 8 * NS_PER_S, offset_ns)  # 1 byte per ns
    frames, rest = divmod(size - 1, len(own) * (slot_ns - 1))
    t, left = start, rest + 1
    while True:  # the last frame, ns by slot
        number, within_ns = divmod((t - offset_ns) % (slots * slot_ns), slot_ns)
        here = max(0, slot_ns - 1 - within_ns) if number in own else 0
        if here >= left:
            break
        left, t = left - here, t + slot_ns - within_ns
    assert served_at(gate, start, size) == t + left + frames * slots * slot_ns


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (10, 4, [1], 10),
            "guard 0.000000010 s: expected 0 or more and less than the slot, 0.000000010 s",
        ),
        ((10, 4, [1], -1), "guard"),
        ((10, 4, []), "expected one or more of 0 to 3"),
        ((10, 4, [1, 4]), r"own slots \[1, 4\]"),
        ((0, 4, [1]), "expected 1 or more"),
        ((10, 0, [0]), "expected 1 or more"),
    ],
)
def test_impossible_frames_are_refused(arguments: tuple, words: str) -> None:
    with pytest.raises(BadValue, match=words):
        Slotted(*arguments)
