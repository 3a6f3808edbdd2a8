"""The tools of a contributor: one configuration, and a reason for each exception."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest
from paths import ROOT

# Concatenated here, so that this file itself contains none.
MARKS = "|".join(("no" + "qa", "type: " + "ignore", "fmt: " + "(skip|off)", "mypy: " + "ignore"))
EXCEPTION = re.compile(rf"#\s*(ruff: )?({MARKS})")
WITH_REASON = re.compile(rf"#\s*({MARKS}|: [A-Z]+\d+|\[[a-z-]+\]|, )+\s+# \w+ \w+")


def unexplained(text: str) -> Iterator[int]:
    """The lines with an exception for a tool but without a reason."""
    for number, line in enumerate(text.splitlines(), 1):
        if EXCEPTION.search(line) and not WITH_REASON.search(line):
            yield number


def test_every_exception_for_a_tool_stands_next_to_a_reason() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for tree in ("edgefl", "emulator", "scripts", "tests")
        for file in sorted((ROOT / tree).rglob("*.py"))
        for number in unexplained(file.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(["expected a reason behind it:", *found])


@pytest.mark.parametrize(
    ("line", "explained"),
    [
        ("x = 1  # NO: E501", False),
        ("x = 1  # NO", False),
        ("x = 1  # NO: E501  # a long address", True),
        ("x = f()  # TYPE[misc]", False),
        ("x = f()  # TYPE[misc]  # made at run time", True),
        ("x = f()  # TYPE[misc]  # NO: B018  # made at run time", True),
        ("x = [1,2]  # FMT", False),
        ("x = 1  # no exception", True),
    ],
)
def test_the_rule_finds_what_it_should(line: str, explained: bool) -> None:
    for short, mark in (("NO", "no" + "qa"), ("TYPE", "type: " + "ignore"), ("FMT", "fmt: skip")):
        line = line.replace(short, mark)
    assert list(unexplained(line)) == ([] if explained else [1])


def test_every_ignored_rule_of_ruff_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = text.partition("\nignore = [\n")[2].partition("\n]")[0]
    assert block and all(re.search(r"# \w+", line) for line in block.splitlines())


@pytest.mark.processes
def test_ci_and_a_commit_run_the_same_tools() -> None:
    ci, hooks = ((ROOT / name).read_text() for name in (".ci/run", ".pre-commit-config.yaml"))
    for tool in ("ruff check", "ruff format", "mypy"):
        assert f"\n.venv/bin/{tool}" in ci and f"entry: .venv/bin/{tool}" in hooks
    checked = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-config"], cwd=ROOT, capture_output=True
    )
    assert checked.returncode == 0, checked.stdout.decode()


PINNED = ("lab", "launch", "live", "discover", "dev", "docs")  # extras of constraints.txt


def test_the_tested_versions_of_all_direct_dependencies_are_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *(entry for extra in PINNED for entry in extras[extra])]
    files = ("constraints.txt", "constraints-docs.txt")
    pinned = "".join((ROOT / "scripts" / file).read_text() for file in files)
    missing = [
        name for entry in named if f"\n{(name := re.split('[<>=]', entry)[0])}==" not in pinned
    ]
    assert not missing
    assert "://" not in pinned
