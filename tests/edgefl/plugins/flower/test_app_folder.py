"""Flower apps without flwr: their folders, the checks of a config, and code from the wire."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from flower_apps import PROJECT, flower_config, small_app

from edgefl.config.file import from_json, shared_digest, to_json
from edgefl.errors import UserError
from edgefl.plugins.flower.flower_app import app_folder, flat


def test_the_folder_of_an_app(tmp_path: Path) -> None:
    place = small_app(tmp_path, "app_a")
    found = app_folder("flower:app_a", (tmp_path / "elsewhere", tmp_path))
    assert (found.path, found.client, found.server) == (place, "app_a:client", "app_a:server")
    assert found.config == {"mode": "good", "nested.key": 1}
    assert found.run_config({"nested": {"key": 2}}) == {"mode": "good", "nested.key": 2}
    before = found.digest(found.config)
    assert before == found.digest(found.config) != found.digest({"mode": "other"})
    (place / "app_a.py").write_text("")
    assert found.digest(found.config) != before


@pytest.mark.parametrize(
    ("project", "said"),
    [
        (PROJECT.replace("clientapp", "client"), r"names no clientapp: expected clientapp = \"mod"),
        (PROJECT.replace("{module}:client", "client"), 'clientapp: expected "module:attribute"'),
        ("[tool", "is not valid TOML"),
        ("tool = 3", "tool: expected a table"),
        (PROJECT.replace('mode = "good"', "mode = [1]"), "mode: expected a truth value, a number"),
    ],
)
def test_a_project_that_is_no_app(tmp_path: Path, project: str, said: str) -> None:
    small_app(tmp_path, "app_b", project)
    with pytest.raises(UserError, match=said) as caught:
        app_folder("flower:app_b", (tmp_path,))
    assert "pyproject.toml" in str(caught.value)


def test_no_app_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"no folder {re.escape(str(tmp_path))}/gone"):
        app_folder("flower:gone", (tmp_path,))
    with pytest.raises(UserError, match=r"no file \S+/pyproject.toml, which every Flower app has"):
        app_folder("flower:.", (tmp_path,))
    with pytest.raises(UserError, match="expected a truth value"):
        flat({"a": None}, "here")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ['task="flower:gone"'],
            "task: 'flower:gone': expected .* the folder of an app, no folder",
        ),
        (["flower.samples=[1, 2]"], "one for each of the 4 edges, found 2"),
        (['flower.run_config={"local-epoch"=1}'], "no key 'local-epoch'.*nearest: 'local-epochs'"),
        (["task=my_task.py:build"], 'flower: expected task = "flower:PATH" with this table'),
        (["training.batches_per_epoch=1"], "training.batches_per_epoch: expected no such key"),
        (["evaluation.edges={}"], "evaluation.edges: expected no such table"),
        (["strategies=[{strategy='fedasync'}]"], "mu: expected 0 with a Flower app.*found 0.005"),
        (["strategies=[{strategy='feddyn'}]"], r"its edge half \(Dynamic\) has begin\(\)"),
        (["strategies=[{strategy='wkafl'}]"], "cannot train with a Flower app"),
        (["strategies=[{strategy='port'}]"], "it ends tasks early"),
    ],
)
def test_what_a_flower_app_cannot_do(tmp_path: Path, overrides: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        flower_config(tmp_path, "flower_numpy", *overrides)
    assert "\n" not in str(caught.value)


def test_the_table_is_needed_and_its_samples(tmp_path: Path) -> None:
    flower_config(tmp_path, "flower_numpy")
    config = tmp_path / "flower.toml"
    text = config.read_text()
    start, end = text.index("[flower]"), text.index("[edges]")
    config.write_text(text[:start] + text[end:])
    with pytest.raises(UserError, match="flower: missing; task = "):
        flower_config(tmp_path, "flower_numpy")


@pytest.mark.parametrize(
    "strategy",
    ["fedavg", "fedprox', mu=0.0 #", "fedbuff"],
)
def test_strategies_without_an_edge_half_run(tmp_path: Path, strategy: str) -> None:
    name, _, more = strategy.partition("'")
    entry = f"strategies=[{{strategy='{name}'{more.removesuffix(' #')}}}]"
    assert flower_config(tmp_path, "flower_numpy", entry).strategies[0].strategy == name


def test_a_config_from_the_wire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edge takes the app from its own disk, if its user allows it."""
    small_app(tmp_path, "wired")
    here = flower_config(tmp_path, "wired", "flower.run_config={}")
    text = to_json(here, here.strategies[0])
    monkeypatch.chdir(tmp_path)
    task = "flower:wired"
    with pytest.raises(UserError, match=f"expected --allow-task {task} here"):
        from_json(text)
    there = from_json(text, (task,))
    assert there.flower == here.flower
    digests = {shared_digest(each, each.strategies[0]) for each in (here, there)}
    other = here.flower and here.flower.model_copy(update={"samples": 7})
    digests.add(shared_digest(here.model_copy(update={"flower": other}), here.strategies[0]))
    assert len(digests) == 2, "equal on both sides, and another one with other samples"
    monkeypatch.chdir("/")
    with pytest.raises(UserError, match="no folder"):
        from_json(text, (task,))
