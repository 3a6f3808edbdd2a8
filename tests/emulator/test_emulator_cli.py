"""The command line of the emulator, and the units it reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.cli import run
from emulator.errors import BadValue
from emulator.units import parse_duration, parse_rate, parse_size, seconds_text, to_ns


def test_a_transfer_in_closed_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["transfer", "0.25MB", "--rate", "2mbit", "--latency", "30ms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["first", "byte", "0.030004000", "s"]
    assert lines[2].split() == ["last", "byte", "1.030000000", "s"]
    assert (
        lines[-1].startswith("Next: ")
        and "emulator transfer 0.25MB --rate 20000000bit" in lines[-1]
    )


DRIVE = "0,2000000\n4,0\n5.5,8000000\n9,0\n10,1000000\n13,500000\n15,3000000\n"


def test_what_a_trace_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "drive.csv").write_text(DRIVE)
    trace = str(tmp_path / "drive.csv")
    assert run(["transfer", "0.25MB", "--trace", trace, "--latency", "30ms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        f"trace {trace} repeats every 17 s: its last row lasts 2 s, like the row before (a row with"
        " a time and no rate would end it)"
    )
    assert lines[1].split() == ["mean", "rate", "2.706", "Mbit/s"]  # 46 Mbit in 17 s
    assert lines[2].partition("silent")[2].strip() == (
        "2.5 s of a period (14.7 %), in 2 parts, the longest: 1.5 s from 4 s on, 1 s from 9 s on"
    )
    begins, firsts, lasts = zip(*(line.split()[::2] for line in lines[5:-1]))
    starts = [float(begin) for begin in begins]
    assert starts == [0, 2.125, 4, 4.25, 6.375, 8.5, 10.625, 12.75, 14.875]
    # at 2 Mbit/s; through the silence, then at 8 Mbit/s; over the border to 500 kbit/s
    for start, first, last in (
        (0, 0.030004, 1.03),
        (4, 1.530001, 1.78),
        (12.75, 0.030008, 0.03 + 0.25 + 2.0 + 0.25),
    ):
        at = starts.index(start)
        assert (float(firsts[at]), float(lasts[at])) == pytest.approx((first, last))
    assert "emulator proxy" in lines[-1] and f"--trace-up {trace}" in lines[-1]


@pytest.mark.parametrize("arguments", [[]])
def test_help_names_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert (
        "Usage: emulator" in out
        and "Show when the first and the last byte of a transfer" in out
        and "Example:" in out
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["transfer", "1MB", "--rate", "2mbits"],
            (
                "rate '2mbits': unknown unit 'mbits', did you mean mbit? (valid: bit, kbit, mbit,"
                " gbit)"
            ),
        ),
        (["transfer", "1MB", "--rate", "0mbit"], "at least 1 bit/s"),
        (["transfer", "1MB", "--rate", "-2mbit"], "must not be negative"),
        (
            ["transfer", "1Mb", "--rate", "2mbit"],
            "size '1Mb': 'Mb' may be bits or bytes: expected 125kB or 1MB",
        ),
        (
            ["transfer", "1MB", "--rate", "2mbit", "--latency", "30"],
            "duration '30': the unit is missing",
        ),
        (["transfer", "1MB"], "expected either --rate, such as 2mbit, or --trace FILE"),
        (["transfer", "1MB", "--trace", "no.csv"], "trace no.csv: cannot be read"),
        (["transfr", "1MB"], "transfer"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert error.startswith("emulator: ") and words in error


def test_a_full_disk_for_what_is_printed_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert run(["transfer", "1MB", "--rate", "2mbit"]) == 2
    said = "emulator: what is printed: cannot be written (No space left on device)\n"
    assert capsys.readouterr().err == said


def test_units() -> None:
    assert [parse_rate(text) for text in ("2mbit", "500 kbit", "1.5Gbit/s", "8bit")] == [
        2_000_000,
        500_000,
        1_500_000_000,
        8,
    ]
    assert [parse_duration(text) for text in ("30ms", ".5us", "0s", "2min", "1h", "7ns")] == [
        30_000_000,
        500,
        0,
        120 * 10**9,
        3600 * 10**9,
        7,
    ]
    assert [parse_size(text) for text in ("0.25MB", "1KiB", "3kB", "0B")] == [
        250_000,
        1024,
        3000,
        0,
    ]
    assert parse_size("0.1GB") == 100_000_000  # exact: no float on the way


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mbit",
        "1e6bit",
        "١mbit",
        "9" * 18 + "gbit",
    ],
)
def test_odd_rates_are_refused(text: str) -> None:
    with pytest.raises(BadValue, match="^rate "):
        parse_rate(text)


@settings(deadline=None)
@given(st.integers(-(10**15), 10**15))
def test_seconds_text_reads_back(ns: int) -> None:
    assert to_ns(float(seconds_text(ns))) == ns
