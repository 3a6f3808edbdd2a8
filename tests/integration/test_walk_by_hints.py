"""A new user's way: each command is the line that the one before prints as a hint."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest
from html_pages import HtmlPage
from paths import CONFIGS
from processes import happened, start, wait_for
from terminals import end, family, gone

from edgefl.results import compare

pytestmark = pytest.mark.processes

SHORT = (
    "stop.emulated_s=6",
    "edges.count=4",
    "strategies=[{strategy='fedavg'},{strategy='fedasync'}]",
)
LONG = ("stop.versions=1000000", "stop.emulated_s=100000")
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\S+")
EXPORTS = {
    "perfetto": "trace.json",
    "tensorboard": "boards",
    "parquet": "tables",
    "mlflow": "mlflow.db",
}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user, with a copy of the quickstart."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    shutil.copy(CONFIGS / "quickstart.toml", tmp_path)
    return tmp_path


def hint(out: str) -> str:
    """Return the last line that a command printed: the next command."""
    last = out.splitlines()[-1]
    assert last.startswith("next: edgefl "), out
    return last.removeprefix("next: ")


def done(started: list[subprocess.Popen[str]], words: list[str]) -> str:
    """Run a command to its end; return what it printed."""
    process = start(started, *words)
    if words[0] == "view":
        page_of(process)
        os.killpg(process.pid, signal.SIGINT)
    status, out, err = end(process)
    assert status == 0, f"edgefl {shlex.join(words)}\n{out}\n{err}"
    return out


def page_of(process: subprocess.Popen[str]) -> str:
    """Return the page of `edgefl view`, at the address that it prints."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := ADDRESS.search(line):
            with urllib.request.urlopen(found[0]) as answer:
                return answer.read().decode()
    raise AssertionError(f"no address: {end(process)}")


@pytest.mark.rest
def test_each_command_names_the_next_one(desk: Path, started: list[subprocess.Popen[str]]) -> None:
    line = shlex.join(["edgefl", "run", "quickstart.toml", "--clock", "virtual", *SHORT])
    walked = []
    while line and len(walked) < 6:
        words = shlex.split(line)[1:]
        walked.append(words[0])
        out = done(started, words)
        line = hint(out) if words[0] != "export" else ""
    assert walked == ["run", "compare", "plot", "view", "report", "export"]
    shown = HtmlPage((desk / "report.html").read_text())
    assert shown.wrong == [] and "fedasync" in shown.text
    assert (desk / "accuracy.png").stat().st_size > 10_000
    (trace,) = desk.glob("*.json")
    assert json.loads(trace.read_bytes())["traceEvents"]


def test_a_run_that_was_killed_is_shown_as_far_as_it_got(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    run = folder / "runs" / "small" / "fedasync"
    process = start(started, "run", "small.toml", "--clock", "wall", *LONG)
    wait_for(lambda: len(happened(run, event="update_arrived")) > 5)
    wait_for(lambda: len((run / "metrics.csv").read_text().splitlines()) > 2)
    others = family(process)
    for each in others:
        each.kill()
    assert gone(others)
    process.communicate()
    for name in ("events.jsonl", "links.csv", "metrics.csv"):
        with (run / name).open("a") as file:
            file.write('{"t":9.9,"ev')  # what a crash may leave
    (row,) = compare.load(run)
    assert row.mark == "unfinished" and row.versions > 0

    given = str(run.relative_to(folder))
    said = done(started, ["compare", given])
    assert "unfinished" in said and "edgefl run --resume" in hint(said)
    done(started, ["plot", given])
    assert (folder / "accuracy.png").stat().st_size > 10_000
    done(started, ["view", given])
    done(started, ["report", given])
    assert "unfinished" in HtmlPage((folder / "report.html").read_text()).text
    for kind, name in EXPORTS.items():
        done(started, ["export", given, "--to", kind, "--out", name])
        assert (folder / name).exists()
    assert json.loads((folder / "trace.json").read_bytes())["traceEvents"]
