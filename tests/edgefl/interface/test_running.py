"""``edgefl.run``, ``sweep`` and ``check``: experiments from Python, their callbacks and errors."""

from __future__ import annotations

import asyncio
import functools
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import CONFIGS, ROOT
from safetensors.numpy import load_file
from typer.testing import CliRunner

import edgefl
from edgefl import api, catalog
from edgefl.cli import app
from edgefl.config.file import Config
from edgefl.errors import UserError
from edgefl.interface import running
from edgefl.interface.running import ModelScores
from edgefl.strategies.base.catalog import strategy_names
from edgefl.strategies.fedasmu import FedASMUFA
from edgefl.strategies.fedasync import FedAsync, FedAsyncOptions
from edgefl.strategies.fedavg import FedAvg

pytestmark = pytest.mark.processes  # code of one's own is tried in a fork before a run
PAGE = ROOT / "docs" / "how-to" / "from-python.md"


class Mine(FedAvg):
    """A strategy of this module."""


SMALL: dict[str, Any] = {
    "name": "small",
    "edges": {"count": 3},
    "stop": {"versions": 12},
    "strategies": [FedAvg, "fedasync"],
}
BYTES = ("events.jsonl", "links.csv", "model.safetensors")  # the same in each run of a config


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for name in BYTES
        for path in folder.rglob(name)
    }


def quiet_run(config: Any = None, **more: Any) -> Any:
    return edgefl.run(config, progress=False, **more)


# ---------------------------------------------------------------------- what an experiment may be
def test_a_path_a_name_a_dict_and_objects_are_the_same_experiment(tmp_path: Path) -> None:
    file = CONFIGS / "quickstart.toml"
    read = Config.read(file)
    (expected,) = {running.config_of(each).experiment() for each in (file, str(file), "quickstart")}
    assert running.config_of(dict(read.tables)).experiment() == expected
    assert running.config_of(expected).experiment() == expected
    typed = api.Experiment(
        edges=api.Edges(count=3),
        stop=api.Stop(versions=3),
        strategies=(
            api.StrategyEntry(strategy=FedAvg),
            api.StrategyEntry(strategy="fedprox", mu=1.0),
        ),
    )
    plain = {
        "edges": {"count": np.int64(3), "availability": None},
        "stop": {"versions": 3},
        "strategies": ["fedavg", {"strategy": "fedprox", "mu": 1}],
    }
    found = [running.config_of(each).experiment() for each in (typed, plain)]
    assert found[0] == found[1] and found[1].strategies[1].options() == {"mu": 1}


def test_changes_are_texts_or_values() -> None:
    read = running.config_of({"stop": {"versions": 3}, "strategies": ["fedavg", "fedprox"]})
    texts = ["training.epochs=2", "strategies.fedprox.mu=0.5", "model.name=cnn"]
    values = {"training.epochs": 2, "strategies.1.mu": 0.5, "model": "cnn"}
    assert read.experiment(texts) == read.experiment(running.changes(values))
    with pytest.raises(UserError, match=r"^override 'training.epohcs=2': training.epohcs: unknown"):
        read.experiment({"training.epohcs": 2})
    with pytest.raises(UserError, match=r"^override 'stop.versions': expected a value, found None"):
        running.changes({"stop.versions": None})
    assert "training" not in read.tables, "changes leave the config as it was"


def test_a_class_or_a_function_has_the_name_by_which_it_is_found() -> None:
    assert catalog.name_of(FedASMUFA) == "fedasmu-fa"
    assert catalog.name_of(Mine) == f"{__name__}:Mine"
    assert catalog.load_dotted(catalog.name_of(Mine)) is Mine
    from edgefl.models.lenet5 import build, network
    from edgefl.strategies.selection.oldest_first import OldestFirst

    assert catalog.name_of(build) == "lenet5" and catalog.name_of(OldestFirst) == "oldest_first"
    assert catalog.name_of(network) == "edgefl.models.lenet5:network", "another function of it"
    assert [catalog.name_of(api.load_strategy(each)) for each in strategy_names()] == [
        *strategy_names()
    ]
    with pytest.raises(UserError, match="expected a subclass of edgefl.api.Strategy, found"):
        quiet_run({**SMALL, "strategies": [FedAsyncOptions]})


class Local:
    pass


Gone = Local


class Local:  # the name has another class now
    pass


def in_a_function() -> type:
    class Hidden(FedAvg):
        pass

    return Hidden


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (
            in_a_function(),
            r"^in_a_function.<locals>.Hidden: cannot be sent to the processes of a run",
        ),
        (lambda: None, "^<lambda>: cannot be sent to the processes of a run, because a function"),
        (Gone, "^Local: cannot be sent to the processes of a run, because .* has something else"),
        (functools.partial(print), "^expected a class, a function or a name, found partial"),
    ],
)
def test_what_other_processes_cannot_find_is_one_line(found: Any, line: str) -> None:
    with pytest.raises(UserError, match=line):
        quiet_run({**SMALL, "strategies": [found]} if found is not print else SMALL)


# ---------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"config": {**SMALL, "trainig": {}}},
            "the config: trainig: unknown key (nearest: 'training')",
        ),
        (
            {"config": "quikstart"},
            "quikstart: no such file (nearest that comes with edgefl: 'configs/",
        ),
        ({"config": SMALL, "on_evaluation": 3}, "on_evaluation: expected a function, found 3"),
        ({"config": 3}, "config: expected a path, a dict, an Experiment or the name of an"),
        ({}, "config: missing: expected a path"),
        (
            {"config": SMALL, "clock": "wal"},
            "clock: expected 'virtual' or 'wall', found 'wal' (nearest",
        ),
        ({"config": SMALL, "workers": 0}, "workers: expected at least 1, found 0"),
        (
            {"config": SMALL, "clock": "wall", "workers": 2},
            "--workers, --engine and --ray-address are for",
        ),
        ({"config": SMALL, "resume": "runs/small"}, "resume: goes on with the runs of a folder"),
        ({"resume": "runs/small"}, "--resume runs/small: no such directory"),
        ({"config": SMALL, "workers": "2"}, "workers: expected a whole number, found '2'"),
        ({"config": SMALL, "workers": 1.5}, "workers: expected a whole number, found 1.5"),
        ({"config": SMALL, "workers": None}, "workers: expected a whole number, found None"),
        ({"config": SMALL, "overrides": 5}, "overrides: expected a dict of keys and values, or"),
        ({"config": SMALL, "overrides": [5]}, "overrides: expected a dict of keys and values, or"),
        ({"config": {**SMALL, "data": 3}}, "expected a class, a function or a name, found int"),
        (
            {"config": SMALL, "clock": "wall", "overrides": {"network.host": "0.0.0.0"}},
            "network.host: edgefl run uses only this machine",
        ),
    ],
)
def test_bad_input_is_one_line(given: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as found:
        quiet_run(**given)
    assert str(found.value).startswith(line)
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/x/small: cannot be made \(Not a directory\)"):
        quiet_run(SMALL, out=tmp_path / "file" / "x")


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (lambda: api.Edges(cuont=3), r"^Edges: cuont: unknown key \(nearest: 'count'\)$"),
        (lambda: api.Experiment(stop=api.Stop(versions=1)), "^Experiment: strategies: missing$"),
        (lambda: api.Stop(), "^Stop: give at least one of versions"),
    ],
)
def test_a_wrong_table_of_a_typed_experiment_is_one_line(
    made: Callable[[], Any], line: str
) -> None:
    with pytest.raises(UserError, match=line):
        made()


def test_a_running_event_loop_is_not_blocked() -> None:
    async def directly() -> None:
        quiet_run(SMALL)

    async def beside() -> Any:
        return await asyncio.to_thread(quiet_run, {**SMALL, "strategies": ["fedavg"]})

    with pytest.raises(UserError, match=r"expected await asyncio.to_thread\(edgefl.run, ...\)"):
        asyncio.run(directly())
    assert list(asyncio.run(beside())) == ["fedavg"]


def test_a_class_of_a_notebook_needs_the_virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", "<stdin>", raising=False)
    kind = type("OfACell", (FedAvg,), {"__module__": "__main__"})
    monkeypatch.setattr(main, "OfACell", kind, raising=False)
    config = {**SMALL, "strategies": [kind]}
    assert list(quiet_run(config)) == ["ofacell"]
    with pytest.raises(
        UserError, match="^OfACell: cannot be sent to other processes, because a note"
    ):
        quiet_run(config, clock="wall")
    monkeypatch.delattr(main, "OfACell")
    with pytest.raises(
        UserError,
        match=r"^the config: strategies\[0\].strategy: OfACell: cannot be sent to other",
    ):
        quiet_run({**SMALL, "strategies": ["__main__:OfACell"]})


# ---------------------------------------------------------------------- runs
def test_a_run_from_python_has_the_bytes_of_one_by_the_command(tmp_path: Path) -> None:
    found = quiet_run(SMALL, overrides={"seed": 4})
    assert sorted(found) == ["fedasync", "fedavg"]
    dumped = running.config_of(SMALL).experiment({"seed": 4})
    from edgefl.config.file import dump

    (tmp_path / "small.toml").write_text(dump(dumped, {}))
    words = ["run", "small.toml", "--clock", "virtual", "--out", "again"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert bytes_of(tmp_path / "runs" / "small") == bytes_of(tmp_path / "again" / "small")
    assert (tmp_path / "runs/small/comparison.csv").is_file()


def test_nothing_is_printed_without_progress(capfd: pytest.CaptureFixture[str]) -> None:
    quiet_run(SMALL)
    assert capfd.readouterr() == ("", "")
    edgefl.run(SMALL)
    said = capfd.readouterr().out
    assert "moved to runs/small.1" in said and "fedavg: 12 versions" in said and "\x1b" not in said


def test_a_callback_ends_its_run_at_the_same_moment_with_any_workers(tmp_path: Path) -> None:
    seen: list[ModelScores] = []

    def at_five(scores: ModelScores) -> bool:
        seen.append(scores)
        return scores.strategy == "fedavg" and scores.version == 5

    quiet_run(SMALL, on_evaluation=at_five)
    of_fedavg = [each.version for each in seen if each.run == "fedavg"]
    assert of_fedavg == [*range(6)] and [each.version for each in seen if each.run != "fedavg"] == [
        *range(13)
    ]
    summary = json.loads((tmp_path / "runs/small/fedavg/summary.json").read_bytes())
    assert summary["finished"] == "stopped by a callback" and summary["versions"] == 5
    assert seen[5].accuracy == seen[5].numbers["accuracy"] == summary["final_accuracy"]
    assert seen[5].seed == 1 and seen[5].directory == Path("runs/small/fedavg")


@pytest.mark.parametrize("seeds", [[1], [1, 2]])
def test_workers_change_nothing(seeds: list[int], tmp_path: Path) -> None:
    """Two runs with two workers are done in forks, three leave one for both workers together."""
    config = {
        **SMALL,
        "seeds": seeds,
        "strategies": [FedAvg, "fedasync", FedAsync][: 2 + len(seeds) % 2],
    }
    if len(config["strategies"]) == 3:
        config["strategies"][2] = {"strategy": FedAsync, "label": "again"}
    counts = []
    for workers in (1, 2.0):
        seen: list[tuple[str, int]] = []

        def look(scores: ModelScores, seen: list[Any] = seen) -> bool:
            seen.append((scores.run, scores.version))
            return scores.version == 4

        quiet_run(config, workers=workers, out=f"with{workers:g}", on_evaluation=[look])
        counts.append(sorted(seen))
    assert counts[0] == counts[1] and len(counts[0]) >= 10
    assert bytes_of(tmp_path / "with1") == bytes_of(tmp_path / "with2")


def test_a_run_ends_although_the_rows_of_another_came_first(tmp_path: Path) -> None:
    """Rows of a run that is done in a fork may be read when another run begins."""
    scored = running.Evaluations(lambda scores: np.bool_(scores.run == "a")).scored()
    assert scored is not None
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(f'seed = 1\nrun = {{ strategy = "{name}" }}')
    assert scored(tmp_path / "a") is None
    columns = "version,emulated_s,wall_s,bytes_up,bytes_down"
    (tmp_path / "a" / "metrics.csv").write_text(f"{columns}\n1,1.0,1.0,5,5\n")
    assert scored(tmp_path / "b") is None
    assert scored(tmp_path / "a") == "stopped by a callback"


def test_callbacks_get_the_scores_of_a_model_that_has_diverged(tmp_path: Path) -> None:
    seen: list[ModelScores] = []
    evaluations = running.Evaluations(lambda scores: seen.append(scores))
    scored = evaluations.scored()
    assert scored is not None
    (tmp_path / "config.toml").write_text('seed = 1\nrun = { strategy = "a" }')
    (tmp_path / "metrics.csv").write_text(
        "version,emulated_s,wall_s,train_loss,test_loss,accuracy,bytes_up,bytes_down\n"
        "1,1.0,1.0,inf,nan,0.1,5,5\n"
        "2,2.0,2.0,,-inf,nan,9,9\n"
    )
    assert scored(tmp_path) is None and evaluations.failure is None
    diverged, further = seen
    assert math.isnan(diverged.test_loss) and diverged.numbers["train_loss"] == math.inf
    assert math.isnan(further.accuracy) and further.test_loss == -math.inf
    assert further.bytes_up == 9 and "train_loss" not in further.numbers, "an empty field is none"


def test_what_a_callback_raises_comes_after_a_clean_stop(tmp_path: Path) -> None:
    quiet_run(SMALL, out="whole")

    def fails(scores: ModelScores) -> None:
        if scores.version == 3:
            raise ZeroDivisionError("in the callback")

    with pytest.raises(ZeroDivisionError, match="in the callback") as found:
        quiet_run(SMALL, on_evaluation=fails)
    assert found.value.__notes__ == ["to go on with it: edgefl.run(resume='runs/small')"]
    versions: list[int] = []
    quiet_run(resume="runs/small", on_evaluation=lambda scores: versions.append(scores.version))
    assert versions[:6] == [0, 1, 2, 3, 4, 5], "the earlier ones come once more"
    assert bytes_of(tmp_path / "runs" / "small") == bytes_of(tmp_path / "whole" / "small")


OWN = """
from edgefl.api import load_strategy


class Careful(load_strategy("fedavg")):
    def aggregate(self, updates):
        return super().aggregate(updates) * {}
"""


def last_weights(run: Any) -> np.ndarray:
    return load_file(run.path / "model.safetensors")["weights"]


def test_a_file_that_has_changed_is_loaded_anew_by_the_next_call(tmp_path: Path) -> None:
    own = tmp_path / "my_algo.py"
    own.write_text(OWN.format(0.5))
    name = "my_algo.py:Careful"
    config = SMALL | {"strategies": [name, {"strategy": name, "label": "again"}]}
    config |= {"stop": {"versions": 2}}

    def rewrite(scores: ModelScores) -> None:
        own.write_text(OWN.format(0.0))
        with pytest.raises(UserError):
            edgefl.check({}, progress=False)  # a call within a call

    before = quiet_run(config, out="before", on_evaluation=rewrite)
    first, again = (last_weights(run) for run in before.values())
    assert first.any() and (first == again).all(), "a run keeps the code with which its call began"
    after = quiet_run(config, out="after", workers=2)
    assert not any(last_weights(run).any() for run in after.values())
    assert before["careful"].state == "finished" and before["careful"].facts["versions"] == 2
    assert (last_weights(before["careful"]) == first).all()


def test_ctrl_c_leaves_runs_that_go_on(tmp_path: Path) -> None:
    quiet_run(SMALL, out="whole")

    def pressed(scores: ModelScores) -> None:
        if scores.version == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=r"edgefl.run\(resume='runs/small'\)"):
        quiet_run(SMALL, on_evaluation=pressed)
    with pytest.raises(UserError, match="of which only stop keys may change: training.epochs is 2"):
        quiet_run(resume="runs/small", overrides={"training.epochs": 2})
    assert sorted(quiet_run(resume="runs/small")) == ["fedasync", "fedavg"]
    assert bytes_of(tmp_path / "runs" / "small") == bytes_of(tmp_path / "whole" / "small")
    longer = quiet_run(resume="runs/small", overrides={"stop.versions": 14})
    assert sorted(longer) == ["fedasync", "fedavg"]


def test_torch_has_its_threads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from edgefl.models import torch_device

    monkeypatch.setattr(torch_device, "_before", [])
    former = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        quiet_run({**SMALL, "training": {"engine": "torch"}})
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(former)


@pytest.mark.parametrize("does", [edgefl.run, edgefl.check])
def test_warnings_about_the_config_are_warnings(does: Callable[..., Any]) -> None:
    entry = {"strategy": "fedavg", "clients_per_round": 9}
    with pytest.warns(
        UserWarning, match="fedavg: clients_per_round = 9 is more than the number"
    ) as warned:
        does({**SMALL, "strategies": [entry]}, progress=False)
    assert warned[0].filename == __file__


# ---------------------------------------------------------------------- sweep and check
def test_a_sweep_returns_its_settings_and_skips_what_is_done(
    capfd: pytest.CaptureFixture[str],
) -> None:
    grid = {"training.learning_rate": [0.05, 0.1], "seed": [1, 2]}
    found = edgefl.sweep(SMALL, grid, progress=False)
    assert capfd.readouterr().out == ""
    assert [row["training.learning_rate"] for row in found.settings] == [0.05, 0.1] * 2
    assert {row["n"] for row in found.settings} == {2} and set(found.best) == {"fedavg", "fedasync"}
    assert ">fedasync</td>" in found._repr_html_()
    seen: list[ModelScores] = []
    again = edgefl.sweep(SMALL, grid, progress=False, on_evaluation=lambda each: seen.append(each))
    assert again.settings == found.settings and seen == []
    with pytest.warns(UserWarning, match="different numbers of settings") as warned:
        words = edgefl.sweep(
            SMALL, ["strategies.fedasync.alpha=0.5,0.6"], best=False, progress=False
        )
    assert warned[0].filename == __file__
    assert words.best == {} and len(words.settings) == 3


def test_a_grid_has_lists_single_values_or_words() -> None:
    grid = {"seed": range(1, 3), "training.epochs": 2, "partition": {"name": "iid"}, "a": "1..2"}
    expected = ["seed=1,2", "training.epochs=2", 'partition={name = "iid"}', "a=1..2"]
    assert running._words(grid) == expected


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"grid": {}}, "^--grid: missing"),
        ({"grid": {"training.lr": [1, 2]}}, "training.lr"),
        ({"grid": {"seed": [1.5]}}, "^--grid seed: expected whole numbers"),
        ({"grid": {"training.epochs": [1, 2]}, "metric": "acuracy"}, "^--metric acuracy: unknown"),
    ],
)
def test_a_wrong_sweep_is_one_line(more: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError, match=line):
        edgefl.sweep(SMALL, progress=False, **more)


def test_check_estimates_without_running(tmp_path: Path) -> None:
    found = edgefl.check({**SMALL, "stop": {"emulated_s": 5.0}}, progress=False)
    assert [each.name for each in found.estimates] == ["fedavg", "fedasync"]
    assert found.estimates[0].emulated_s == 5.0 and not (tmp_path / "runs").exists()
    assert "2 strategies, 3 edges, 1 seed" in str(found) and "fedasync" in found._repr_html_()


# ---------------------------------------------------------------------- scripts
SCRIPT = """
import sys
import edgefl
from edgefl.api import load_strategy
from own_task import build

class Mine(load_strategy("fedavg")):
    pass

print("top", __name__, flush=True)
small = {"name": "small", "task": build, "edges": {"count": 2}, "stop": {"versions": 3},
         "strategies": [Mine]}
runs = edgefl.run(small, clock=sys.argv[1], progress=False)
print(*runs)

class Below(Mine):
    pass
"""


def test_the_import_of_a_script_ends_at_its_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["script.py", "virtual"])
    (tmp_path / "script.py").write_text(SCRIPT)
    assert catalog.load_dotted("script.py:Mine").__name__ == "Mine"
    with pytest.raises(UserError, match=r"Below is below the first run of script.py \(line 13\)"):
        catalog.load_dotted("script.py:Below")


@pytest.mark.rest
@pytest.mark.parametrize("clock", ["virtual", "wall"])
def test_a_script_without_a_guard_runs_its_own_class(clock: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    python = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    told = subprocess.run(
        [sys.executable, "script.py", clock],
        env=os.environ | {"PYTHONPATH": python},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert told.returncode == 0, told.stderr
    said = told.stdout.splitlines()
    assert said[0] == "top __main__" and said[-1] == "mine"
    assert len(said) == (2 if clock == "virtual" else 4), "the warm parent and the coordinator"
    assert (tmp_path / "runs/small/mine/summary.json").is_file()


def test_edgefl_alone_imports_little_and_names_what_it_has() -> None:
    program = "import sys, edgefl; print(*sys.modules); edgefl.runs"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not {"numpy", "torch", "pydantic", "typer"} & {*told.stdout.split()}
    assert "module 'edgefl' has no attribute 'runs'" in told.stderr
    stub = (ROOT / "edgefl" / "__init__.pyi").read_text()
    assert {*re.findall(r"import (\w+) as", stub)} == {*edgefl.INTERFACE}
    assert all(getattr(edgefl, name) for name in dir(edgefl))


# ---------------------------------------------------------------------- a notebook, and the page
CELLS = [
    "import edgefl\nfrom edgefl.api import load_strategy\nfrom own_task import build\n"
    'class Mine(load_strategy("fedavg")):\n    pass\n'
    'small = {"name": "small", "task": build, "edges": {"count": 2}, "stop": {"versions": 3}}',
    'edgefl.run({**small, "strategies": [Mine, "fedasync"]}, workers=2)',
    'edgefl.run({**small, "strategies": ["fedavg"]}, clock="wall", overwrite=True)',
    'edgefl.run({**small, "strategies": [Mine]}, clock="wall")',
]


@pytest.mark.rest
def test_a_notebook_shows_one_bar_and_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")]))
    cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=120, allow_errors=True).execute()
    outputs = [cell.outputs for cell in book.cells]
    assert outputs[0] == []
    for shown in outputs[1:3]:
        assert [each.output_type for each in shown] == ["display_data", "execute_result"]
        assert shown[0].data["text/html"].startswith('<progress value="1.000"')
        assert "<table" in shown[1].data["text/html"]
    assert "\x1b" not in str(outputs[:3])
    (refused,) = outputs[3]
    assert refused.ename == "UserError" and refused.evalue.startswith(
        "Mine: cannot be sent to other"
    )


@pytest.mark.rest
def test_the_examples_of_the_page_run_in_their_order(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (tmp_path / "page.py").write_text("\n".join(blocks), encoding="utf-8")
    (tmp_path / "wandb.py").write_text(
        "class Run:\n"
        "    def log(self, numbers, step): print('wandb', step, numbers['accuracy'])\n"
        "    def finish(self): print('finished')\n"
        "def init(**given): return Run()\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MLFLOW_DISABLE_TELEMETRY": "true"}
    told = subprocess.run(
        [sys.executable, "page.py"], env=environment, capture_output=True, text=True, timeout=170
    )
    assert told.returncode == 0, told.stderr
    assert (tmp_path / "accuracy.png").stat().st_size > 10_000
    assert told.stdout.count("finished") == 3 and "wandb 1 0." in told.stdout
