"""The how-to page of labs: its topology, and its commands on it."""

from __future__ import annotations

import re
import tomllib

import pytest
from pages import command_lines, text
from paths import ROOT

from emulator import Lab, parse_topology
from emulator.cli import run
from emulator.errors import Unavailable

PAGE = ROOT / "docs" / "how-to" / "lab.md"
TOPOLOGY = next(
    block
    for block in re.findall(r"```toml\n(.*?)```", text(PAGE), flags=re.DOTALL)
    if "bridges" in block
)


def test_the_topology_is_what_the_page_says() -> None:
    found = parse_topology(tomllib.loads(TOPOLOGY))
    below = [link.upper for link in found.links]
    assert (below.count("cell"), below.count("street"), len(found.traffic)) == (5, 2, 1)


@pytest.mark.processes
@pytest.mark.alone
def test_the_commands_work_on_the_topology(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [words for words in command_lines("emulator") if words[:2] == ["lab", "link"]]
    assert len(lines) >= 5
    try:
        with Lab(parse_topology(tomllib.loads(TOPOLOGY)), name="page") as lab:
            monkeypatch.setenv("EMULATOR_LAB", "page")
            for words in lines:
                assert run(words) == 0, capfd.readouterr()
            said = capfd.readouterr().out
            shared = lab.state.shapes["cell"].up.rate_bit_s
            assert run(["lab", "list"]) == 0
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert "edge-6-street: edge-6 to street, up 0.5 Mbit/s 80 ms +- 2 ms loss 0.1 %" in said
    assert shared == 5_000_000
    assert "host edge-7: 198.18." in capfd.readouterr().out
