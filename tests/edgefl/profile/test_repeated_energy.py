"""A repeated experiment keeps the powers of the one that was measured."""

from __future__ import annotations

from pathlib import Path

from builders import experiment

from edgefl.config.groups import parts
from edgefl.hosts.setup.plan import devices
from edgefl.loading.file import load
from edgefl.profile.repeat import Match, config_text, edge_tables
from emulator.energy.power import DevicePower, radio_power


def test_powers_stay_as_numbers_of_each_edge(tmp_path: Path) -> None:
    given = experiment(
        stop={"target_joules": 50.0},
        links={"profile": "lte", "radio": {}},
        devices={"profile": "pi4", "energy": {"idle_w": 2.0}},
    )
    tables = edge_tables(given, {}, {}, "", Match.time, devices(given))
    path = tmp_path / "again.toml"
    path.write_text(config_text(given, tables, "runs/first", None))
    for part in parts(load(path)):
        assert part.links.radio is not None and part.devices.energy is not None
        assert part.links.radio.power(None) == radio_power("lte")
        assert part.devices.energy.power(None) == DevicePower(2.0, 6.4)
