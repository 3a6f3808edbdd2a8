"""Meters on made-up hosts: counters that wrap, powers that are integrated, answers of plugs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.energy.meters import (
    HWMON,
    POWERCAP,
    Ina219Meter,
    PlugMeter,
    PowerMeter,
    RaplMeter,
    open_meter,
    plug_watts,
)
from emulator.errors import BadValue, Unavailable

S = 1_000_000_000


def zone(root: Path, name: str, what: str, energy_uj: int, most_uj: int = 10_000) -> Path:
    folder = root / POWERCAP / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{what}\n")
    (folder / "max_energy_range_uj").write_text(f"{most_uj}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    return folder / "energy_uj"


def no_fetch(address: str) -> Any:
    raise AssertionError("nothing to fetch")


def test_rapl_adds_packages_and_memory_and_counts_from_its_first_reading(tmp_path: Path) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0", 500)
    zone(tmp_path, "intel-rapl:0:0", "core", 7)  # a part of the package
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 100)
    second = zone(tmp_path, "intel-rapl:1", "package-1", 900)
    meter = RaplMeter.open(tmp_path)
    assert meter.read_uj(0) == 0
    for path, value in ((first, 800), (memory, 150), (second, 1000)):
        path.write_text(f"{value}\n")
    assert meter.read_uj(S) == 300 + 50 + 100


def test_a_counter_that_begins_again_goes_on(tmp_path: Path) -> None:
    path = zone(tmp_path, "intel-rapl:0", "package-0", 9_990)
    meter = RaplMeter.open(tmp_path)
    path.write_text("5\n")
    assert meter.read_uj(S) == 16, "9990 to 10000, then 0 to 5"
    path.unlink()
    assert meter.read_uj(2 * S) is None


def test_the_whole_platform_counts_instead_of_its_parts(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 1)
    whole = zone(tmp_path, "intel-rapl:1", "psys", 10)
    meter = RaplMeter.open(tmp_path)
    whole.write_text("25")
    assert meter.read_uj(0) == 15 and len(meter.counters) == 1


def test_a_host_without_rapl_says_so_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="^rapl: this host has no energy counters"):
        RaplMeter.open(tmp_path)


def test_counters_for_root_only_say_how_to_permit_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 1)
    monkeypatch.setattr("emulator.energy.meters.os.access", lambda path, mode: False)
    with pytest.raises(Unavailable, match="^rapl: .*only root may read it.* sudo chmod a"):
        RaplMeter.open(tmp_path)


def test_a_power_is_integrated_between_readings() -> None:
    powers: list[int | None] = [2_000_000, 4_000_000, None, 4_000_000, 4_000_000]
    meter = PowerMeter("test", lambda: powers.pop(0))
    read = [meter.read_uj(now * S) for now in (0, 2, 3, 4, 5)]
    # 2 s at 3 W on average; the second around the missing reading is not known
    assert read == [0, 6_000_000, None, 6_000_000, 10_000_000]


def test_an_ina219_is_found_by_its_driver(tmp_path: Path) -> None:
    for number, (name, power) in enumerate((("cpu_thermal", 1), ("ina219", 3_000_000))):
        folder = tmp_path / HWMON / f"hwmon{number}"
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "power1_input").write_text(f"{power}\n")
    meter = Ina219Meter.open(tmp_path)
    assert (meter.name, meter.read_uj(0), meter.read_uj(4 * S)) == ("ina219", 0, 12_000_000)
    with pytest.raises(Unavailable, match="^ina219: no sensor ina219, "):
        Ina219Meter.open(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("answer", "watts"),
    [
        ({"id": 0, "output": True, "apower": 4.5, "aenergy": {"total": 7.1}}, 4.5),
        ({"power": 3, "is_valid": True}, 3.0),
        ({"StatusSNS": {"ENERGY": {"Power": 12, "Total": 0.5}}}, 12.0),
        ({"power": "off"}, None),
        ({"power": -1}, None),
        (["power", 3], None),
        (None, None),
    ],
    ids=["shelly 2", "shelly 1", "tasmota", "text", "negative", "list", "nothing"],
)
def test_the_power_in_a_plugs_answer(answer: Any, watts: float | None) -> None:
    assert plug_watts(answer) == watts


def test_a_plug_that_does_not_answer_gives_no_reading() -> None:
    answers: list[Any] = [{"apower": 2.0}, OSError("unreachable"), {"apower": 2.0}]

    def fetch() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    meter = PlugMeter.of(fetch)
    assert [meter.read_uj(now * S) for now in range(3)] == [0, None, 0]


def test_a_user_names_the_meter(tmp_path: Path) -> None:
    assert open_meter("", no_fetch, tmp_path) is None
    assert open_meter("auto", no_fetch, tmp_path) is None
    zone(tmp_path, "intel-rapl:0", "package-0", 1)
    found = open_meter("auto", no_fetch, tmp_path)
    assert isinstance(found, RaplMeter)
    asked: list[str] = []
    plug = open_meter("http://192.0.2.9/meter/0", asked.append, tmp_path)
    assert plug is not None and plug.read_uj(0) is None
    assert asked == ["http://192.0.2.9/meter/0"]
    with pytest.raises(BadValue, match="^meter 'wattmeter': expected one of rapl, ina219, auto"):
        open_meter("wattmeter", no_fetch, tmp_path)
