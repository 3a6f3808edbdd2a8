"""The table of faults names only tests that exist."""

from __future__ import annotations

import re

from paths import ROOT

PAGE = ROOT / "docs" / "reference" / "faults-survived.md"


def test_each_fault_has_a_test_that_exists() -> None:
    lines = PAGE.read_text().splitlines()
    four = [line for line in lines if line.startswith("| ") and line.count(" |") == 4]
    faults = [row for row in four if not row.startswith("| fault ")]
    named = {row: re.findall(r"`(test_\w+)`", row) for row in faults}
    assert len(faults) > 20 and all(named.values())
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for text in sources for name in re.findall(r"^def (test_\w+)", text, re.M)}
    missing = {name for names in named.values() for name in names} - defined
    assert missing == set()


def test_the_page_names_programs_that_exist() -> None:
    programs = set(re.findall(r"`(scripts/\S+\.py)`", PAGE.read_text()))
    assert programs and all((ROOT / program).exists() for program in programs)
