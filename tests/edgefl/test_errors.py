"""Text from elsewhere, printed as one line without control characters."""

from __future__ import annotations

import pytest

from edgefl.errors import UserError, printable


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("edge e000, Größe 3 µs", "edge e000, Größe 3 µs"),
        ("a\nb\r\nc\u2028d", "a b c d"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("\x9b2J\x7f\x00", "\\x9b2J\\x7f\\x00"),
        ("abc\u202etxt.exe\u200b", "abc\\u202etxt.exe\\u200b"),
        ("\ud800", "\\ud800"),
        ("a\tb", "a\\tb"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, line: str) -> None:
    assert printable(text) == line and str(UserError(text)) == line


def test_a_line_has_a_bound() -> None:
    assert printable("x" * 1_000_000, 10) == "xxxxxxx..." and printable("x" * 10, 10) == "x" * 10
    assert len(printable("\x1b" * 1_000_000)) == 4000
