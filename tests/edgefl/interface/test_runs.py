"""Runs as objects: what ``edgefl.load`` gives of finished, running, killed and old runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from builders import small_run
from compared_runs import evaluated_run
from paths import EXAMPLES, ROOT

import edgefl
from edgefl.catalog import load_dotted
from edgefl.clocks.setup.resumption import RunFolder
from edgefl.errors import UserError
from edgefl.interface.runs import Runs
from edgefl.results import compare
from edgefl.results.read import read_csv, read_events

pandas = pytest.importorskip("pandas")
NAMES, SEEDS = ("fedasync", "fedavg"), (1, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/quickstart with two strategies and two seeds, recorded with payloads."""
    above = tmp_path_factory.mktemp("made")
    for name in NAMES:
        for seed in SEEDS:
            _, run = small_run(
                above / f"{seed}",
                strategies=[{"strategy": name}],
                seed=seed,
                stop={"versions": 4},
                evaluation={"target_accuracy": 0.5},
                record={"payloads": True},
            )
            place = above / "runs" / "quickstart" / name / f"seed{seed}"
            place.parent.mkdir(parents=True, exist_ok=True)
            run.rename(place)
    return above / "runs" / "quickstart"


@pytest.fixture
def runs(folder: Path) -> Runs:
    return edgefl.load(folder)


@pytest.fixture
def pyplot() -> Iterator[object]:
    matplotlib.use("agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


# ---------------------------------------------------------------------- the mapping
def test_runs_have_the_names_of_the_comparison(runs: Runs, folder: Path) -> None:
    assert list(runs) == [f"{name}/seed{seed}" for name in NAMES for seed in SEEDS]
    run = runs["fedasync/seed2"]
    assert (run.key, run.name, run.seed, run.state) == ("fedasync/seed2", "fedasync", 2, "finished")
    assert run.path == folder / "fedasync" / "seed2"
    assert run.facts["versions"] == 4 and run.config["run"]["strategy"] == "fedasync"
    assert runs["quickstart/fedasync/seed2"] is run and "nothing" not in runs
    assert list(edgefl.load([folder / "fedavg"])) == [f"fedavg/seed{seed}" for seed in SEEDS]
    assert list(edgefl.load(str(run.path))) == ["fedasync/seed2"]


def test_an_unknown_run_is_one_line_and_a_key_error(runs: Runs) -> None:
    with pytest.raises(KeyError) as near:
        runs["fedasink/seed1"]
    assert str(near.value) == (
        "run 'fedasink/seed1': there is no such run (nearest: 'fedasync/seed1')"
    )
    with pytest.raises(UserError, match="'fedavg': there are several: fedavg/seed1, fedavg/seed2"):
        runs["fedavg"]
    with pytest.raises(UserError, match="'fedprox': there is no such one"):
        runs.compare()["fedprox"]


@pytest.mark.parametrize("paths", ["none", ["none"]])
def test_a_path_without_runs(tmp_path: Path, paths: str | list[str]) -> None:
    with pytest.raises(UserError, match="none: no such directory"):
        edgefl.load(paths)
    with pytest.raises(UserError, match="no run in it: expected the directory of an experiment"):
        edgefl.load(tmp_path)
    with pytest.raises(UserError, match="expected the directory .* found none"):
        edgefl.load([])


@pytest.mark.slow
@pytest.mark.processes
def test_loading_and_frames_import_neither_torch_nor_matplotlib(folder: Path) -> None:
    code = (
        "import sys, edgefl; runs = edgefl.load(sys.argv[1]); runs.metrics; runs.compare().text();"
        "assert not {'torch', 'matplotlib', 'typer'} & sys.modules.keys(), 'imported'"
    )
    words = [sys.executable, "-c", code, str(folder)]
    subprocess.run(words, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})


# ---------------------------------------------------------------------- frames
def test_frames_have_the_rows_of_the_files_with_types(runs: Runs) -> None:
    run = runs["fedasync/seed1"]
    rows, metrics = read_csv(run.path / "metrics.csv"), run.metrics
    assert [*metrics] == [*rows[0]] and len(metrics) == len(rows)
    assert metrics.version.tolist() == [int(row["version"]) for row in rows]
    assert str(metrics.version.dtype) == "int64" and str(metrics.accuracy.dtype) == "float64"
    links = run.links
    assert links.bytes.sum() == sum(int(row["bytes"]) for row in read_csv(run.path / "links.csv"))
    assert set(links.direction) == {"up", "down"}
    lines, events = read_events(run.path / "events.jsonl"), run.events
    assert len(events) == len(lines) and str(events.task.dtype) == "Int64"
    arrived = events[events.event == "update_arrived"].iloc[0]
    line = lines[arrived.line - 1]
    assert arrived["numbers.samples"] == line["numbers"]["samples"]
    assert (arrived.edge, arrived.task) == (line["edge"], line["task"])
    slices = run.frame("slices")
    assert {"compute", "uplink"} <= set(slices.lane)
    assert not (slices.end_s < slices.begin_s).any() and slices.end_s.isna().any(), "still open"


def test_frames_of_all_runs_say_which_run(runs: Runs) -> None:
    metrics = runs.metrics
    assert [*metrics][:4] == ["run", "name", "seed", "version"]
    counts = metrics.groupby(["name", "seed"]).size()
    assert counts.index.tolist() == [(name, seed) for name in NAMES for seed in SEEDS]
    assert len(runs.frame("decisions")) == sum(len(run.frame("decisions")) for run in runs.values())
    summary = runs.summary
    assert summary.run.tolist() == list(runs) and summary.versions.tolist() == [4] * 4
    for run in runs.values():
        assert run.summary.final_accuracy.item() == run.facts["final_accuracy"]


def test_columns_of_runs_that_differ_are_joined(tmp_path: Path) -> None:
    """A file that one run has not, and numbers that are whole in one run only."""
    for name, row in (("a", '{"t": 1, "fact": "x", "own": 1}'), ("b", '{"t": 1.5, "fact": "x"}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.jsonl").write_text(row + "\n")
    (tmp_path / "a" / "links.csv").write_text("edge,direction,kind,bytes\na,up,update,\n")
    found = edgefl.load(tmp_path)
    columns = found.columns("events")
    assert columns["t"].tolist() == [1.0, 1.5]
    assert isinstance(columns["own"], np.ma.MaskedArray) and columns["own"].tolist() == [1, None]
    assert found.events.own.isna().tolist() == [False, True]
    assert found.columns("links")["run"].tolist() == ["a"]
    assert found.columns("links")["bytes"].mask.all()
    assert found.columns("slots")["run"].size == 0 and found.frame("slots").empty
    assert found["b"].columns("links") == {}
    with pytest.raises(UserError, match="table 'metrik': there is no such table"):
        found.frame("metrik")


def test_without_pandas_a_frame_is_one_line_and_columns_are_there(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="a frame .* needs the package 'pandas'"):
        _ = runs.metrics
    with pytest.raises(UserError, match="needs the package 'pandas'"):
        runs.compare().frame()
    columns = runs.columns("metrics")
    assert len({len(values) for values in columns.values()}) == 1
    assert {type(values) for values in columns.values()} == {np.ndarray}


# ---------------------------------------------------------------------- unfinished, damaged, old
def killed(folder: Path, source: Path) -> Path:
    """As after kill -9: torn last lines, no summary."""
    folder.mkdir()
    for name in ("events.jsonl", "links.csv", "metrics.csv"):
        (folder / name).write_bytes((source / name).read_bytes()[:-20])
    shutil.copy(source / "config.toml", folder)
    return folder


def test_a_killed_run_is_read_as_far_as_it_got(runs: Runs, tmp_path: Path) -> None:
    whole = runs["fedavg/seed1"]
    run = edgefl.load(killed(tmp_path / "killed", whole.path))["killed"]
    assert run.state == "killed" and run.facts == {}
    assert len(run.metrics) == len(whole.metrics) - 1
    assert run.summary.verdict.item() == "unfinished"
    with pytest.raises(UserError, match="no such file; a run writes its model when it ends"):
        run.model()


def test_a_frame_has_the_rows_that_came_meanwhile(runs: Runs, tmp_path: Path) -> None:
    place = killed(tmp_path / "killed", runs["fedavg/seed1"].path)
    run = edgefl.load(place)["killed"]
    before = len(run.metrics)
    with (place / "metrics.csv").open("ab") as file:
        file.write((runs["fedavg/seed1"].path / "metrics.csv").read_bytes()[-20:])
    assert len(run.metrics) == before + 1


def test_a_damaged_file_is_one_line_which_names_another_version(tmp_path: Path) -> None:
    run = evaluated_run(tmp_path / "old" / "fedavg", 1, [0.1, 0.9])
    (run / "events.jsonl").write_text('{"t": "soon"}\n')
    (run / "links.csv").write_text("edge,edge\na,b\n")
    with pytest.raises(UserError, match=r"links\.csv: a column comes twice \(edge,edge\)$"):
        _ = edgefl.load(run).links
    (tmp_path / "old" / "experiment.toml").write_text('[run]\nedgefl = "0.0.7"\n')
    runs = edgefl.load(tmp_path / "old")
    by = rf"; written by edgefl 0\.0\.7, this is {re.escape(edgefl.__version__)}$"
    with pytest.raises(UserError, match=rf"line 1 is no row of events.*{by}"):
        _ = runs.events
    with pytest.raises(UserError, match=rf"a column comes twice.*{by}"):
        runs["fedavg"].frame("links")
    (run / "summary.json").write_text('{"versions": "many"}')
    with pytest.raises(UserError, match=by):
        runs.compare()
    assert "written by edgefl 0.0.7" in runs._repr_html_()


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(runs: Runs, tmp_path: Path) -> None:
    place = shutil.copytree(runs["fedavg/seed1"].path, tmp_path / "mine")
    (place / "summary.json").chmod(0)
    with pytest.raises(UserError, match="cannot be read"):
        _ = edgefl.load(place)["mine"].facts


# ---------------------------------------------------------------------- comparison
def test_a_comparison_is_the_table_of_the_command(runs: Runs, folder: Path) -> None:
    found = runs.compare(baseline="fedavg", target=0.5)
    asked = compare.Question("fedavg", target=0.5)
    assert found.answer == compare.answer([folder], asked)
    assert list(found) == list(NAMES)
    gain = found["fedasync"].gain
    assert gain is not None and gain.pairs == 2
    frame = found.frame().set_index("name")
    assert frame.accuracy_low["fedasync"] == found["fedasync"].accuracy.interval.low
    assert frame.gain["fedasync"] == gain.size and np.isnan(frame.gain["fedavg"])
    assert found.frame("runs").seed.tolist() == [1, 2, 1, 2]
    text = found.text()
    assert "Against fedavg" in text and str(found) == text
    assert max(map(len, text.split("\n"))) <= 100
    assert found.markdown().startswith("| strategy |")
    assert r"\begin{tabular}{lr}" in found.latex(["accuracy"])
    with pytest.raises(UserError, match="there is no such column"):
        found.latex(["acuracy"])
    for wrong, told in (
        ({"baseline": "fedav"}, "baseline fedav: there is no such run (nearest: 'fedavg')"),
        ({"accuracy": "finl"}, "--accuracy finl: there is no such one (nearest: 'final')"),
        ({"target": 90}, "--target 90: expected an accuracy up to 1, such as 0.9 for 90 %"),
        ({"effect": 0.01}, "--effect 0.01: expected it with --baseline"),
        ({"x": "byte"}, "--x byte: there is no such x (nearest: 'bytes')"),
        ({"target": "0.9"}, "--target '0.9': expected a number"),
        ({"effect": "0.1", "baseline": "fedavg"}, "--effect '0.1': expected a number"),
        ({"baseline": 1}, "baseline: expected the name of a strategy or a run, found 1"),
    ):
        with pytest.raises(UserError, match=f"^{re.escape(told)}"):
            runs.compare(**wrong)
    for run in (runs["fedavg/seed2"], "fedavg/seed2"):
        assert runs.compare(baseline=run, target=np.float32(0.5)).answer.baseline == "fedavg"
    assert "mean_model_age_s_mean" in runs.compare(age=True).frame()


class Cells(HTMLParser):
    """The texts of the cells of a table, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def test_a_notebook_shows_compact_tables(runs: Runs, tmp_path: Path) -> None:
    head, *rows = Cells(runs._repr_html_()).rows
    assert head[:3] == ["strategy", "seeds", "accuracy, final"] and head[-1] == "verdict"
    assert [row[:2] for row in rows] == [["fedasync", "2"], ["fedavg", "2"]]
    assert "interval" not in runs._repr_html_()
    assert "95 % intervals" in runs.compare(baseline="fedavg")._repr_html_()
    evaluated_run(tmp_path / "<b>", 1, [0.1, 0.9])
    assert "&lt;b&gt;" in edgefl.load(tmp_path)._repr_html_()


def test_runs_that_cannot_be_compared_have_a_table_with_the_reason(tmp_path: Path) -> None:
    evaluated_run(tmp_path / "one", 1, [0.1, 0.9])
    evaluated_run(tmp_path / "two", 1, [0.1, 0.9], metric="f1")
    found = edgefl.load(tmp_path)
    assert [row[0] for row in Cells(found._repr_html_()).rows][:3] == ["run", "one", "two"]
    assert "different evaluation.metric" in found._repr_html_()
    assert len(found.summary) == 2 and "final_f1" in found.summary


# ---------------------------------------------------------------------- figures and reports
@pytest.mark.slow
def test_each_kind_of_figure_gives_its_axes(runs: Runs, pyplot: object) -> None:
    kinds = runs.kinds()
    assert {"accuracy", "loss", "timeline", "age", "time-to-target"} <= {*kinds}
    for kind in kinds:
        axes = np.atleast_1d(runs.plot(kind))
        assert all(each.has_data() for each in axes)
        figure = axes[0].figure
        assert pyplot.fignum_exists(figure.number)  # a notebook shows it
        own, places = pyplot.subplots(1, len(axes), squeeze=False)
        size = own.get_size_inches().tolist()
        again = np.atleast_1d(runs.plot(kind, ax=places, x="version" if kind == "loss" else ""))
        assert again.tolist() == places.ravel().tolist()
        assert all(each.has_data() for each in again) and own.get_size_inches().tolist() == size
        pyplot.close("all")


def test_a_figure_that_cannot_be_drawn_is_one_line(runs: Runs, pyplot: object) -> None:
    _, axes = pyplot.subplots()
    with pytest.raises(UserError, match="ax: this figure needs 2 axes, found 1"):
        runs.plot("timeline", ax=axes)
    with pytest.raises(UserError, match=r"kind acuracy: no such figure \(nearest: 'accuracy'\)"):
        runs.plot("acuracy")
    with pytest.raises(UserError, match="nothing to draw"):
        runs.plot("slots")
    for wrong in (
        *({"width": "colum"}, {"log": "z"}, {"ylim": (2, 1)}, {"xlim": (None, None)}),
        *({"xlim": 10}, {"xlim": (0, 10, 20)}, {"ylim": "0,1"}, {"ylim": ("0", None)}),
        *({"target": "0.9"}, {"title": 5}, {"labels": {"fedavg": 5}}, {"labels": ["A"]}, {"ax": 5}),
    ):
        (option,) = wrong
        with pytest.raises(UserError, match=f"^(--)?{option.rstrip('s')}.*: expected"):
            runs.plot("loss", **wrong)
    before = pyplot.get_fignums()
    with pytest.raises(UserError, match="--label nobody: not in this figure"):
        runs.plot("loss", labels={"nobody": "x"})
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize(
    ("word", "label"),
    [
        ("time", "Emulated time (s)"),
        ("emulated_s", "Emulated time (s)"),
        *((word, "Model version") for word in ("version", "versions")),
        *((word, "Round") for word in ("round", "rounds")),
    ],
)
def test_tables_and_figures_know_the_same_words_for_x(
    runs: Runs, pyplot: object, word: str, label: str
) -> None:
    assert runs.compare(x=word, target=0.5).answer.axis.columns
    assert np.ravel(runs.plot("accuracy", x=word))[-1].get_xlabel() == label


def test_a_report_has_the_name_of_a_page(runs: Runs, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"r\.pdf: expected a file that ends in \.html"):
        runs.report(tmp_path / "r.pdf")


# ---------------------------------------------------------------------- weights
def test_a_model_is_a_state_dict(runs: Runs) -> None:
    import torch
    from safetensors.numpy import load_file

    run = runs["fedavg/seed1"]
    state, flat = run.model(), load_file(run.path / "model.safetensors")["weights"]
    assert all(isinstance(tensor, torch.Tensor) for tensor in state.values())
    assert torch.cat([tensor.ravel() for tensor in state.values()]).tolist() == flat.tolist()
    network = load_dotted("my_task.py:build", EXAMPLES)().model()
    assert not any(network.load_state_dict(state))


def test_any_version_of_a_run_with_payloads(runs: Runs) -> None:
    run = runs["fedasync/seed1"]
    models = [run.model(version) for version in range(5)]
    same = {name: bool((models[4][name] == tensor).all()) for name, tensor in run.model().items()}
    assert all(same.values())
    assert len({each[next(iter(each))].numpy().tobytes() for each in models}) == 5
    with pytest.raises(UserError, match="there is no version 5: expected 0 to 4"):
        run.model(5)


def test_a_run_without_payloads_has_its_last_model(runs: Runs, tmp_path: Path) -> None:
    place = shutil.copytree(runs["fedavg/seed1"].path, tmp_path / "plain")
    shutil.rmtree(place / "journal")
    run = edgefl.load(place)["plain"]
    assert list(run.model(4)) == list(run.model())
    with pytest.raises(UserError, match=r"version 2 is not kept, only the last one \(4\); with"):
        run.model(2)
    (place / "layout.json").unlink()  # a run of an older version
    again = run.model()
    assert {name: tuple(t.shape) for name, t in again.items()} == {
        name: tuple(t.shape) for name, t in runs["fedavg/seed1"].model().items()
    }


# ---------------------------------------------------------------------- runs under way
def test_following_gives_each_row_once_and_ends_with_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    run = evaluated_run(folder / "one", 1, [0.1, 0.5, 0.9])
    summary, table = run / "summary.json", run / "metrics.csv"
    kept, rows = summary.read_bytes(), table.read_text().splitlines(keepends=True)
    summary.unlink()
    table.write_text("".join(rows[:2]))
    (folder / "experiment.toml").touch()
    command = RunFolder(folder)
    command.lock()
    runs = edgefl.load(folder)
    assert runs["one"].state == "running"
    found, first = [], threading.Event()

    def goes_on() -> None:
        first.wait(20)
        with table.open("a") as file:
            file.write("".join(rows[2:]))
        summary.write_bytes(kept)
        evaluated_run(folder / "two", 1, [0.2])  # begins after ``follow``
        command.release()

    writer = threading.Thread(target=goes_on)
    writer.start()
    for row in runs.follow(poll_s=0.01):
        found.append((row["run"], row["version"], row["accuracy"]))
        first.set()
    writer.join()
    assert found == [("one", 0, 0.1), ("one", 1, 0.5), ("one", 2, 0.9), ("two", 0, 0.2)]
    assert [row["version"] for row in runs["one"].follow()] == [0, 1, 2]


def test_following_a_killed_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgefl.interface.runs.QUIET_S", 0.05)
    run = evaluated_run(tmp_path / "one", 1, [0.1, 0.5], killed=True)
    assert len(list(edgefl.load(run).follow(poll_s=0.02))) == 2


# ---------------------------------------------------------------------- the page
@pytest.mark.slow
def test_the_code_of_the_page_runs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pyplot: object
) -> None:
    shutil.copytree(folder, tmp_path / "runs" / "quickstart")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "how-to" / "results-in-python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 5
    exec(compile("".join(blocks), "results-in-python.md", "exec"), {})
    assert (tmp_path / "accuracy.pdf").is_file()
    assert "data:image" in (tmp_path / "report.html").read_text()
