"""Put the numbers of ``[devices.sampler]`` files into the config, so that edges elsewhere, and
later runs, need no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgefl.config.errors import Loc, Source
from emulator.compute import read_device_table
from emulator.errors import BadValue


def read_device_tables(raw: Mapping[str, Any], source: Source, base: Path) -> None:
    """Replace ``file`` and ``column`` of each sampler in ``raw`` by ``values`` and ``origin``.

    A sampler that is not complete is left for the check of the config. UserError for a file that is
    no such table.
    """
    for loc, sampler in _samplers(raw):
        file, column = sampler.get("file"), sampler.get("column")
        if not isinstance(file, str) or not isinstance(column, str) or "values" in sampler:
            continue
        try:
            values = read_device_table(base / Path(file).expanduser(), column)
        except BadValue as error:
            raise source.error((*loc, "file"), str(error)) from error
        del sampler["file"], sampler["column"]
        # not the whole path: edges refuse a config with paths of another machine
        sampler |= {"values": values, "origin": f"{Path(file).name}: {column}"}


def _samplers(raw: Mapping[str, Any]) -> Iterator[tuple[Loc, dict[str, Any]]]:
    groups = raw.get("groups")
    tables: list[tuple[Loc, Any]] = [(("devices",), raw.get("devices"))]
    for index, group in enumerate(groups if isinstance(groups, list) else []):
        if isinstance(group, dict):
            tables.append((("groups", index, "devices"), group.get("devices")))
    for loc, table in tables:
        if isinstance(table, dict) and isinstance(table.get("sampler"), dict):
            yield (*loc, "sampler"), table["sampler"]
