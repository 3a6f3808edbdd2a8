"""Check ``[edges.availability]`` together with the rest of an experiment."""

from __future__ import annotations

from pathlib import Path

from edgefl.config import groups as config_groups
from edgefl.config.errors import Source
from edgefl.config.experiment import Experiment
from emulator.availability import recorded_presence
from emulator.errors import BadValue

AT = ("edges", "availability")


def check_absences(experiment: Experiment, source: Source, base: Path | None) -> None:
    """UserError for the first problem. Without ``base``, the file is not read."""
    section = experiment.edges.availability
    if section is None or section.kind == "always":
        return
    if experiment.stop.emulated_s is None:
        raise source.error(
            ("stop", "emulated_s"),
            f'missing; edges.availability.kind = "{section.kind}" needs it, because a run could'
            " wait for absent edges without end",
        )
    for part in config_groups.parts(experiment, source):
        for table in ("links", "devices"):
            if getattr(part, table).kind == "native":
                raise source.error(
                    (*AT, "kind"), f'expected "always" with native {table}: nothing stops those'
                )
        spread = part.devices.spread
        if section.speed_exponent and spread not in ("uniform", "lognormal"):
            raise source.error(
                (*AT, "speed_exponent"),
                f'expected devices.spread = "uniform" or "lognormal", found "{spread}": only then'
                " an edge has a speed",
            )
    if section.patterns is not None:
        missing = [edge for edge in experiment.edges.ids() if edge not in section.patterns]
        if missing:
            raise source.error((*AT, "patterns"), f"no pattern of edge {missing[0]!r}")
    if section.file is None or base is None:
        return
    path = base / Path(section.file).expanduser()
    try:
        clients = recorded_presence(path, section.format, section.period_s)
    except BadValue as error:
        raise source.error((*AT, "file"), str(error)) from error
    ids = experiment.edges.ids()
    missing = [edge for edge in ids if edge not in clients]
    if missing and len(missing) < len(ids):
        raise source.error(
            (*AT, "file"),
            f"availability {path}: no interval of edge {missing[0]!r}, but of others: expected all"
            " edges, or none of their ids",
        )
