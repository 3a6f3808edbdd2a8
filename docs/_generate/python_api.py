"""The pages of the Python API: every public name with its signature and its docstring."""

from __future__ import annotations

import ast
import inspect
import os
import re
import textwrap
import types
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

import edgefl
import edgefl.api
import emulator
import emulator.pytest_plugin
from edgefl.config.keys import texts

HERE = Path(__file__).parents[1] / "reference" / "generated"
ROOT = Path(__file__).parents[2]
PUBLIC = {*edgefl.api.__all__, *emulator.__all__, *edgefl.INTERFACE}
WIDTH = 100  # of a line of code
MARK = "\N{WORD JOINER}"  # no text of the code has it
OPENING = "Generated from the code. [What is public](../api.md), and for how long."
SUBJECTS = {  # room of the emulator -> heading
    "capacity": "Capacities: how many bits per second pass at each moment",
    "delay": "Delays: how long bytes travel",
    "links": "Links, transfers and networks",
    "tdma": "TDMA",
    "compute": "Devices",
    "faults": "Faults and outages",
    "clock": "Clocks",
    "fidelity": "The verdict",
    "profiles": "Named links and devices",
    "proxy": "Proxy",
    "lab": "Lab",
}


def edgefl_page() -> str:
    """Everything that ``import edgefl`` and ``edgefl.api`` offer."""
    parts = ["# Python: edgefl", OPENING, "## Run experiments: `import edgefl`"]
    parts += [entry(name, getattr(edgefl, name)) for name in edgefl.INTERFACE]
    parts += ["## Write your own parts: `edgefl.api`", _prose(edgefl.api)]
    for title, names in _groups("edgefl.api"):
        parts += [f"## {title}", *(entry(name, getattr(edgefl.api, name)) for name in names)]
    return "\n\n".join(parts) + "\n"


def emulator_page() -> str:
    """Everything that ``import emulator`` and its pytest plug-in offer."""
    parts = ["# Python: emulator", OPENING, _prose(emulator)]
    parts += ["All moments are whole nanoseconds, all sizes bytes, all rates bits per second."]
    for title, names in _groups("emulator"):
        parts += [f"## {title}", *(entry(name, getattr(emulator, name)) for name in names)]
    parts += ["## Fixtures of pytest", _prose(emulator.pytest_plugin)]
    for name in ("proxy", "lab"):
        function = inspect.unwrap(getattr(emulator.pytest_plugin, name))
        parts += [f"### {name}", _prose(getattr(function, "_fixture_function", function))]
    return "\n\n".join(parts) + "\n"


def names_list(module: str) -> str:
    """The public names of a module, a line per group."""
    lines = []
    for title, names in _groups(module):
        shown = ", ".join(f"`{name}`" for name in names)
        lines.append(f"- {title.partition(':')[0]}: {shown}" if title else f"- {shown}")
    return "\n".join(lines) + "\n"


def _groups(module: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the public names in groups, each with its title.

    In ``edgefl.api`` the titles are the comments of ``__all__``, in ``emulator`` the rooms.
    """
    if module == "edgefl":
        yield "", [*edgefl.INTERFACE]
    elif module == "emulator":
        by_room: dict[str, list[str]] = {}
        for name, place in emulator._MODULE_OF.items():
            by_room.setdefault(SUBJECTS.get(place.split(".")[1], "Others"), []).append(name)
        titles = [title for title in [*SUBJECTS.values(), "Others"] if title in by_room]
        yield from ((title, by_room[title]) for title in titles)
    else:
        yield from _commented(import_module(module))


def _commented(module: Any) -> Iterator[tuple[str, list[str]]]:
    listed = inspect.getsource(module).partition("__all__ = [")[2].partition("\n]")[0]
    for group in re.split(r"^ +# ", listed, flags=re.MULTILINE)[1:]:
        title, _, lines = group.partition("\n")
        yield title[:1].upper() + title[1:], re.findall(r'^ +"(\w+)"', lines, re.MULTILINE)


def entry(name: str, obj: Any) -> str:
    """One name: heading, signature, where its code is, docstring and members."""
    if inspect.isclass(obj):
        return _class(name, obj)
    obj = inspect.unwrap(obj) if callable(obj) else obj
    if inspect.isfunction(obj):
        node = _tree(obj)
        assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        signature = f"{name}{_signature(node, bound=False)}"
        return _joined(f"### {name}", _code(signature, obj), _prose(obj))
    if get_origin(obj) in (Union, types.UnionType):
        kinds = [getattr(each, "__name__", str(each)) for each in get_args(obj)]
        return _joined(f"### {name}", f"One of {', '.join(f'`{kind}`' for kind in kinds)}.")
    shown = re.sub(r"(typing|collections\.abc|numpy)\.", "", repr(obj))
    return _joined(f"### {name}", _python(f"{name} = {shown}"))


def _class(name: str, kind: type) -> str:
    tree = _tree(kind)
    assert isinstance(tree, ast.ClassDef)
    bases = [ast.unparse(base) for base in tree.bases]
    init = next((each for each in tree.body if getattr(each, "name", "") == "__init__"), None)
    head = f"class {name}" + f"({', '.join(bases)})" * bool(bases)
    fields = list(_fields(kind, tree))
    if issubclass(kind, BaseModel) and kind.__module__.startswith("edgefl.config."):
        keys = "Its fields are keys of the [experiment file](config.md)."
        return _joined(f"### {name}", _code(head, kind), _prose(kind), keys)
    if isinstance(init, ast.FunctionDef):
        head += f":\n    __init__{_signature(init)}"
    elif fields:
        head += ":\n" + "\n".join(f"    {line}" for line, _ in fields)
    members = [f"- `{line}`: {text}" for line, text in fields if text]
    for each in kind.__mro__:  # also what it has from a base class that is not public itself
        if each is kind or (each.__module__ == kind.__module__ and each.__name__ not in PUBLIC):
            members += _members(_tree(each))
    return _joined(f"### {name}", _code(head, kind), _prose(kind), "\n".join(members))


def _members(tree: ast.stmt) -> Iterator[str]:
    """Yield the public methods and properties that have a docstring."""
    assert isinstance(tree, ast.ClassDef)
    for member in tree.body:
        if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(member)
            if text and not member.name.startswith("_"):
                marks = {ast.unparse(each) for each in member.decorator_list}
                called = "" if {"property", "cached_property"} & marks else _signature(member)
                of = member.returns if not called else None
                shown = f"{member.name}{called}" + (f": {ast.unparse(of)}" if of else "")
                yield textwrap.indent(f"- `{shown}`: {_markdown(text)}", "  ").strip()


def _fields(of: type, tree: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield public annotated attributes, each as a line, and the text below it."""
    for statement in tree.body:
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        kind = ast.unparse(statement.annotation)
        if statement.target.id.startswith("_") or kind.startswith("InitVar"):
            continue
        value = ast.unparse(statement.value) if statement.value else ""
        default = "" if not value or "field(" in value.lower() else f" = {value}"
        kind = kind.removeprefix("ClassVar[").removesuffix("]") if "ClassVar" in kind else kind
        text = texts(of).get(statement.target.id, "")
        yield f"{statement.target.id}: {kind}{default}", text


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, bound: bool = True) -> str:
    """The parameters as ``ast`` writes them, with spaces around the defaults of annotated ones."""
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for argument in every:  # what follows ":" gets a mark where its default follows
        if argument.annotation is not None:
            argument.annotation = ast.Name(f"{ast.unparse(argument.annotation)}{MARK}")
    if bound and every and every[0].arg in ("self", "cls"):
        (arguments.posonlyargs or arguments.args).pop(0)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    shown = ast.unparse(arguments)
    return f"({shown.replace(f'{MARK}=', ' = ').replace(MARK, '')}){returns}"


def _code(signature: str, obj: Any) -> str:
    file = inspect.getsourcefile(inspect.unwrap(obj))
    assert file is not None
    place = Path(os.path.relpath(file, HERE)).as_posix()
    return f"{_python(_wrapped(signature))}\n\n[Source]({place})"


def _python(code: str) -> str:
    return "```python\n" + code.replace("'", '"') + "\n```"


def _wrapped(signature: str) -> str:
    """Give each parameter a line of its own where all of them have no room in one."""
    return "\n".join(map(_parameters_in_lines, signature.splitlines()))


def _parameters_in_lines(line: str) -> str:
    if len(line) <= WIDTH or "(" not in line:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    parts, depth, begin = [], 0, line.index("(")
    for at, character in enumerate(line):
        depth += (character in "([") - (character in ")]")
        if (character == "," and depth == 1) or (depth == 0 and at > begin):
            parts.append(line[begin + 1 : at].strip())
            begin = at
            if depth == 0:
                break
    inner = "".join(f"{indent}    {part},\n" for part in parts)
    return f"{line[: line.index('(')]}(\n{inner}{indent}{line[at:]}"


def _tree(obj: Any) -> ast.stmt:
    return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(obj)))).body[0]


def _prose(obj: Any) -> str:
    own = obj.__doc__ if not inspect.isclass(obj) else vars(obj).get("__doc__")
    return _markdown(inspect.cleandoc(own or ""))


def _markdown(text: str) -> str:
    """A docstring as Markdown: ``::`` begins a block of code there."""
    return re.sub(r" ?::$", ":", text, flags=re.MULTILINE)


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
