"""Names in parts, against a sorted list."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl import sorted_names
from edgefl.sorted_names import SortedNames

NAMES = [f"e{number:02d}" for number in range(40)]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(NAMES)), max_size=120))
def test_the_names_are_those_of_a_sorted_set(moves: list[tuple[bool, str]]) -> None:
    names, expected = SortedNames(), set[str]()
    with patch.object(sorted_names, "MOST", 4):
        for come, name in moves:
            (names.add if come else names.discard)(name)
            (expected.add if come else expected.discard)(name)
            assert (name in names) == (name in expected) and len(names) == len(expected)
    assert list(names) == sorted(expected)
    assert [names[place] for place in range(len(names))] == sorted(expected)
    with pytest.raises(IndexError):
        names[len(names)]
