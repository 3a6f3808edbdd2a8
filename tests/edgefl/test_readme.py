"""The README names every key that a config can have."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest
from paths import ROOT
from pydantic import BaseModel

from edgefl import catalog
from edgefl.config.key_names import sections
from edgefl.strategies.base.catalog import load, strategy_names

README = ROOT / "README.md"


def file_keys() -> Iterator[str]:
    """Every dotted key of the file itself; strategies[].strategy for the keys of an entry."""
    for place, model in sections():
        for key in model.model_fields:
            if not any(
                inner == f"{place}.{key}".lstrip(".")
                or inner.startswith(f"{place}.{key}[".lstrip("."))
                for inner, _ in sections()
            ):
                yield f"{place}.{key}".lstrip(".")


def options() -> Iterator[tuple[str, type[BaseModel]]]:
    """Every catalog entry that takes options."""
    for name in strategy_names():
        yield f"strategy {name}", load(name).Options
    for package, attribute in (
        ("edgefl.models", "build"),
        ("edgefl.data.partition", "split"),
        ("edgefl.data", "load"),
    ):
        for name in catalog.names(package, attribute):
            found = getattr(
                importlib.import_module(f"{package}.{name}"), "Options", None
            )  # most data sets have none
            if found is not None:
                yield f"{package}.{name}", found


def test_the_walk_finds_keys_of_every_depth() -> None:
    assert {
        "name",
        "training.learning_rate",
        "partition.name",
        "edges.names",
        "strategies[].label",
    } <= set(file_keys())


@pytest.mark.parametrize("key", list(file_keys()))
def test_every_key_is_in_the_readme(key: str) -> None:
    assert f"`{key}`" in README.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("owner", "model"), [pytest.param(*pair, id=pair[0]) for pair in options()]
)
def test_every_option_is_in_the_readme(owner: str, model: type[BaseModel]) -> None:
    text = README.read_text(encoding="utf-8")
    assert [key for key in model.model_fields if f"`{key}`" not in text] == [], owner
