"""The packaged experiment files: found without a checkout, listed, copied."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import CONFIGS, ROOT

from edgefl.commands import configs, run
from edgefl.errors import UserError
from edgefl.loading import packaged
from edgefl.loading.file import load


def edgefl(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edgefl.cli", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def test_all_of_the_checkouts_files_are_packaged() -> None:
    there = [file.relative_to(ROOT).as_posix() for file in CONFIGS.rglob("*.toml")]
    assert packaged.names() == sorted(there) and "configs/quickstart.toml" in there


def test_a_packaged_file_is_used_where_no_such_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = Path("configs/fedecho/cifar10_lenet.toml")
    found = configs.located(asked)
    assert found == packaged.FOLDER / "fedecho" / "cifar10_lenet.toml"
    assert str(found) in capsys.readouterr().err
    assert load(found).name == "fedecho-cifar10-lenet"  # with what it extends
    asked.parent.mkdir(parents=True)
    asked.write_text("name = 'mine'")
    assert configs.located(asked) == asked and capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["quickstart.toml", "configs/none.toml", "configs/../x.toml"])
def test_other_names_stay_as_they_are(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert configs.located(Path(name)) == Path(name)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("configs/quickstrat.toml", "(nearest that comes with edgefl: 'configs/quickstart.toml')"),
        ("quickstart.toml", "(nearest that comes with edgefl: 'configs/quickstart.toml')"),
        ("unheard-of", "`edgefl configs` lists those that come with edgefl"),
    ],
)
def test_a_name_that_leads_nowhere_gets_the_nearest_one(
    name: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no such file") as caught:
        load(Path(name))
    assert str(caught.value).endswith(end)


def test_files_of_ones_own_are_nearer(tmp_path: Path) -> None:
    (tmp_path / "quick.toml").write_text("name = 'mine'")
    with pytest.raises(UserError, match=r"no such file \(nearest: 'quick.toml'\)"):
        load(tmp_path / "quik.toml")


@pytest.mark.usefixtures("warm_python")
def test_the_command_line_lists_copies_and_uses_them(tmp_path: Path) -> None:
    *rows, hint = edgefl("configs", cwd=tmp_path).stdout.splitlines()
    listed = dict(row.split(maxsplit=1) for row in rows)
    assert list(listed) == packaged.names() and all(listed.values()) and "edgefl run" in hint
    copied = edgefl("configs", "--copy", "mine", cwd=tmp_path)
    assert copied.returncode == 0 and "edgefl run mine/quickstart.toml" in copied.stdout
    assert load(tmp_path / "mine" / "quickstart.toml").name == "quickstart"
    again = edgefl("configs", "--copy", "mine", cwd=tmp_path)
    assert again.returncode == 2
    assert again.stderr == "edgefl: --copy mine: already exists, expected a new folder\n"
    used = edgefl("data", "plot", "configs/quickstart.toml", cwd=tmp_path)
    assert used.returncode == 0 and (tmp_path / "labels.png").exists()
    assert f"using the one that comes with edgefl: {packaged.FOLDER}" in used.stderr


def test_one_of_them_is_printed_or_copied_with_what_it_extends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("quickstart", "quickstart.toml", "configs/quickstart.toml"):
        configs.configs(name)
        assert capsys.readouterr().out == (CONFIGS / "quickstart.toml").read_text()
    configs.configs("wkafl/wallclock", tmp_path)
    copied = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.toml"))
    assert copied == ["wkafl/mnist_1000_10.toml", "wkafl/wallclock.toml"]
    assert load(tmp_path / "wkafl" / "wallclock.toml").name == "wkafl-wallclock"
    with pytest.raises(UserError, match="already exists"):
        configs.configs("wkafl/wallclock", tmp_path)
    with pytest.raises(UserError, match="no packaged config 'quickstrat'.*quickstart.toml"):
        configs.configs("quickstrat")


def test_a_run_without_a_config_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="CONFIG: missing"):
        run.run()
    assert "configs/tdma/mnist.toml" in capsys.readouterr().out
