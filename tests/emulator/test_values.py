"""Values are compared and hashed by their fields, as frozen dataclasses are."""

from __future__ import annotations

import pickle
from dataclasses import replace

from emulator.links.link import Transfer
from emulator.values import value_class


def test_values_are_compared_and_hashed_by_their_fields() -> None:
    one, same = Transfer(1, "a", "up", 5, "task"), Transfer(1, "a", "up", 5, "task")
    assert one == same and hash(one) == hash(same) and len({one, same}) == 1
    assert replace(one, size=6) != one and pickle.loads(pickle.dumps(one)) == one


def test_without_eq_each_object_is_itself() -> None:
    @value_class(frozen=True, eq=False)
    class Holder:
        number: int

    one = Holder(1)
    assert one != Holder(1) and one in {one}
