"""What the README shows is what works: its code is that of tests/examples, its command lines
exist, and those that need no network run.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from paths import EXAMPLES, ROOT
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.loading.file import load

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
ALONE = (
    "strategies",
    "models",
    "datasets",
    "compare",
    "plot",
    "replay",
)  # commands that need no edge
SHORT = ["stop.emulated_s=15", "edges.count=3"]


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


def command_lines() -> list[list[str]]:
    """The words behind every ``edgefl`` at the start of a line, comments and line ends taken
    care of.
    """
    lines = [line for block in blocks("sh") for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("edgefl ")]


def shown() -> dict[str, str]:
    """File name -> code, of the Python blocks that begin with "# my_something.py"."""
    parts = [block.partition("\n") for block in blocks("python")]
    return {
        head.removeprefix("# "): code
        for head, _, code in parts
        if re.fullmatch(r"# my_\w+\.py", head)
    }


def test_the_readme_shows_every_example_as_it_is() -> None:
    assert shown() == {
        path.name: path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("my_*.py"))
    }


def test_every_link_inside_the_readme_leads_somewhere() -> None:
    headings = [
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in TEXT.splitlines()
        if line.startswith("#")
    ]
    headings += re.findall(r'<a id="([^"]+)"', TEXT)
    targets = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert (
        targets
        and [
            target
            for target in targets
            if target.removeprefix("#") not in headings and not (ROOT / target).is_file()
        ]
        == []
    )


def test_every_file_named_in_the_readme_is_there() -> None:
    named = re.findall(r"\b(?:scripts|configs|tests|edgefl)/[\w/]+\.(?:sh|py|toml|txt)\b", TEXT)
    assert named and [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("words", command_lines(), ids=" ".join)
def test_a_command_line_has_a_command_options_and_keys_that_exist(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = words[:2] if words[0] in ("keys", "data") else words[:1]
    told = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert told.exit_code == 0, told.output
    options = set(re.findall(r"--[\w-]+", told.output))
    assert [word for word in words if word.startswith("--") and word not in options] == []
    monkeypatch.chdir(ROOT)
    if words[0] in ("run", "coordinator"):
        load(Path(words[1]), overrides(words))


def test_the_torch_that_the_readme_names_is_the_pinned_one() -> None:
    pinned = re.findall(
        r"^torch==.*$",
        (ROOT / "scripts" / "constraints.txt").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    assert len(pinned) == 1 and set(re.findall(r"torch==[\w.]+", TEXT)) == set(pinned)


def overrides(words: list[str]) -> list[str]:
    """The key=value words of a command line."""
    return [word for word in words[2:] if re.match(r"[\w.]+=", word)]


@pytest.mark.usefixtures("warm_python")
def test_the_command_lines_that_need_no_network_run_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs").mkdir()
    shutil.copy(ROOT / "configs" / "quickstart.toml", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    done: list[str] = []
    for words in command_lines():
        words = [str(Path(word).expanduser()) if word.startswith("~") else word for word in words]
        if words[0] == "run" and "virtual" in words:
            words += SHORT
        elif words[0] not in ALONE and words[:2] != ["keys", "new"]:
            continue
        (edgefl_alone if "--workers" in words else edgefl)(words)
        done.append(words[0])
    assert {"keys", "run", *ALONE} <= set(done)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(
            [
                "strategies=[{strategy='my_algo.py:MyAlgo', clients_per_round=2}]",
                "model={name='my_model.py:build', filters=2}",
            ],
            id="algo, model",
        ),
        pytest.param(["data={name='my_data.py:load', dir='.'}"], id="data"),
        pytest.param(["task=my_task.py:build"], id="task"),
    ],
)
def test_an_example_works_from_outside_the_checkout(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in [*EXAMPLES.glob("my_*.py"), ROOT / "configs" / "quickstart.toml"]:
        shutil.copy(path, tmp_path)
    rng = np.random.Generator(np.random.PCG64(1))
    np.savez(
        tmp_path / "my_data.npz",
        x=rng.integers(0, 255, (300, 1, 8, 8), dtype=np.uint8),
        y=rng.integers(0, 3, 300),
    )
    monkeypatch.chdir(tmp_path)
    edgefl(
        [
            "run",
            "quickstart.toml",
            "--clock",
            "virtual",
            *words,
            *SHORT,
            "stop.emulated_s=200.0",
            "stop.versions=2",
        ]
    )
    summaries = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in (tmp_path / "runs").glob("*/*/summary.json")
    ]
    assert summaries and all(
        summary["versions"] == 2 and summary["final_accuracy"] is not None for summary in summaries
    )


def edgefl_alone(words: list[str]) -> None:
    """The same in a process of its own: this one has other tests' threads, which no fork may
    meet.
    """
    result = subprocess.run(
        [sys.executable, "-m", "edgefl.cli", *words], capture_output=True, text=True
    )
    assert result.returncode == 0, f"edgefl {shlex.join(words)}\n{result.stdout}\n{result.stderr}"


def edgefl(words: list[str]) -> None:
    """Run the command in this process and see that it ends well."""
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, (
        f"edgefl {shlex.join(words)}\n{result.output}\n{result.exception!r}"
    )
