"""The README and the pages of docs/ show what works.

Their code is that of tests/examples, their command lines exist, and those without network are run.
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
from pages import GENERATED, PAGES, WALKED, all_text, command_lines, text
from paths import EXAMPLES, ROOT
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.config.file import load

ALONE = (
    "strategies",
    "models",
    "datasets",
    "compare",
    "export",
    "plot",
    "report",
    "replay",
)  # commands that need no edge
SHORT = ["stop.emulated_s=15", "edges.count=3"]
WORDS = command_lines("edgefl")
RUN_HERE = command_lines("edgefl", [page for page in PAGES if page != WALKED])


def test_every_example_is_on_a_page_as_it_is() -> None:
    files = [*EXAMPLES.glob("*my_*.py"), *EXAMPLES.glob("from_*.py"), *EXAMPLES.glob("*.toml")]
    shown = set(re.findall(r"<!-- file: tests/examples/(\w+\.\w+) -->", all_text()))
    assert shown == {path.name for path in files}
    assert [path.name for path in files if text(path) not in all_text()] == []


def test_pages_can_be_read_in_the_repository() -> None:
    """No page has its content elsewhere but the changelog, and each has more than a heading."""
    hidden = ("literalinclude", "{include}", "eval-rst", "{image}", "autoclass", "automodule")
    changelog = ROOT / "docs" / "changelog.md"
    pages = [page for page in PAGES if page != changelog and "results" not in page.parts]
    assert [page.name for page in pages if any(word in text(page) for word in hidden)] == []
    assert [page.name for page in [*pages, *GENERATED.glob("*.md")] if len(text(page)) < 150] == []


def test_every_link_of_a_page_leads_to_a_file_of_the_repository() -> None:
    missing, links = [], 0
    for page in [*PAGES, *GENERATED.glob("*.md")]:
        for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text(page)):
            if not re.match(r"[a-z]+:", target):
                links += 1
                if not (page.parent / target).exists():
                    missing.append(f"{page.name}: {target}")
    assert links > 500 and missing == []


def test_every_file_named_on_a_page_is_there() -> None:
    """Apart from programs of earlier commits, which are named with their commit."""
    named = re.findall(
        r"\b(?:scripts|configs|tests|edgefl)/[\w/]+\.(?:sh|py|toml|txt)\b(?!`\s+of\s+commit)",
        all_text(),
    )
    assert named and [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
@pytest.mark.slow
def test_a_command_line_has_a_command_options_and_keys_that_exist(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = words[:2] if words[0] in ("keys", "data", "hosts") else words[:1]
    told = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert told.exit_code == 0, told.output
    options = set(re.findall(r"--[\w-]+", told.output))
    assert [word for word in words if word.startswith("--") and word not in options] == []
    monkeypatch.chdir(ROOT)
    if words in RUN_HERE and words[0] in ("run", "coordinator") and "--resume" not in words:
        load(Path(words[1]), overrides(words))


def test_the_torch_that_the_pages_name_is_the_pinned_one() -> None:
    pins = text(ROOT / "scripts" / "constraints.txt")
    pinned = re.findall(r"^(torch==[\w.]+); platform_machine", pins, flags=re.MULTILINE)
    assert len(pinned) == 2 and set(re.findall(r"torch==[\w.]+", all_text())) == set(pinned)


def overrides(words: list[str]) -> list[str]:
    """The key=value words of a command line."""
    return [word for word in words[2:] if re.match(r"[\w.]+=", word)]


@pytest.mark.rest
@pytest.mark.usefixtures("warm_python")
def test_the_command_lines_that_need_no_network_run_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs").mkdir()
    shutil.copy(ROOT / "configs" / "quickstart.toml", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    done: list[str] = []
    for words in RUN_HERE:
        words = [str(Path(word).expanduser()) if word.startswith("~") else word for word in words]
        if any("flower" in word for word in words):
            continue  # needs an environment of its own: tests/edgefl/plugins/flower
        if any(word.startswith("strategies=[") for word in words):
            continue  # repeats a result, whose data may be missing: tests/scripts checks its config
        if words[0] == "run" and "virtual" in words and "ray" not in words:
            words += SHORT
        elif words[0] == "sweep" and "--workers" in words:
            words += ["edges.count=3"]
        elif words[0] not in ALONE and words[:2] != ["keys", "new"]:
            continue
        (edgefl_alone if "--workers" in words else edgefl)(words)
        done.append(words[0])
    assert {"keys", "run", *ALONE} <= set(done)


@pytest.mark.rest
@pytest.mark.processes
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
        pytest.param(
            [
                "strategies=[{strategy='from_flower.py:FedMedian'}"
                ", {strategy='from_plato.py:Mixing'}, {strategy='from_fedscale.py:FedYogi'}]"
            ],
            id="ported",
        ),
    ],
)
def test_an_example_works_from_outside_the_checkout(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in [*EXAMPLES.glob("*_*.py"), ROOT / "configs" / "quickstart.toml"]:
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
    """Run the command in its own process: other tests' threads in this one must not be forked."""
    result = subprocess.run(
        [sys.executable, "-m", "edgefl.cli", *words], capture_output=True, text=True
    )
    assert result.returncode == 0, f"edgefl {shlex.join(words)}\n{result.stdout}\n{result.stderr}"


def edgefl(words: list[str]) -> None:
    """Run the command in this process and check its exit status."""
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, (
        f"edgefl {shlex.join(words)}\n{result.output}\n{result.exception!r}"
    )
