"""How the messages of an experiment are packed, from its table [compression]."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgefl.compression.compressor import Compressor, find
from edgefl.compression.packing import Packing
from edgefl.config.experiment import Experiment, Named
from edgefl.record.counters import Counters
from edgefl.strategies.base.catalog import load as load_strategy
from edgefl.streams import Streams
from edgefl.vectors import Layout


def packing(
    experiment: Experiment, index: int, layout: Layout, base: Path | None
) -> Packing | None:
    """Return the packing of the strategy at ``index``, for a run or an edge; None without the
    table. ``base``: the folder of the user's code.
    """
    section = experiment.compression
    if section.up is None and section.down is None:
        return None
    return Packing(
        _method(section.up, base),
        _method(section.down, base),
        layout,
        Streams(experiment.seed),
        load_strategy(experiment.strategies[index].strategy, base).delivers,
        section.cost_samples,
    )


def compression_section(packed: Packing | None, counters: Counters) -> dict[str, Any]:
    """Return the section "compression" of summary.json: the bytes without it, such as "raw" in
    tables; {} if nothing is packed.
    """
    if packed is None:
        return {}
    return {
        "compression": {
            "raw_bytes_up": counters.bytes_up + packed.saved_up,
            "raw_bytes_down": counters.bytes_down + packed.saved_down,
        }
    }


def model_bytes(experiment: Experiment, layout: Layout, base: Path | None) -> int:
    """Return the bytes of a model on its way down, or of its change on its way up if that is
    more.
    """
    section = experiment.compression
    ways = [_method(way, base) for way in (section.up, section.down)]
    return Packing(ways[0], ways[1], layout, Streams(experiment.seed)).model_bytes()


def _method(section: Named | None, base: Path | None) -> Compressor | None:
    return None if section is None else find(section.name, section.options(), base)
