"""The house rules on sizes also apply to scripts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from paths import ROOT

MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_LINE_CHARS = 400, 50, 100
SCRIPTS = sorted((ROOT / "scripts").rglob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_made_of_small_parts(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= MAX_FILE_LINES
    assert [line for line in lines if len(line) > MAX_LINE_CHARS] == []
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    sizes = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: size for name, size in sizes.items() if size > MAX_FUNCTION_LINES} == {}
