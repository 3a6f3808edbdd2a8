"""The report as one HTML file: what it shows, that it needs nothing else, and texts of others."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from builders import EXAMPLES
from compared_runs import evaluated_run
from html_pages import HtmlPage

from edgefl.clocks.choices import RUN, VIRTUAL
from edgefl.clocks.setup.learning import learning
from edgefl.clocks.setup.resumption import Origin
from edgefl.clocks.virtual.run import run_virtual
from edgefl.config.file import load
from edgefl.plugins.html_report import document as of_report
from edgefl.plugins.html_report.document import document
from edgefl.record.files import EXPERIMENT
from edgefl.results import compare, tables
from edgefl.results.run_files import RunFiles

CONFIG = """
name = "seen"
task = "my_task.py:build"
[edges]
names = ["a", "b", "c"]
[links]
up_mbit_s = 0.01
down_mbit_s = 0.04
latency_ms = 10.0
[stop]
versions = 3
[evaluation]
target_accuracy = 0.5
[[strategies]]
strategy = "fedavg"
[[strategies]]
strategy = "fedasync"
alpha = 0.25
"""
HOST = {
    "host": "pi-1",
    "machine": "2ec8d37fb00db88a",
    "model": "Raspberry Pi 5",
    "cpu": "Cortex-A76",
    "cores": 4,
    "memory_bytes": 8_000_000_000,
    "edges": ["a", "b"],
    "cpu_percent": {"mean": 81.3, "max": 88.7},
    "temperature_c": None,
    "throttled": None,
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an experiment with two finished runs, as `edgefl run` leaves it."""
    base = tmp_path_factory.mktemp("mine")
    shutil.copy(EXAMPLES / "my_task.py", base)
    (base / "seen.toml").write_text(CONFIG)
    experiment = load(base / "seen.toml")
    folder = base / "runs" / "seen"
    folder.mkdir(parents=True)
    (folder / EXPERIMENT).write_text(Origin(RUN, VIRTUAL, base).text(experiment))
    learned = learning(experiment, base)
    for index, entry in enumerate(experiment.strategies):
        run_virtual(learned, index, folder / entry.name)
    return folder


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the figures out, which take most of the time."""
    monkeypatch.setattr(of_report, "figures", lambda paths, target: ([], []))


UNDRAWN = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    """A copy of ``recorded`` that a test may change."""
    return Path(shutil.copytree(recorded, tmp_path / "seen"))


def page(*paths: Path) -> HtmlPage:
    return HtmlPage(document(paths))


def changed(path: Path, **facts: Any) -> None:
    """Change keys of a summary.json."""
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


def table(shown: HtmlPage, first: str) -> list[list[str]]:
    """Return the last table whose second column has this heading."""
    return next(rows for rows in reversed(shown.tables) if rows[0][1] == first)


@pytest.mark.slow
def test_the_file_is_whole_and_needs_nothing_else(recorded: Path) -> None:
    html = document([recorded])
    shown = HtmlPage(html)
    assert shown.wrong == []
    assert all(address.startswith(("data:", "#")) for address in shown.addresses)
    assert [address for address in shown.addresses if address.startswith("#")] == [
        f"#{each}" for each in shown.ids if not each.startswith("figure-")
    ], "each section is in the contents"
    assert "script" not in shown.tags and "url(" not in html and "@import" not in html
    assert "default-src 'none'" in html, "the browser refuses every request"
    assert document([recorded]) == html, "the same runs give the same bytes"
    kinds = [each.removeprefix("figure-") for each in shown.ids if each.startswith("figure-")]
    assert {"accuracy", "loss", "timeline", "staleness"} <= set(kinds)
    assert html.count("data:image/svg+xml;base64,") == len(kinds)
    numbers = [each for each in shown.addresses if each.startswith("data:text/csv")]
    text = base64.b64decode(numbers[kinds.index("accuracy")].partition(",")[2]).decode()
    assert text.splitlines()[0].startswith("name,") and "\nfedasync," in text


@UNDRAWN
def test_the_numbers_are_those_of_the_comparison(recorded: Path) -> None:
    shown = page(recorded)
    rows = {row.name: row for row in compare.load(recorded)}
    headings, *lines = table(shown, "accuracy final")
    assert [line[0] for line in lines] == ["fedavg", "fedasync"] == list(rows)
    place = {name: at for at, name in enumerate(headings)}
    for line in lines:
        row = rows[line[0]]
        assert line[place["accuracy final"]] == f"{row.final_accuracy:.3f}"
        assert line[place["versions"]] == str(row.versions)
        assert line[place["verdict"]] == "virtual"
    (ages,) = (each for each in shown.tables if "at work versions" in each[0])
    for line, name in zip(ages[1:], rows, strict=True):
        held = RunFiles(recorded / name).ages.held
        assert line[2].startswith(tables.three_digits(held.integrals()[0] / held.total_s))
    best = max(rows.values(), key=lambda row: row.final_accuracy or 0.0)
    assert f"{best.final_accuracy:.3f} ({best.name}); too few seeds to tell it" in shown.text
    assert "faithful runs" not in shown.text, "the virtual clock computes its times"


@UNDRAWN
def test_the_first_table_says_who_reaches_the_target_when_and_at_what_bytes(tmp_path: Path) -> None:
    """An evaluation a second, after 3 kB more; the target is 0.8, which c does not reach."""
    accuracies = {"a": [0.1, 0.5, 0.7, 0.9], "b": [0.1, 0.8, 0.85, 0.8], "c": [0.1, 0.2, 0.2, 0.2]}
    for name, values in accuracies.items():
        evaluated_run(tmp_path / name, 1, values)
    shown, target = page(tmp_path), ("to 0.8 (s)", "to 0.8 (kB)")
    assert shown.tables[0] == [
        ["strategy", "verdict", *target, "accuracy, final", "up (kB)", "down (kB)"],
        ["a", "virtual", "3.00", "9.00", "0.900", "3.00", "6.00"],
        ["b", "virtual", "1.00", "3.00", "0.800", "3.00", "6.00"],
        ["c", "virtual", "-", "-", "0.200", "3.00", "6.00"],
    ]
    assert "3 edges" in shown.text and "until 1000 versions" in shown.text


@UNDRAWN
def test_the_headline_says_what_the_seeds_cannot_tell(tmp_path: Path) -> None:
    """Final accuracies of a and b differ by +.02, -.02, +.01, -.005: a mean above, by chance. Those
    of c are .3 lower in each seed.
    """
    last = {"a": (0.82, 0.8, 0.82, 0.8), "b": (0.8, 0.82, 0.81, 0.805), "c": (0.5, 0.5, 0.51, 0.5)}
    for name, values in last.items():
        for seed, value in enumerate(values, start=1):
            evaluated_run(tmp_path / name / f"seed{seed}", seed, [0.1, value], target=None)
    assert "0.810 (a); cannot be told from b (p = " in (text := page(tmp_path).text)
    assert "from b and c" not in text


@UNDRAWN
def test_the_config_in_the_report_runs_again(recorded: Path, tmp_path: Path) -> None:
    shown = page(recorded)
    at = next(each for each in shown.addresses if each.startswith("data:application/toml"))
    text = base64.b64decode(at.partition(",")[2]).decode()
    assert text.strip() in "\n".join(shown.texts), "it can be read in the report, too"
    shutil.copy(EXAMPLES / "my_task.py", tmp_path)
    (tmp_path / "seen.toml").write_text(text)
    assert load(tmp_path / "seen.toml") == load(recorded / EXPERIMENT)
    assert "edgefl run seen.toml --clock virtual" in shown.text
    assert "my_task.py" in shown.text
    assert str(recorded.parents[1]) not in "\n".join(shown.texts), "no folder of this machine"


@UNDRAWN
def test_a_run_that_was_killed_is_shown_as_far_as_it_got(folder: Path) -> None:
    run = folder / "fedavg"
    (run / "summary.json").unlink()
    with (run / "metrics.csv").open("a") as file:
        file.write("4,9.9")
    shown = page(folder)
    assert shown.wrong == []
    assert table(shown, "verdict")[1] == ["fedavg", "unfinished"]
    assert "no complete summary.json: the run crashed or still runs" in shown.text
    assert "(torn last line in metrics.csv)" in shown.text
    assert "unfinished runs 1 of 2" in shown.text


@UNDRAWN
def test_reasons_and_hosts(folder: Path) -> None:
    reasons = ["7 of 39 transfers late", "the coordinator stalled for 2.1 s"]
    fidelity = {"verdict": "strained", "reasons": reasons, "transfers": 39}
    changed(folder / "fedavg" / "summary.json", fidelity=fidelity, hosts=[HOST])
    shown = page(folder)
    assert f"fedavg: strained {' '.join(reasons)}" in shown.text
    columns = ("host", "edges", "model", "CPU", "cores", "memory GB", "CPU mean %", "CPU max %")
    values = ("pi-1", "2", "Raspberry Pi 5", "Cortex-A76", "4", "8", "81.3", "88.7")
    assert table(shown, "host") == [["run", *columns], ["fedavg", *values]]
    assert "max °C" not in shown.text, "a column that is empty is left out"
    assert HOST["machine"] not in shown.html


@UNDRAWN
def test_energy_by_state_modelled_and_measured(folder: Path) -> None:
    assert "energy" not in page(folder).ids
    spent = {"idle_j": 5.0, "compute_j": 2.0, "send_j": 0.5, "receive_j": 0.0, "tail_j": 0.0}
    each = {"joules": 7.5, **spent}
    used = {"kind": "modelled", "joules": 15.0, "by_edge": {"a": each, "b": each}}
    changed(folder / "fedavg" / "summary.json", energy=used | {"measured_joules": 20.25})
    shown = page(folder)
    assert table(shown, "modelled J") == [
        ["run", "modelled J", "idle J", "compute J", "send J", "receive J", "tail J", "measured J"],
        ["fedavg", "15", "10", "4", "1", "0", "0", "20.25"],
    ]


@UNDRAWN
def test_texts_of_others_are_no_html(folder: Path) -> None:
    evil = '<script>alert(1)</script>"><img src=//x.example/y>'
    host = HOST | {"host": evil, "cpu": evil}
    fidelity = {"verdict": "strained", "reasons": [evil]}
    changed(folder / "fedavg" / "summary.json", fidelity=fidelity, hosts=[host], warnings=[evil])
    renamed = folder.with_name("<b>a & b")
    folder.rename(renamed)
    shown = page(renamed, renamed / "fedavg")
    assert shown.wrong == [] and "script" not in shown.tags and "b" not in shown.tags[:20]
    assert all(address.startswith(("data:", "#")) for address in shown.addresses)
    assert shown.text.count("<script>alert(1)</script>") >= 4, "they are shown as they are"
