"""Write summary.json: head, counters, outcome, the reports' sections, warnings and verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from edgefl.config.evaluation import Evaluation
from edgefl.disk import Disk
from edgefl.record.counters import Counters
from edgefl.record.files import METRICS, SUMMARY
from edgefl.record.tables import write_whole
from edgefl.reports.registry import sections
from edgefl.results.energy import MEASURED, joules_to_target
from edgefl.results.summary import outcome, scores_not_finite
from edgefl.results.tail import read_csv
from edgefl.results.warnings import warnings


def write_summary(
    directory: Path,
    head: dict[str, Any],
    counters: Counters,
    evaluation: Evaluation,
    fidelity: dict[str, Any],
    hosts: Sequence[Mapping[str, Any]] = (),
    disk: Disk | None = None,
    durable: bool = False,
    energy: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write and return the summary of a run whose other files are complete and closed.

    ``head``: the caller's facts about the run, "emulated_s" among them. ``fidelity``: the verdict.
    ``hosts``: one entry for each host that has told about itself. ``energy``: its section, without
    the joules to the target.
    """
    rows = read_csv(directory / METRICS)
    not_finite = scores_not_finite(rows)
    found = outcome(rows, evaluation.goal, evaluation.score, head["emulated_s"])
    summary = {
        **head,
        **counters.of_updates(),
        **found,
        **counters.of_run(),
        **({"scores_not_finite": not_finite} if not_finite else {}),
        **_energy(energy, joules_to_target(rows, found["time_to_target_s"]), hosts),
        **sections(directory, counters.marks, head["emulated_s"]),
        **({"hosts": list(hosts)} if hosts else {}),
    }
    summary |= {"warnings": warnings({**summary, "fidelity": fidelity}), "fidelity": fidelity}
    write_whole(
        directory / SUMMARY, orjson.dumps(summary, option=orjson.OPT_INDENT_2), disk, durable
    )
    return summary


def _energy(
    section: Mapping[str, Any] | None,
    to_target: float | None,
    hosts: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The section about energy: modelled, measured by the hosts' meters, or both."""
    metered = [host["joules"] for host in hosts if "joules" in host]
    measured = {"measured_joules": sum(metered)} if metered else {}
    if section is None:
        whole = {"kind": MEASURED, "joules": sum(metered), **measured}
        return {"energy": whole} if metered else {}
    return {"energy": {**section, "joules_to_target": to_target, **measured}}
