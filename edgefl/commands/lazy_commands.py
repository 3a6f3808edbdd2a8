"""The commands of ``edgefl`` by name. A command's module is imported when the command is used."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

APP = "app"  # what a module calls its group of commands
DOCSTRING = re.compile(r'\) -> None:\n    """(.+?)(?:\n\n|""")', re.DOTALL)  # first paragraph


class LazyCommands(MutableMapping[str, Any]):
    """Name -> command of Typer. A value is made at its first use.

    ``places``: name -> "module:function", or "module:app" for a group of commands. ``cls``: the
    class of a command; None: Typer's own.
    """

    def __init__(
        self, places: Mapping[str, str], cls: Callable[[str], type[TyperCommand] | None]
    ) -> None:
        self.places, self.cls = dict(places), cls
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._load(name)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self.places.setdefault(name, "")
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self.places[name]
        self._made.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def listed(self) -> dict[str, Any]:
        """Name -> a command that has only its help, read from the source text."""
        return {
            name: TyperCommand(name=name, help=first_paragraph(place))
            for name, place in self.places.items()
        }

    def _load(self, name: str) -> Any:
        module, _, attribute = self.places[name].partition(":")
        found = getattr(importlib.import_module(module), attribute)
        if attribute == APP:
            group = typer.main.get_command(found)
            group.name = name
            return group
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(name, cls=self.cls(name))(found)
        return typer.main.get_command(alone)


class LazyGroup(TyperGroup):
    """A group whose help and completion import no command."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with self._only_listed():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._only_listed():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _only_listed(self) -> Iterator[None]:
        whole = self.commands
        if isinstance(whole, LazyCommands):
            self.commands = whole.listed()
        try:
            yield
        finally:
            self.commands = whole


def first_paragraph(place: str) -> str:
    """Return the first paragraph of the help of the command at ``place``, without importing it.

    The help of a group of commands is that of its callback. Parsing all files would take as long
    as everything else that `edgefl --help` does; so this searches in their text.
    """
    module, _, attribute = place.partition(":")
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None  # a module of this package
    begin = f"@{APP}.callback()\ndef " if attribute == APP else f"\ndef {attribute}("
    source = Path(spec.origin).read_text(encoding="utf-8").partition(begin)[2]
    found = DOCSTRING.search(source)
    if found is None:
        raise LookupError(place)
    return found[1]
