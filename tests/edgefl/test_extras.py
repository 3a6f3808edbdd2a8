"""A base install: what needs a package of an extra says so in one line, and a run ends in order."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from paths import ROOT

from edgefl.data import celeba, digits, tiny_imagenet
from edgefl.data.download import Download, fetch
from edgefl.errors import UserError, needs
from emulator.commands.tdma import tdma
from emulator.errors import BadValue

LAB = {
    "matplotlib": "matplotlib",
    "pillow": "PIL",
    "pooch": "pooch",
    "requests": "requests",
    "scikit-learn": "sklearn",
}


def hide(*modules: str, folder: Path) -> dict[str, str]:
    """The environment in which Python, and all that it starts, finds none of ``modules``."""
    folder.mkdir()
    for module in modules:
        (folder / f"{module}.py").write_text(
            f"raise ModuleNotFoundError({f'No module named {module!r}'!r}, name={module!r})\n"
        )
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


def edgefl(*words: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edgefl.cli", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=env,
    )


def test_the_modules_hidden_here_are_those_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lab = {entry.partition(">")[0] for entry in project["optional-dependencies"]["lab"]}
    assert lab == set(LAB)


def test_what_is_missing_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in LAB.values():
        monkeypatch.setitem(sys.modules, module, None)
    nowhere = Path("nowhere")
    with pytest.raises(UserError, match=r"'digits' needs the package 'sklearn'.*edgefl\[lab\]"):
        digits.load(nowhere)
    with pytest.raises(UserError, match=r"a download needs the package 'pooch'.*edgefl\[lab\]"):
        fetch([Download("http://x/y", "md5:0")], nowhere, "x", None, lambda *_: None)
    with pytest.raises(UserError, match=r"'celeba' needs the package 'PIL'.*edgefl\[lab\]"):
        celeba._pictures(nowhere, [], 8, nowhere, "x")
    with pytest.raises(UserError, match=r"'tiny_imagenet' needs the package 'PIL'.*edgefl\[lab\]"):
        tiny_imagenet._read([], nowhere, "x", nowhere)
    monkeypatch.delitem(sys.modules, "emulator.tdma.figure", raising=False)
    with pytest.raises(BadValue, match=r"--figure needs the package 'matplotlib'.*edgefl\[lab\]"):
        tdma(2, 1, 9, 1, figure=Path("timeline.png"))


def test_only_a_missing_package_is_explained() -> None:
    with pytest.raises(ModuleNotFoundError), needs("lab", "this"):
        import edgefl.unheard_of  # type: ignore[import-not-found]  # noqa: F401
