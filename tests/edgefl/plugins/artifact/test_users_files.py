"""Which files of the user go into an artifact, and what the config calls them there."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from edgefl.errors import UserError
from edgefl.plugins.artifact import users_files
from edgefl.plugins.artifact.users_files import UsersFiles, collect, own_data


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The folder of a config with code, data and a trace; beside it a folder with more."""
    base = tmp_path / "mine"
    texts = {
        "algo.py": "import numpy\nimport json\nfrom helper import half\nfrom pack import x\n",
        "helper.py": "import further\nhalf = open('tables/prices.csv')\n",
        "further.py": "SECRET = '/etc/hostname'\n",
        "pack/__init__.py": "x = 1\n",
        "pack/inner.py": "import scipy\n",
        "pack/__pycache__/inner.pyc": "old",
        "tables/prices.csv": "1\n",
        "traces/up.csv": "0,1\n",
        "not_used.py": "",
        "../elsewhere/model.py": "import torch\n",
    }
    for name, text in texts.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return base


def of(config: dict[str, Any], base: Path, **more: Any) -> UsersFiles:
    return collect(config, {base: Path()}, more.pop("digests", {}), **more)


def test_code_comes_with_what_it_imports_and_opens(base: Path) -> None:
    found = of({"strategies": [{"strategy": "algo.py:Algo", "rate": 0.5}]}, base)
    assert found.config == {"strategies": [{"strategy": "algo.py:Algo", "rate": 0.5}]}
    names = {path.as_posix() for path in found.files}
    assert names == {
        *("algo.py", "helper.py", "further.py", "pack/__init__.py", "pack/inner.py"),
        "tables/prices.csv",
    }
    assert found.packages == {"numpy", "scipy"}  # not those of Python itself


def test_traces_tables_and_packages_of_the_config_go_in(base: Path) -> None:
    config = {"links": {"trace_up": "traces/up.csv"}, "model": {"name": "pack.inner:build"}}
    found = of(config, base)
    assert found.config == config
    assert {path.as_posix() for path in found.files} == {
        *("traces/up.csv", "pack/__init__.py", "pack/inner.py")
    }


def test_a_file_elsewhere_moves_below_the_folder_of_the_experiment(base: Path) -> None:
    absolute = str(base.parent / "elsewhere" / "model.py")
    for name in ("../elsewhere/model.py", absolute):
        found = of({"model": {"name": f"{name}:build"}}, base)
        assert found.config["model"]["name"] == "files/model.py:build"
        assert list(found.files) == [Path("files/model.py")] and found.packages == {"torch"}


def test_words_that_are_no_files_stay(base: Path) -> None:
    (base / "digits").mkdir()
    config = {"data": {"name": "digits"}, "name": "algo.py", "network": {"host": "algo.py"}}
    found = of(config, base)
    assert found.config == config and not found.files


def test_what_is_included_keeps_its_place_below_the_config(base: Path) -> None:
    found = of({}, base, include=[base / "tables", base.parent / "elsewhere" / "model.py"])
    names = {path.as_posix() for path in found.files}
    assert names == {"tables/prices.csv", "files/model.py"}
    with pytest.raises(UserError, match="--include .*nothing: no such file"):
        of({}, base, include=[base / "nothing"])


def test_a_large_file_stays_out_and_is_named_with_its_digest(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_files, "MOST_BYTES", 1)
    config = {"links": {"trace_up": "traces/up.csv"}}
    found = of(config, base)
    digest = hashlib.sha256(b"0,1\n").hexdigest()
    assert found.config == config and not found.files
    assert found.left_out == {"traces/up.csv": f"links.trace_up, 0 MB, {digest}"}


def test_a_file_that_has_changed_or_gone_since_the_runs_is_refused(base: Path) -> None:
    config = {"strategies": [{"strategy": "algo.py:Algo"}]}
    digest = hashlib.sha256((base / "algo.py").read_bytes()).hexdigest()[:16]
    assert of(config, base, digests={"algo.py": digest}).files
    with pytest.raises(UserError, match="algo.py: has changed since the runs"):
        of(config, base, digests={"algo.py": "0" * 16})
    (base / "algo.py").unlink()
    with pytest.raises(UserError, match="strategies.strategy: no file .*algo.py"):
        of(config, base, digests={"algo.py": digest})
    (base / "traces" / "up.csv").unlink()
    with pytest.raises(UserError, match="links.trace_up: traces/up.csv: no such file now"):
        of({"links": {"trace_up": "traces/up.csv"}}, base, digests={"traces/up.csv": digest})


def test_files_of_a_data_set_of_ones_own_are_found_in_the_data_directory(tmp_path: Path) -> None:
    for name in ("train.csv.gz", "other.csv", "test.csv", "images/cat/1.png", "images/dog/1.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    names = own_data({"name": "csv", "test": "test.csv"}, tmp_path)
    assert names == [tmp_path / "train.csv.gz", tmp_path / "test.csv"]
    assert own_data({"name": "images"}, tmp_path) == [tmp_path / "images"]
    assert own_data({"name": "my_data.py:load"}, tmp_path) == []
    assert own_data({"name": "digits"}, tmp_path) is None
    found = collect({}, {tmp_path: Path("data")}, {}, [tmp_path / "images"])
    assert {path.as_posix() for path in found.files} == {
        *("data/images/cat/1.png", "data/images/dog/1.png")
    }
