"""Which code and files a config from the wire may name on an edge's machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from paths import ROOT

from edgefl.clocks.wall.edge.membership import SideBuilder
from edgefl.config import file
from edgefl.errors import UserError
from edgefl.protocol.messages import Setup

QUICKSTART = ROOT / "configs" / "quickstart.toml"
OWN = ("own_model.py:build", "own_data.py:load", "own_algo.py:Mine", "own_other.py:Other")


def wire(**changed: Any) -> str:
    here = file.load(QUICKSTART)
    raw = orjson.loads(file.to_json(here, here.strategies[0]))
    return orjson.dumps(raw | changed).decode()


# ------------------------------------------------------------------ files
@pytest.mark.parametrize(
    "data",
    [
        {"name": "huggingface", "path": "/home/somebody/private"},
        {"name": "huggingface", "path": "sets/../../private"},
        {"name": "leaf", "path": "..\\..\\private"},
        {"name": "leaf", "path": "leaf\0"},
    ],
)
def test_no_path_from_the_wire_leads_out_of_the_data_directory(data: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="leads out of this machine's data directory") as caught:
        file.from_json(wire(data=data))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"model": {"name": "mlp", "hidden": [2**40]}}, "model.hidden"),
        ({"training": {"epochs": 2**60}}, "training.epochs"),
    ],
)
def test_no_size_from_the_wire_is_without_a_bound(changed: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError) as caught:
        file.from_json(wire(**changed))
    assert key in str(caught.value) and "\n" not in str(caught.value)


def test_options_of_allowed_code_are_no_way_out_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("def load(place, options): ...\n")
    own = {"name": "own.py:load", "lists": [{"where": "/etc"}]}
    with pytest.raises(UserError, match=r"data\.lists\[0\]\.where: leads out of"):
        file.from_json(wire(data=own), ["own.py:load"])


def test_an_allowed_name_may_lie_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text("def load(place): ...\n")
    own = f"{tmp_path}/own.py:load"
    assert file.from_json(wire(data={"name": own}), [own]).data.name == own


def test_paths_below_the_data_directory_and_names_of_the_hub_pass() -> None:
    for data in (
        {"name": "leaf", "path": "sets/leaf"},
        {"name": "huggingface", "path": "ylecun/mnist", "revision": "refs/pr/1"},
    ):
        assert file.from_json(wire(data=data)).data.options() == {
            key: value for key, value in data.items() if key != "name"
        }


def test_traces_are_files_of_the_coordinator() -> None:
    links = {"trace_up": "/home/me/traces/up.csv"}
    assert file.from_json(wire(links=links)).links.trace_up == links["trace_up"]


def test_the_place_of_data_sets_never_comes_over_the_wire() -> None:
    with pytest.raises(UserError, match=r"data\.dir: is set on each machine: .*--data DIR"):
        file.from_json(wire(data={"name": "digits", "dir": "sets"}))


@pytest.mark.parametrize("mine", [False, True], ids=["coordinator's config", "own --config"])
def test_the_data_option_wins(tmp_path: Path, mine: bool) -> None:
    own = tmp_path / "own.toml"
    own.write_text(file.dump(file.load(QUICKSTART, ["data.dir=/from/the/file"]), {}))
    builder = SideBuilder("e000", own if mine else None, tmp_path / "said", [])
    assert builder.experiment(Setup(wire(), "fedavg"))[0].data.dir == str(tmp_path / "said")
    builder = SideBuilder("e000", own if mine else None, None, [])
    expected = "/from/the/file" if mine else None
    assert builder.experiment(Setup(wire(), "fedavg"))[0].data.dir == expected


def test_an_experiment_without_this_edge() -> None:
    text = wire(edges={"names": ["a", "b"]})
    with pytest.raises(UserError, match=r"the coordinator's config: edges: no edge 'e000'"):
        SideBuilder("e000", None, None, []).experiment(Setup(text, "fedavg"))


@pytest.mark.parametrize("speed", ["nan", 1e300, []])
def test_a_speed_that_is_none_is_not_taken(tmp_path: Path, speed: Any) -> None:
    own = tmp_path / "own.toml"
    own.write_text(file.dump(file.load(QUICKSTART, ["speed=auto"]), {}))
    mine = SideBuilder("e000", own, None, []).experiment
    assert 0 < mine(Setup(wire(speed=speed), "fedavg"))[0].chosen_speed <= 1
    assert mine(Setup(wire(speed=0.25), "fedavg"))[0].chosen_speed == 0.25


# ------------------------------------------------------------------ code
def own_everything(folder: Path) -> str:
    """The first Setup of a comparison in which all parts are user code."""
    for name in OWN:
        place, _, attribute = name.partition(":")
        text = f"from edgefl.api import Strategy\nclass {attribute}(Strategy): ..."
        (folder / place).write_text(text)
    here = file.load(
        QUICKSTART,
        [
            f"model={{name = '{OWN[0]}'}}",
            f"data.name={OWN[1]}",
            f"strategies=[{{strategy='fedavg'}},{{strategy='{OWN[2]}'}},{{strategy='{OWN[3]}'}}]",
        ],
    )
    return file.to_json(here, here.strategies[0])


def test_all_code_that_a_comparison_needs_is_told_at_the_first_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = own_everything(tmp_path)
    with pytest.raises(UserError) as caught:
        file.from_json(text)
    options = " ".join(f"--allow-task {name}" for name in (OWN[1], OWN[0], *OWN[2:]))
    assert f"which is code of this machine: expected {options} here" in str(caught.value)
    assert file.from_json(text, OWN).strategies[0].name == "fedavg"


def test_files_that_are_not_there_or_broken_are_told_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = own_everything(tmp_path)
    (tmp_path / "own_algo.py").unlink()
    (tmp_path / "own_model.py").unlink()
    (tmp_path / "broken.py").write_text("import no_such_package")
    raw = orjson.loads(text)
    text = orjson.dumps(raw | {"own_code": [*raw["own_code"], "broken.py:x"]}).decode()
    with pytest.raises(UserError) as caught:
        file.from_json(text, [*OWN[1:], "broken.py:x"])
    told = str(caught.value)
    assert "--allow-task own_model.py:build here" in told and "No module named" in told
    assert f"no file {tmp_path / 'own_algo.py'}" in told
    assert f"no file {tmp_path / 'own_model.py'}" in told


@pytest.mark.parametrize("names", [[1], ["a:b"] * 1001])
def test_a_damaged_list_of_code(names: Any) -> None:
    with pytest.raises(UserError, match="own_code: expected names of code"):
        file.from_json(wire(own_code=names))


def test_an_option_that_the_message_asks_for_is_safe_to_paste() -> None:
    with pytest.raises(UserError) as caught:
        file.from_json(wire(task="x.py:a; reboot"))
    assert "expected --allow-task 'x.py:a; reboot' here" in str(caught.value)


@pytest.mark.parametrize("path", ["C:\\data", "c:secret", "C:/data", "\\\\host\\share"])
def test_drives_and_shares_of_windows_are_refused(path: str) -> None:
    with pytest.raises(UserError, match="leads out of this machine's data directory"):
        file.from_json(wire(data={"name": "leaf", "path": path}))
