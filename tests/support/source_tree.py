"""Source files for the checks of the house rules: imports, functions, classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from paths import ROOT

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Import:
    """One imported name: ``a.b`` for "import a.b", also ``a.b.c`` for "from a.b import c"."""

    line: int
    names: tuple[str, ...]
    in_function: bool
    typing_only: bool

    def of(self, *modules: str) -> bool:
        return any(
            name == module or name.startswith(module + ".")
            for name in self.names
            for module in modules
        )


@dataclass(frozen=True)
class Source:
    """A file of the tree, by its path from the root ("edgefl/vectors.py")."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @cached_property
    def imports(self) -> list[Import]:
        return list(self._imports(self.tree, False, False))

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """Return the classes at the top level."""
        return [node for node in self.tree.body if isinstance(node, ast.ClassDef)]

    def within(self, *rooms: str) -> bool:
        return self.path.startswith(rooms)

    def _imports(self, node: ast.AST, in_function: bool, typing_only: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (
                    Import(child.lineno, (alias.name,), in_function, typing_only)
                    for alias in child.names
                )
            elif isinstance(child, ast.ImportFrom):
                base = self._absolute(child)
                yield from (
                    Import(child.lineno, (base, f"{base}.{alias.name}"), in_function, typing_only)
                    for alias in child.names
                )
            elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
                yield from self._imports(ast.Module(child.body, []), in_function, True)
                yield from self._imports(ast.Module(child.orelse, []), in_function, typing_only)
            else:
                yield from self._imports(
                    child, in_function or isinstance(child, (Function, ast.Lambda)), typing_only
                )

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = (
            self.module.split(".")
            if self.path.endswith("__init__.py")
            else self.module.split(".")[:-1]
        )
        return ".".join(
            [*package[: len(package) - node.level + 1], *([node.module] if node.module else [])]
        )


def source_files(*trees: str) -> list[Source]:
    """Return every Python file of these folders of the checkout, sorted by path."""
    files = sorted(file for tree in trees for file in (ROOT / tree).rglob("*.py"))
    return [
        Source(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8"))
        for file in files
    ]
