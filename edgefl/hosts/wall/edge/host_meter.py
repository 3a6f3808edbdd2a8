"""The energy meter of an edge's host, which its user names in the environment."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path
from typing import Any

import orjson

from edgefl.errors import UserError
from emulator.energy.meters import Meter, open_meter
from emulator.errors import BadValue

METER = "EDGEFL_METER"  # environment variable: rapl, ina219, the address of a plug, or auto
PLUG_PATIENCE_S = 1.0
MOST_ANSWER_BYTES = 65_536


def host_meter(root: Path = Path("/")) -> Meter | None:
    """The meter that EDGEFL_METER names; None without it. UserError if this host has none."""
    try:
        return open_meter(os.environ.get(METER, ""), fetch_json, root)
    except BadValue as error:
        raise UserError(f"{METER}: {error}") from error


def fetch_json(address: str) -> Any:
    """The JSON at ``address``. OSError or ValueError if there is none."""
    with urllib.request.urlopen(address, timeout=PLUG_PATIENCE_S) as answer:
        return orjson.loads(answer.read(MOST_ANSWER_BYTES))
