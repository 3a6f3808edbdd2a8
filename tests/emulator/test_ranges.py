"""Ranges in names: what they stand for, and what is none."""

from __future__ import annotations

import pytest

from emulator.errors import BadValue
from emulator.ranges import expanded


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("pi", ["pi"]),
        ("pi-[08-10]", ["pi-08", "pi-09", "pi-10"]),
        ("10.0.0.[1,3-4]", ["10.0.0.1", "10.0.0.3", "10.0.0.4"]),
        ("r[1-2]-pi[0-1].lab", ["r1-pi0.lab", "r1-pi1.lab", "r2-pi0.lab", "r2-pi1.lab"]),
    ],
)
def test_a_range_stands_for_several_names(text: str, names: list[str]) -> None:
    assert expanded(text) == names


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("pi-[8-1]", "[8-1]: the range is empty, expected the smaller number first"),
        ("pi-[]", "[]: expected numbers, such as [1-8] or [1,3,5-7]"),
        ("pi-[1-3", "expected a [ with its ], such as pi-[1-8], found 'pi-[1-3'"),
        ("pi-[1-999999999]", "[1-999999999]: expected at most 1000 names"),
        ("a[1-999]b[1-999]", "expected at most 1000 names, found 998001 in 'a[1-999]b[1-999]'"),
    ],
)
def test_what_is_no_range(text: str, line: str) -> None:
    with pytest.raises(BadValue) as caught:
        expanded(text)
    assert str(caught.value) == line
