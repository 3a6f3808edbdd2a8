"""What one coordinator process runs, and what its edges must have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import orjson

import edgefl
from edgefl.config.experiment import Experiment
from edgefl.config.toml import parsed
from edgefl.errors import UserError, undamaged
from edgefl.hosts.process_messages import SHARES, StartRun, frozen_digest
from edgefl.hosts.wall import keys as curve
from edgefl.hosts.wall.coordinator.session import Expected
from edgefl.hosts.wall.system import System
from edgefl.loading.file import FACTS, shared_digest, to_json
from edgefl.protocol.messages import Setup
from edgefl.record.files import CONFIG
from edgefl.vectors import Layout
from emulator.units import to_ns

SILENCE_SHARE = 1.25  # edge timeout / coordinator liveness timeout


@dataclass(frozen=True, slots=True)
class CoordinatorTask:
    """What one coordinator process runs. Large data is in files in ``scratch``."""

    experiment: Experiment
    index: int
    directory: Path
    base: Path | None
    scratch: Path
    data_digest: str
    keys: curve.ServerKeys | None
    more: bool
    strains: tuple[str, ...]  # why the host is too slow, from the check before the run
    speed_auto: bool
    resume: bool = False  # go on with what is in ``directory``
    engine: str = ""  # what computes its training, as far as the launcher's host knows


def coordinator_task(start: StartRun) -> CoordinatorTask:
    return CoordinatorTask(
        Experiment.model_validate_json(start.experiment),
        start.index,
        Path(start.directory),
        Path(start.base) if start.base else None,
        Path(start.scratch),
        start.data_digest,
        curve.load_server(Path(start.keys)) if start.keys else None,
        start.more,
        start.strains,
        start.speed_auto,
        start.resume,
        start.engine,
    )


def shares(scratch: Path) -> dict[str, int]:
    """Samples by edge, if the warm parent knows the split."""
    path = scratch / SHARES
    return orjson.loads(path.read_bytes()) if path.exists() else {}


def expected(job: CoordinatorTask, layout: Layout, run_id: str) -> Expected:
    experiment, entry = job.experiment, job.experiment.strategies[job.index]
    section = experiment.network
    return Expected(
        edges=frozenset(experiment.edges.ids()),
        package=edgefl.__version__,
        config_digest=shared_digest(experiment, entry),
        layout_digest=layout.digest(),
        data_digest=job.data_digest,
        setup=Setup(
            to_json(experiment, entry),
            entry.strategy,
            to_ns(section.heartbeat_s),
            to_ns(SILENCE_SHARE * section.liveness_s),
            to_ns(section.report_s),
            run_id,
        ),
        keyed=job.keys is not None,
        heartbeat_ns=to_ns(section.heartbeat_s),
        liveness_ns=to_ns(section.liveness_s),
        max_sessions=section.max_edges,
        frozen_digest=frozen_digest(job.scratch),
    )


def run_id(job: CoordinatorTask, system: System) -> str:
    """The random name of the run, by which edges know it; that of a run that goes on."""
    if not job.resume:
        return f"{system.random_bits(64):016x}"
    path = job.directory / CONFIG
    try:
        text = system.disk.read(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    with undamaged(path):
        return str(parsed(text.decode())[FACTS]["run_id"])
