"""The threat model names a test for each promise; here, whether these tests exist."""

from __future__ import annotations

import ast
import re

from paths import ROOT

PAGE = ROOT / "docs" / "explanation" / "threat-model.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_each_promise_names_tests_that_exist() -> None:
    rows = [
        line
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.startswith("| promise")
    ]
    assert len(rows) > 15
    for row in rows:
        named = NAMED.findall(row)
        assert named, f"no test: {row}"
        for file, test in named:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert test in found, f"{file} has no {test}"
