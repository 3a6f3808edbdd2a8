"""A base install: a feature that needs an extra package says so in one line, and runs complete."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from builders import EXAMPLES
from paths import ROOT

import emulator
from edgefl.data import digits
from edgefl.data.cache import picture
from edgefl.data.download import Download, fetch
from edgefl.errors import UserError, needs
from edgefl_testbed import install_command
from emulator.commands.tdma import tdma
from emulator.errors import BadValue

LAB = {
    "matplotlib": "matplotlib",
    "pandas": "pandas",
    "pillow": "PIL",
    "pooch": "pooch",
    "requests": "requests",
    "scikit-learn": "sklearn",
    "scipy": "scipy",
}


BASE = """
import sys
sys.modules |= dict.fromkeys(sys.argv.pop(1).split(","))  # None: not installed
from edgefl.cli import main
main()
"""
CONFIG = """
name = "base"
task = "my_task.py:build"
edges = {count = 4}
training = {epochs = 3}
stop = {versions = 4}
partition = {name = "iid"}
strategies = [{strategy = "fedasync"}, {strategy = "fedasmu"}]
"""


def edgefl(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command on a base install."""
    return subprocess.run(
        [sys.executable, "-c", BASE, ",".join(LAB.values()), *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def test_the_modules_hidden_here_are_those_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lab = {entry.partition(">")[0] for entry in project["optional-dependencies"]["lab"]}
    assert lab == set(LAB)


def test_what_is_missing_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # submodules too: one that another test has imported would still be found
    for name in [
        *LAB.values(),
        *(name for name in sys.modules if name.split(".")[0] in LAB.values()),
    ]:
        monkeypatch.setitem(sys.modules, name, None)
    nowhere = Path("nowhere")
    with pytest.raises(UserError, match=r"'digits' needs the package 'sklearn'.*\[lab\]"):
        digits.load(nowhere)
    with pytest.raises(UserError, match=r"a download needs the package 'pooch'.*\[lab\]"):
        fetch([Download("http://x/y", "md5:0")], nowhere, "x", None, lambda *_: None)
    with (
        pytest.raises(UserError, match=r"'celeba' needs the package 'PIL'.*\[lab\]"),
        picture(nowhere / "1.png", "celeba"),
    ):
        pass
    monkeypatch.delitem(sys.modules, "emulator.figures", raising=False)
    monkeypatch.delattr(emulator, "figures", raising=False)
    with pytest.raises(BadValue, match=r"--figure needs the package 'matplotlib'.*\[lab\]"):
        tdma(2, 1, 9, 1, figure=Path("timeline.png"))


def test_only_a_missing_package_is_explained() -> None:
    with pytest.raises(ModuleNotFoundError), needs("lab", "this"):
        import edgefl.unheard_of  # noqa: F401  # it cannot be imported


@pytest.mark.processes
def test_a_run_on_a_base_install_ends_in_order_without_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(EXAMPLES / "my_task.py", tmp_path)
    (tmp_path / "base.toml").write_text(CONFIG)
    done = edgefl("run", "base.toml", "--clock", "virtual", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.chdir(tmp_path)
    command = install_command("lab")
    assert f"no figures: matplotlib is not installed: {command}" in done.stdout
    results = tmp_path / "runs" / "base"
    assert len((results / "comparison.csv").read_text().splitlines()) == 3
    assert (results / "dissemination.csv").exists() and not (results / "figures").exists()
    for kind in ("accuracy", "controls"):
        drawn = edgefl("plot", "runs/base", "--kind", kind, cwd=tmp_path)
        assert (drawn.returncode, drawn.stdout) == (2, "")
        assert drawn.stderr == (
            f"edgefl: a figure needs the package 'matplotlib', which is not installed: {command}\n"
        )
    written = edgefl("report", "runs/base", cwd=tmp_path)
    assert (written.returncode, written.stderr) == (0, "")
    assert "No figures: matplotlib was not installed" in (tmp_path / "report.html").read_text()


@pytest.mark.processes
def test_a_run_that_needs_an_extra_is_refused_in_one_line(tmp_path: Path) -> None:
    done = edgefl("run", "configs/quickstart.toml", "--clock", "virtual", cwd=tmp_path)
    *_, last = done.stderr.splitlines()
    assert done.returncode == 2 and not (tmp_path / "runs").exists()
    assert last.startswith("edgefl: data set 'digits' needs the package 'sklearn'")
