"""``--require``: exit status 3 if a run does not meet the condition, and only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compared_runs import evaluated_run
from paths import CONFIGS
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.commands.require import Requirement, requirements, unmet
from edgefl.errors import UserError
from edgefl.results.compare import load_run

RUN = [
    "run",
    str(CONFIGS / "quickstart.toml"),
    "--clock",
    "virtual",
    "stop.emulated_s=8",
    "edges.count=3",
]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--require", "faithful"], 0),
        (["--require", "faithful", "--require", "accuracy=0"], 0),
        (["--require", "accuracy=1"], 3),
        (["--require", "faithful", "--require", "accuracy=1"], 3),
    ],
)
def test_the_exit_status(words: list[str], status: int, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, [*RUN, "--out", str(tmp_path), *words])
    assert told.exit_code == status, told.output
    missed = [line for line in told.output.splitlines() if line.startswith("edgefl: --require")]
    assert len(missed) == (3 if status else 0)  # a line for each strategy
    assert all("--require accuracy=1: fed" in line for line in missed)


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("faithfull", r"expected faithful or accuracy=0.9 \(nearest: 'faithful'\)"),
        ("faithful=1", "expected faithful or accuracy=0.9"),
        ("accuracy", "expected a share such as accuracy=0.9"),
        ("accuracy=90", "expected a share such as accuracy=0.9"),
        ("accuracy=nan", "expected a share such as accuracy=0.9"),
    ],
)
def test_another_word_is_one_line(word: str, line: str) -> None:
    with pytest.raises(UserError, match=f"--require {word}: {line}"):
        requirements([word])


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({}, []),  # the virtual clock computes its times
        ({"clock": "wall"}, []),
        ({"versions": 0}, ["--require faithful: x, seed 1 is failed"]),
        ({"diverged_at_version": 2}, ["--require faithful: x, seed 1 is diverged"]),
    ],
)
def test_a_faithful_run_is_one_that_did_not_fail(
    facts: dict[str, Any], told: list[str], tmp_path: Path
) -> None:
    run = evaluated_run(tmp_path / "x", 1, [0.1, 0.5, 0.9], **facts)
    assert unmet(requirements(["faithful"]), [load_run(run, "x")]) == told


def test_what_is_required_is_read() -> None:
    assert requirements(["faithful", "accuracy=0.9"]) == [
        Requirement("faithful"),
        Requirement("accuracy", 0.9),
    ]
