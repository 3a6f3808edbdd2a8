"""Listings: for people on a terminal, for programs in a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from edgefl.commands import show

ENTRIES = [("fedavg", "the mean of [all] models, once a round"), ("wkafl-no-selection", "short")]


@pytest.mark.parametrize(
    ("terminal", "expected"),
    [
        (
            True,
            [
                "fedavg              the mean of [all]",
                "                    models, once a",
                "                    round",
                "wkafl-no-selection  short",
            ],
        ),
        (
            False,
            [
                "fedavg              the mean of [all] models, once a round",
                "wkafl-no-selection  short",
            ],
        ),
    ],
)
def test_a_listing_is_wrapped_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, expected: list[str]
) -> None:
    said = io.StringIO()
    monkeypatch.setattr(
        show,
        "Console",
        lambda: Console(file=said, force_terminal=terminal, width=38, color_system=None),
    )
    show.rows(ENTRIES)
    assert [line.rstrip() for line in said.getvalue().splitlines()] == expected
