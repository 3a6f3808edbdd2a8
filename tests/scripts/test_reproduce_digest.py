"""The digest of code: the same with every version of Python."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from reproduction import digest

CODE = '''"""A module."""

class Kind:
    """A class."""

    def method(self, a, *, b=1):  # a comment
        return [a, b]
'''
# what Python 3.11 writes: 3.12 has type_params, 3.13 leaves empty lists out
OF_3_11 = (
    "Module(body=[ClassDef(name='Kind', bases=[], keywords=[], body=[FunctionDef(name='method',"
    " args=arguments(posonlyargs=[], args=[arg(arg='self'), arg(arg='a')],"
    " kwonlyargs=[arg(arg='b')], kw_defaults=[Constant(value=1)], defaults=[]),"
    " body=[Return(value=List(elts=[Name(id='a', ctx=Load()), Name(id='b', ctx=Load())],"
    " ctx=Load()))], decorator_list=[])], decorator_list=[])], type_ignores=[])"
)


def test_the_tree_is_written_as_python_3_11_does(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CODE)
    assert digest._code(tmp_path / "a.py").decode() == OF_3_11


def test_fields_of_a_later_python_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ast.parse(CODE)
    kind = tree.body[1]
    if "type_params" not in ast.ClassDef._fields:
        monkeypatch.setattr(ast.ClassDef, "_fields", (*ast.ClassDef._fields, "type_params"))
        kind.type_params = []  # type: ignore[attr-defined]  # as Python 3.12 sets it
    assert "type_params" not in digest._dumped(tree)
