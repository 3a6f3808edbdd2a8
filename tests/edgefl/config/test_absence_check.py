"""Configs with [edges.availability]: what is refused, in one line with the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefl.config.experiment import Experiment
from edgefl.config.file import load
from edgefl.errors import UserError

HEAD = """
edges = {count = 2, availability = {AVAILABILITY}}
stop = {STOP}
strategies = [{strategy = "fedavg"}]
"""
TIMES = "{period_ns = 5, changes_ns = [3, 4]}"
PATTERNS = f'kind = "file", patterns = {{e000 = {TIMES}, e001 = {TIMES}}}'
RANDOM = 'kind = "exponential", there_s = 5.0, away_s = 1.0'


def read(
    folder: Path, availability: str, more: str = "", stop: str = "emulated_s = 9"
) -> Experiment:
    text = HEAD.replace("AVAILABILITY", availability).replace("STOP", stop)
    (folder / "a.toml").write_text(text + more)
    return load(folder / "a.toml")


@pytest.mark.parametrize(
    "availability",
    [
        RANDOM,
        PATTERNS,
        'kind = "day_night", day_s = 10.0, day_share = 0.3, phase = "random"',
        'kind = "file", file = "others.csv", draw = true',
    ],
)
def test_what_is_right(availability: str, tmp_path: Path) -> None:
    (tmp_path / "both.csv").write_text("e000,0,5\ne001,1,3\n")
    (tmp_path / "others.csv").write_text("phone1,0,5\nphone2,1,3\n")
    found = read(tmp_path, availability).edges.availability
    assert f'kind = "{found.kind}"' in availability


@pytest.mark.parametrize(
    ("availability", "more", "stop", "words"),
    [
        ('kind = "exponential", there_s = 5.0', "", "emulated_s = 9", "away_s: missing"),
        (
            f"{RANDOM}, day_s = 5.0",
            "",
            "emulated_s = 9",
            'day_s: expected kind = "day_night", found "exponential"',
        ),
        (RANDOM, '[devices]\nkind = "native"', "emulated_s = 9", "with native devices"),
        (
            f"{RANDOM}, speed_exponent = 1.0",
            '[devices]\nspread = "exponential"',
            "emulated_s = 9",
            'expected devices.spread = "uniform" or "lognormal"',
        ),
        (f'{PATTERNS}, file = "no.csv"', "", "emulated_s = 9", "file: expected no patterns with"),
        (PATTERNS.replace("[3, 4]", "[4, 3]"), "", "emulated_s = 9", "times in order"),
        ('kind = "file", file = "no.csv"', "", "emulated_s = 9", "no.csv: cannot be read"),
        ('kind = "file", file = "one.csv"', "", "emulated_s = 9", "no interval of edge 'e001'"),
    ],
)
def test_what_is_wrong(availability: str, more: str, stop: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("e000,0,5\n")
    (tmp_path / "overlap.csv").write_text("e000,0,3\ne000,2,4\n")
    with pytest.raises(UserError) as caught:
        read(tmp_path, availability, more, stop)
    message = str(caught.value)
    assert words in message and "a.toml" in message and "\n" not in message
