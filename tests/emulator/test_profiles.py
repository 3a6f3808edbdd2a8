"""The named links and devices: numbers, sources, overrides, and the command that lists them."""

from __future__ import annotations

from typing import Any

import pytest

from emulator import profiles
from emulator.cli import run
from emulator.energy.power import DEVICE_POWER, POWER_SOURCES, RADIOS
from emulator.errors import BadValue
from emulator.profiles import DEVICES, LINKS, SOURCES, LinkProfile


def test_every_figure_has_a_source_and_every_source_a_figure() -> None:
    figures = [figure for fields in LINKS.values() for figure in fields.values()] + list(
        DEVICES.values()
    )
    assert {figure.source for figure in figures} == set(SOURCES)
    assert all(figure.remark for figure in figures)
    assert all(
        "https://" in text or "(20" in text for key, text in SOURCES.items() if key != "ours"
    )
    assert all(
        list(fields) == ["up", "down", "latency", "jitter", "loss"] for fields in LINKS.values()
    )


def test_any_field_can_be_overridden() -> None:
    text = profiles.link_profile(
        "lte", up="2mbit", down="20mbit", latency="30ms", jitter="0ms", loss="1%"
    )
    assert text == LinkProfile("lte", 2_000_000, 20_000_000, 30_000_000, 0, 0.01)
    assert (
        profiles.link_profile(
            "lte", up=2_000_000, down=20_000_000, latency=30_000_000, jitter=0, loss=0.01
        )
        == text
    )
    assert profiles.link_profile("lte", up=None, down=None) == profiles.link_profile("lte")
    assert profiles.link_profile("lte", loss="0.25").loss == 0.25
    assert profiles.device_profile("pi4", samples_per_s=70).samples_per_s == 70.0
    assert profiles.device_profile("pi4", samples_per_s=None) == profiles.device_profile("pi4")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"upp": "2mbit"}, "profile lte: field 'upp' does not exist: did you mean up?"),
        ({"up": 0}, "up 0: expected"),
        ({"loss": "100%"}, "below 1"),
        ({"loss": float("nan")}, "loss nan"),
    ],
)
def test_bad_overrides_of_a_link(overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue) as caught:
        profiles.link_profile("lte", **overrides)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_the_list_shows_all_and_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profiles"]) == 0
    out = capsys.readouterr().out
    rows: dict[str, str] = {}
    for line in filter(None, out.splitlines()):
        rows.setdefault(line.split()[0], line)  # the tables of power come later
    assert {*LINKS, *DEVICES, *SOURCES, *DEVICE_POWER, *RADIOS, *POWER_SOURCES} <= set(rows)
    assert (
        rows["lte"].split()[1:6] == ["7.6", "Mbit/s", "29.5", "Mbit/s", "10.5"]
        and "ofcom-2023" in rows["lte"]
    )
    assert rows["pi5"].split()[1] == "4500" and "Next: " in out


@pytest.mark.parametrize("name", ["lte", "phone", "phone-low"])
def test_each_number_is_shown_with_its_source(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["profiles", name]) == 0
    out = capsys.readouterr().out
    speeds = {"samples_per_s": DEVICES[name]} if name in DEVICES else {}
    tables = LINKS.get(name, {}), speeds, DEVICE_POWER.get(name, {}), RADIOS.get(name, {})
    assert any(tables)
    for key, figure in [pair for table in tables for pair in table.items()]:
        source = {**SOURCES, **POWER_SOURCES}[figure.source]
        assert all(text in out for text in (key, figure.value, figure.remark, source))
    assert ("[devices.energy]" in out) == (name in DEVICE_POWER)
    assert ("[links.radio]" in out) == (name in RADIOS)


def test_an_unknown_name_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profiles", "jetson"]) == 2
    out, error = capsys.readouterr()
    assert (
        out == ""
        and error.startswith("emulator: profile 'jetson' does not exist: did you mean jetson-nano?")
        and error.count("\n") == 1
    )
