"""Every command of ``emulator`` from a user's view: help, one line per error, a hint at the end."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from builders import EXAMPLES
from pages import command_lines

from edgefl.config.experiment import Devices, Links
from edgefl.config.links import DeviceEnergy, RadioEnergy
from emulator import profiles
from emulator.cli import run
from emulator.energy.power import DEVICE_POWER, RADIOS, device_power, radio_power
from emulator.profiles import DEVICES, LINKS

COMMANDS = (
    ["calibrate"],
    ["kernel", "check"],
    ["kernel", "run"],
    ["lab", "down"],
    ["lab", "exec"],
    ["lab", "link"],
    ["lab", "list"],
    ["lab", "run"],
    ["lab", "up"],
    ["profiles"],
    ["proxy"],
    ["tdma"],
    ["traces", "get"],
    ["traces", "list"],
    ["traces", "show"],
    ["transfer"],
)
LINK = "--map 127.0.0.1:0=127.0.0.1:1"


def said(words: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> str:
    """The standard output of a command with status 0; otherwise its one line of error."""
    assert run(words) == status, words
    out, error = capsys.readouterr()
    if status == 0:
        return out
    assert (out, error.count("\n")) == ("", 1) and error.startswith("emulator: "), (out, error)
    return error.removeprefix("emulator: ").strip()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_each_has_a_help_and_says_where_it_is(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"Usage: emulator {' '.join(words)} " in said([*words, "--help"], 0, capsys)
    error = said([*words, "--nonsense"], 2, capsys)
    # click's own words, as of several versions
    assert re.match(r"No such option:? '?--nonsense", error) and error.endswith(
        f"(see: emulator {' '.join(words)} --help)"
    )


@pytest.mark.rest
@pytest.mark.parametrize(
    "words",
    [words for words in command_lines("emulator") if words[0] in ("transfer", "tdma", "profiles")],
    ids=" ".join,
)
def test_the_readme_lines_that_need_nothing_work_and_end_with_a_hint(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "drive.csv").write_text("0,1000000\n1,2000000\n")
    last = said(words, 0, capsys).splitlines()[-1]
    assert last == "Next: open timeline.png" if "--figure" in words else last.startswith("Next: ")


@pytest.mark.parametrize("name", [*LINKS, *DEVICES, "phone"])
def test_what_is_there_to_paste_is_what_a_config_takes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = said(["profiles", name], 0, capsys).split("to paste into a config")[1:]
    tables = [tomllib.loads(block.partition("\n")[2].partition("\n\n")[0]) for block in blocks]
    if name in DEVICE_POWER:
        (energy,) = (table["devices"]["energy"] for table in tables if "devices" in table)
        assert DeviceEnergy(**energy).power(None) == device_power(name)
    if name in RADIOS:
        (radio,) = (table["links"]["radio"] for table in tables if "links" in table)
        assert RadioEnergy(**radio).power(None) == radio_power(name)
    table = tables[0]
    if name in DEVICES:
        assert Devices(**table).samples_per_s == profiles.device_profile(name).samples_per_s
    if name not in LINKS:
        return
    link, links = profiles.link_profile(name), Links(**table)
    assert (links.up_mbit_s, links.down_mbit_s, links.latency_ms) == (
        link.up_bit_s / 1e6,
        link.down_bit_s / 1e6,
        link.latency_ns / 1e6,
    )
    assert (links.jitter_ms, links.loss) == (link.jitter_ns / 1e6, link.loss)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("runn", "No such command 'runn'. Did you mean 'run'? "),
        ("run --up 1mbit", "Missing argument 'COMMAND' (see: emulator kernel run --help)"),
        ("run -- true", "nothing to emulate: give --profile, or one of --up"),
        ("run --up 0mbit -- true", "rate '0mbit': expected at least 1 bit/s"),
        ("run --up 200gbit -- true", "kernel mode supports 8 bit/s to 100 gbit"),
        ("run --profile ltee -- true", "link profile 'ltee' does not exist: did you mean lte?"),
    ],
)
def test_what_is_wrong_with_a_kernel_command(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in said(["kernel", *line.split()], 2, capsys)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "nothing to carry"),
        ("--listen 127.0.0.1:0", "expected both"),
        ("--listen 127.0.0.1:0 --to 127.0.0.1:0", "expected the port of a program, 1 to 65535"),
        ("--map 127.0.0.1:0", "expected LISTEN=TO"),
        ("--map 127.0.0.1:9=127.0.0.1:9", "LISTEN and TO are equal"),
        ("--map 127.0.0.1:70000=127.0.0.1:9", "listen '127.0.0.1:70000': expected HOST:PORT"),
        (f"{LINK} --up 2mib", "rate '2mib': 'mib' may be bits or bytes"),
        (f"{LINK} --loss 70% --up 1mbit --down 1mbit", "a share of packets from 0 to 0.5"),
        (f"{LINK} --loss 1%", "needs a rate"),
        (f"{LINK} --trace-down nowhere.trace", "trace nowhere.trace: cannot be read"),
        (f"{LINK} --seconds 0", "expected a number above 0"),
        (f"{LINK} --log nowhere/log.json", "cannot be written"),
    ],
)
def test_what_is_wrong_with_a_proxy(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in said(["proxy", *line.split()], 2, capsys)


@pytest.mark.processes
@pytest.mark.alone
def test_a_dead_stretch_is_a_warning_and_a_proxy_begins_and_ends_with_a_hint(
    tmp_path: Path,
) -> None:
    """Run in a separate process, because a proxy sets signal handlers and priority."""
    (tmp_path / "dead.csv").write_text("0,1000000\n1,0\n9,\n")
    words = f"proxy {LINK} --profile wifi --trace-up dead.csv --seconds 0.01".split()
    script = "from emulator.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    told = (
        "emulator: trace dead.csv repeats every 9 s\n"
        "emulator: warning: trace dead.csv: nothing for 8.000000000 s from 1.000000000 s on (more"
        " than 1.000000000 s)\n"
    )
    assert (done.returncode, done.stderr) == (0, told)
    first, *_, last = done.stdout.splitlines()
    assert (
        "up by its trace, 2 ms" in first
        and "down 52.6 Mbit/s, 2 ms" in first
        and "Next: let a program connect to" in done.stdout
    )
    assert last.startswith("Next: ") and "--log FILE" in last


@pytest.mark.rest
def test_links_of_one_s_own(capsys: pytest.CaptureFixture[str]) -> None:
    """The car's goodput under 1 % loss: 2.17 Mbit/s in the first second, 0.99 in the next two.

    It is 0 from 3 s to 5 s and 0.99 Mbit/s afterwards.
    """
    runpy.run_path(str(EXAMPLES / "my_links.py"))
    home, car = capsys.readouterr().out.splitlines()
    assert home == "home has sent its 600000 bytes at 4.810000000 s"
    assert re.fullmatch(r"car  has sent its 600000 bytes at 5\.6[6-9]\d+ s", car)


def test_kernel_check_tells_what_it_could_not_try(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert run(["kernel", "check"]) == 2
    out, error = capsys.readouterr()
    told = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert (told["root"], told["namespaces"], told["sch_htb"]) == (
        "no",
        "not tried",
        "not tried",
    ) and told["tc"] in ("yes", "no")
    assert error in (
        "emulator: kernel mode needs root (without root: emulator proxy)\n",
        "emulator: kernel mode needs Linux (any system: emulator proxy)\n",
    )
