"""``edgefl strategies | models | datasets``: lists plug-ins with the first line of their docstring.

Imports none of them.
"""

from __future__ import annotations

from edgefl import catalog
from edgefl.commands import show


def strategies() -> None:
    """List the strategies that an experiment can compare."""
    # imported here: it needs numpy, which the other listings do not
    from edgefl.strategies.base.catalog import (
        file_stem,
        strategy_names,
    )

    show.rows(
        [
            (name, catalog.one_line("edgefl.strategies", file_stem(name)))
            for name in strategy_names()
        ]
    )
    show.hint(
        '[[strategies]] strategy = "NAME" in a config (or your own, "my_algo.py:MyAlgo"), then'
        " edgefl run CONFIG"
    )


def models() -> None:
    """List the models that the edges can train."""
    _list("edgefl.models", catalog.names("edgefl.models", "build"))
    show.hint('[model] name = "NAME" in a config, or edgefl run CONFIG model.name=NAME')


def datasets() -> None:
    """List the data sets on which the edges can train."""
    _list("edgefl.data", catalog.names("edgefl.data", "load"))
    show.hint('[data] name = "NAME" in a config, or edgefl run CONFIG data.name=NAME')


def _list(package: str, names: list[str]) -> None:
    show.rows([(name, catalog.one_line(package, name)) for name in names])
