"""The live display of hosts: load, temperature and throttling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from host_reports import FACTS, REPORT
from rich.console import Console

from edgefl.record.files import HOST_COLUMNS
from edgefl.record.record import Record
from edgefl.results.live import LiveView
from emulator.units import NS_PER_S

HEADING = ",".join(HOST_COLUMNS) + "\n"


def row(edge: str, host: str, cpu: str = "", celsius: str = "", throttled: str = "") -> str:
    return f"1.0,{edge},{host},of-{host},{cpu},{celsius},{throttled},,,3.0,1000000,,\n"


def shown(view: LiveView, width: int = 100, height: int = 40) -> str:
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print(view.update())
    return capture.get()


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Write these rows of hosts.csv, and return the view of edges a, b and c."""
    view = LiveView(tmp_path, ["a", "b", "c"])
    (tmp_path / "hosts.csv").write_text(HEADING)

    def write(*rows: str) -> LiveView:
        with (tmp_path / "hosts.csv").open("a") as file:
            file.writelines(rows)
        return view

    return write


def test_several_hosts_have_columns(run: Any) -> None:
    rows = (row("a", "pi-1", "97.5", "71.2", "no"), row("b", "pi-1"), row("c", "pi-2", "3.0"))
    lines = shown(run(*rows)).splitlines()
    heading, a, b, c = lines[-4:]
    assert heading.split()[-4:] == ["host", "cpu", "%", "°C"]
    assert a.split()[-3:] == b.split()[-3:] == ["pi-1", "97.5", "71.2"]
    assert c.split()[-2:] == ["pi-2", "3.0"]


def test_one_host_has_a_place_in_the_heading(run: Any) -> None:
    view = run(row("a", "pi-1", "97.5", "71.2"), row("b", "pi-1"))
    text = shown(view)
    assert "host cpu 97.5 %, 71.2 °C" in text and "pi-1" not in text
    assert "host cpu 97.5 %, 71.2 °C" in view.plain()


def test_hosts_that_are_slowed_down_are_named_as_long_as_they_are(run: Any) -> None:
    view = run(
        row("a", "pi-1", "9.0", "", "no"), row("b", "pi-2", throttled="under-voltage+throttled")
    )
    line = "slowed down: pi-2 (under-voltage, throttled)"
    assert line in shown(view).splitlines() and line in view.plain()
    run(row("b", "pi-2"))  # no news
    assert line in shown(view)
    run(row("b", "pi-2", throttled="no"))
    assert "slowed down" not in shown(view) + view.plain()


def test_many_hosts_in_trouble_take_one_line(run: Any) -> None:
    hot = [row(f"e{n}", f"pi-{n}", throttled="throttled") for n in range(9)]
    text = shown(run(*hot), height=12)
    assert "pi-2 (throttled) and 6 more" in text and len(text.splitlines()) <= 12


def test_a_run_without_reports_shows_nothing_of_hosts(tmp_path: Path) -> None:
    text = shown(LiveView(tmp_path, ["a"]))
    assert "host" not in text and "cpu" not in text


def test_the_display_reads_what_the_record_writes(tmp_path: Path) -> None:
    record = Record(tmp_path, lambda: 0.0, None)
    record.host(NS_PER_S, "a", FACTS, REPORT)
    record.flush()
    assert "host cpu 42.2 %, 64.2 °C" in LiveView(tmp_path, ["a"]).plain()


def test_a_launch_shows_its_own_names_of_hosts(tmp_path: Path) -> None:
    view = LiveView(tmp_path, ["a", "b"], places={"a": "pi-1", "b": "pi-2"})
    lines = shown(view).splitlines()
    assert "host" in lines[-3]
    assert [line.split()[0:2] + line.split()[-1:] for line in lines[-2:]] == [
        ["a", "awaited", "pi-1"],
        ["b", "awaited", "pi-2"],
    ]
