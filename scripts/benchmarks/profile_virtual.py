"""Profile of a virtual run, by folder of the code and by function.

Without CONFIG it is the run of virtual.py. A function's own time counts for its folder. The time of
C code counts for the folder that called it, except torch and waiting for workers. The profiler
slows Python down, but not C code.
"""

from __future__ import annotations

import cProfile
import pstats
import tempfile
from collections import Counter
from pathlib import Path

from table import Row, arguments, host_line, report, run
from virtual import FEDBUFF, HERE, experiment_of

from edgefl.config.experiment import Experiment
from edgefl.hosts.setup.learning import learning
from edgefl.hosts.virtual.pool.engine import open_pool
from edgefl.hosts.virtual.run import run_virtual
from edgefl.loading.file import base_of, load

ROOT = Path(__file__).resolve().parents[2]
C_CODE, TORCH, WAITING, OTHER = "~", "torch", "waiting for workers", "Python and its libraries"
Function = tuple[str, int, str]  # file, line, name


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "config",
        nargs="?",
        type=Path,
        metavar="CONFIG",
        help="experiment whose first strategy is run",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument(
        "--updates",
        type=int,
        default=100,
        metavar="N",
        help="updates of the run without CONFIG (default: 100)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="profile the host with N workers (default: 1, in this process)",
    )
    parser.add_argument(
        "--functions", type=int, default=25, metavar="N", help="functions to list (default: 25)"
    )
    options, host = parser.parse_args(), host_line()
    if options.config is None:
        stats = profiled(experiment_of(FEDBUFF, updates=options.updates), HERE, options.workers)
    else:
        stats = profiled(
            load(options.config, options.overrides), base_of(options.config), options.workers
        )
    rooms, functions = Counter[str](), Counter[str]()
    for function, (_, _, own_s, _, callers) in stats.stats.items():
        functions[name_of(function)] += own_s
        rooms.update(shares(function, own_s, callers))
    whole = sum(rooms.values())
    rows = [Row(room, 100 * spent / whole, "%") for room, spent in rooms.most_common() if spent]
    rows += [
        Row(f"  {name}", 100 * spent / whole, "%")
        for name, spent in functions.most_common(options.functions)
    ]
    report(f"{whole:.2f} s of a virtual run", host, rows, options.json)


def profiled(experiment: Experiment, base: Path, workers: int) -> pstats.Stats:
    learned, profile = learning(experiment, base), cProfile.Profile()
    with (
        tempfile.TemporaryDirectory(prefix="profile-virtual-") as scratch,
        open_pool(learned, workers) as pool,
    ):
        profile.enable()
        run_virtual(learned, 0, Path(scratch) / "run", pool=pool)
        profile.disable()
    return pstats.Stats(profile)


def shares(
    function: Function, own_s: float, callers: dict[Function, tuple[int, int, float, float]]
) -> dict[str, float]:
    """Return the function's own time by folder."""
    file, _, name = function
    if file != C_CODE:
        return {room_of(file): own_s}
    if "torch" in name or "run_backward" in name:
        return {TORCH: own_s}
    if "epoll" in name:
        return {WAITING: own_s}
    found = Counter[str]()
    for caller, (_, _, spent, _) in callers.items():
        found[room_of(caller[0])] += spent
    return found


def room_of(file: str) -> str:
    """Return the folder of a file: edgefl/hosts/virtual/pool, emulator, torch, ..."""
    path = Path(file)
    if path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / ".venv"):
        return path.relative_to(ROOT).parent.as_posix()
    return TORCH if "torch" in path.parts else OTHER


def name_of(function: Function) -> str:
    file, line, name = function
    return name if file == C_CODE else f"{Path(file).name}:{line} {name}"


if __name__ == "__main__":
    run(main)
