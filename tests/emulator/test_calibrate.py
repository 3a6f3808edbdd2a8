"""Calibration: what is timed, what follows from the times, and the command.

No test depends on the speed of this host.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from emulator.calibrate import (
    Playable,
    Timing,
    measure,
    time_command,
    time_step,
)
from emulator.cli import run
from emulator.errors import BadValue

MS = 1_000_000
PYTHON = f"'{sys.executable}'"


def test_the_speed_played_is_that_of_the_90th_percentile_rounded_down() -> None:
    timing = Timing(32, (4 * MS,) * 8 + (5 * MS, 50 * MS))  # median 8000 samples/s, p90 6400
    assert Playable.on(timing, cores=4) == Playable(6400.0, 3)
    assert Playable.on(timing, cores=1) == Playable(6400.0, 1)
    assert Playable.on(Timing(1, (3 * MS,)), cores=2) == Playable(330.0, 1)


def test_only_the_runs_that_count_are_timed() -> None:
    now, runs = 0, 0

    def work() -> None:
        nonlocal now, runs
        runs += 1
        now += runs

    assert measure(work, repeat=3, warm_up=2, clock_ns=lambda: now) == (3, 4, 5)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"{PYTHON} -c \"import sys; sys.exit('boom')\"", "exit status 1, last error line: boom"),
        ("no-such-program-here --x", "No such file"),
        ("'open", "No closing quotation"),
    ],
)
def test_a_command_that_fails_is_one_line(command: str, words: str) -> None:
    with pytest.raises(BadValue) as caught:
        time_command(command, repeat=1)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_the_built_in_step_trains_and_leaves_torch_as_it_was() -> None:
    torch = importlib.import_module("torch")
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    losses: list[float] = []

    class Recorded(torch.nn.CrossEntropyLoss):
        def forward(self, output: Any, target: Any) -> Any:
            loss = super().forward(output, target)
            losses.append(loss.item())
            return loss

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn, "CrossEntropyLoss", Recorded)
        timing = time_step(repeat=20)
    assert losses[-1] < losses[0], "a training step, not an empty loop"
    assert (timing.samples, len(timing.times_ns)) == (32, 20) and min(timing.times_ns) > 0
    assert torch.get_num_threads() == threads and torch.equal(torch.get_rng_state(), state)


def test_without_torch_there_is_a_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run(["calibrate"]) == 2
    out, error = capsys.readouterr()
    assert (
        out == ""
        and error.count("\n") == 1
        and "torch, which is not installed;" in error
        and "--command" in error
    )


# ---------------------------------------------------------------------- the command
@pytest.mark.processes
def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "speed.json"
    words = ["--command", f"{PYTHON} -c pass", "--samples", "50", "--repeat", "2"]
    assert run(["calibrate", *words, "--json", str(file)]) == 0
    last, after = capsys.readouterr().out.splitlines()[-2:]
    written = json.loads(file.read_text())
    assert (
        after.startswith("Next: ")
        and last.startswith("samples_per_s = ")
        and float(last.split()[-1]) == pytest.approx(written["plays_samples_per_s"])
    )
    assert (written["repeat"], written["samples"], written["step"]) == (2, 50.0, None)
    assert (
        written["plays_samples_per_s"]
        <= written["samples_per_s_p90"]
        <= written["samples_per_s_median"]
    )
    assert written["plays_devices"] == max(1, written["host"]["cores"] - 1)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--samples", "3"], "expected only with --command"),
        (["--repeat", "0"], "repeat 0"),
        (["--command", "true", "--samples", "1e308"], "samples 1e+308: expected at most 1e+15"),
        (["--command", "true", "--json", "no/such/folder/x.json"], "expected a file in a folder"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["calibrate", *arguments]) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1) and error.startswith("emulator: ") and words in error
