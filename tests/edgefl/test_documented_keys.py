"""The generated reference has every config key, with a text."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator

import pytest
from pages import text
from paths import ROOT
from pydantic import BaseModel

from edgefl import catalog
from edgefl.clocks.wall.coordinator.logic import DISK_FULL
from edgefl.clocks.wall.coordinator.sessions import USELESS
from edgefl.config.keys import keys, sections
from edgefl.plugins.launch.inventory import InventoryFile
from edgefl.strategies.base.catalog import load, strategy_names

sys.path.insert(0, str(ROOT / "docs"))
from _generate import pages


def file_keys() -> Iterator[str]:
    """Yield every dotted key of the file; strategies[].strategy for the keys of an entry."""
    for place, model in sections():
        for key in model.model_fields:
            if not any(
                inner == f"{place}.{key}".lstrip(".")
                or inner.startswith(f"{place}.{key}[".lstrip("."))
                for inner, _ in sections()
            ):
                yield f"{place}.{key}".lstrip(".")


def options() -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield every plug-in with options."""
    for name in strategy_names():
        yield f"strategy {name}", load(name).Options
    for package, attribute, _ in catalog.PARTS.values():
        for name in catalog.names(package, attribute):
            found = getattr(
                importlib.import_module(f"{package}.{name}"), "Options", None
            )  # most data sets have none
            if found is not None:
                yield f"{package}.{name}", found


@pytest.mark.slow
def test_every_key_is_in_the_reference() -> None:
    rows = {row.split("`")[1]: row for row in pages.config_page().splitlines() if row[:3] == "| `"}
    keys_of_file = list(file_keys())
    assert {"name", "training.learning_rate", "edges.names", "strategies[].label"} <= {
        *keys_of_file
    }
    for key in keys_of_file:
        cells = [cell.strip() for cell in rows[key].replace("\\|", "/").split("|")[1:-1]]
        assert len(cells) == 5 and cells[1] and cells[4], rows[key]  # a type and a meaning


@pytest.mark.slow
def test_every_option_has_a_text() -> None:
    assert [owner for owner, model in options() for key in keys(model) if not key.text] == []


def test_every_key_of_an_inventory_is_in_the_reference() -> None:
    rows = [line for line in pages.inventory_page().splitlines() if line.startswith("| `")]
    named = {row.split("`")[1] for row in rows}
    tables = [(place, model) for place, model in sections(InventoryFile) if place]
    expected = {f"{place}.{key}" for place, model in tables for key in model.model_fields}
    assert expected <= named and {"hosts[].host", "coordinator.via"} <= named
    assert [row for row in rows if not row.rstrip("| ").rpartition("|")[2].strip()] == []


def test_a_row_has_type_default_bounds_and_unit() -> None:
    rows = pages.config_page().splitlines()
    (row,) = (row for row in rows if row.startswith("| `network.heartbeat_s` |"))
    assert row.startswith("| `network.heartbeat_s` | number, s | `0.5` | more than 0 | ")
    (row,) = (row for row in rows if row.startswith("| `stop.emulated_s` |"))
    assert row.startswith("| `stop.emulated_s` | number, s | none | more than 0, at most 9e+09 | ")
    assert {key.name for key in keys(load("fedprox").Options)} == {
        "selection",
        "clients_per_round",
        "mu",
    }


def test_every_strategy_has_its_equations_and_its_options() -> None:
    page = text(ROOT / "docs" / "reference" / "strategies.md")
    for name in strategy_names():
        section = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert len(section) > 100 and f"<!-- options: {name} -->" in section, name


def test_every_fact_of_a_run_is_in_the_reference() -> None:
    told = ("fact", "_fact", "_record", "Noticed", "_count")  # the last one: only with a reason
    found = {DISK_FULL, f"{USELESS}s"}
    for folder in ("clocks", "coordinator"):
        for file in sorted((ROOT / "edgefl" / folder).rglob("*.py")):
            for call in ast.walk(ast.parse(file.read_text())):
                if (
                    not isinstance(call, ast.Call)
                    or ast.unparse(call.func).split(".")[-1] not in told
                ):
                    continue
                texts = [each.value for each in call.args if isinstance(each, ast.Constant)]
                if len(call.args) > 1 or call.keywords:
                    found |= {text for text in texts if isinstance(text, str)}
    page = (ROOT / "docs" / "reference" / "files.md").read_text()
    listed = re.search(r"what it was not told \((.*?)\)", page)
    assert listed and re.findall(r"`(\w+)`", listed[1]) == sorted(
        name.replace(" ", "_") for name in found
    )
