"""Start processes, and set what the operating system does with them.

``RunProcesses`` starts those of a run on the wall clock, which load their code while the launcher
still reads the experiment. So this file imports little.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from edgefl.clocks.ctrl_c import LIKE_CTRL_C, interrupt
from edgefl.clocks.ipc import Channel
from edgefl.errors import UserError

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -3, -4, -8
KEEP_BYTES = 1 << 30
LARGEST_ON_HEAP = 1 << 25  # glibc takes no larger value, but it can put all on the heap
MOST_FILES = 65536
FILES_PER_EDGE, FILES_SPARE = 1, 64
# In a process with several edges: the connection and what wakes its reader. While it joins, two
# more watch the connection; few edges join at a time.
FILES_PER_SHARED, FILES_JOINING = 2, 200
# On a host with so many edges each has a process: then trainings of small experiments overlap on
# the cores as before, and an injected kill or freeze is one of a real process.
MOST_ALONE = 100
# Edges that share a process share a core. More processes than cores, because one that is evaluated
# by Python waits for its lock; each costs PROCESS_BYTES, of which at most half of the free memory
# is taken.
PROCESSES_PER_CORE, PROCESS_BYTES = 4, 12 << 20
EDGE_BYTES = 120_000  # of an edge that shares a process, without models
WARM, COORDINATOR = "edgefl.clocks.wall.fleet", "edgefl.clocks.wall.coordinator.process"
END_PATIENCE_S = 10.0
ORPHAN_S = 30  # how long a process may still write after its parent has ended
# numpy reads these when it is loaded; a process with more threads cannot be forked safely
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def spawn(
    module: str,
    channels: list[Channel],
    keep: list[Channel] | None = None,
    paths: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start ``python -m module FD...`` with these channel ends.

    This process closes its copies of the ends, except those in ``keep``. ``paths``: folders of
    modules that the new process can import, too. The new process has its own process group, so that
    a terminal's Ctrl-C reaches only this process, which ends the others in order.
    """
    fds = [channel.fileno() for channel in channels]
    known = filter(None, (*paths, os.environ.get("PYTHONPATH")))
    found = {"PYTHONPATH": os.pathsep.join(known)} if paths else {}
    process = subprocess.Popen(
        [sys.executable, "-m", module, *map(str, fds)],
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        env=os.environ | ONE_THREAD | found,
        process_group=0,
    )
    for channel in channels:
        if channel not in (keep or []):
            channel.close()
    return process


def end_in(patience_s: float, process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process; kill it after ``patience_s``, or at a Ctrl-C."""
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()


class RunProcesses:
    """Starts the warm parent and the first coordinator at once, and later ones when needed.

    ``control``: the channel to the warm parent. ``paths``: see ``spawn``. As a context, it ends
    what it has started.
    """

    def __init__(self, paths: Sequence[str] = ()) -> None:
        self._paths = paths
        # between each coordinator and two children of the warm parent
        evaluations, jobs = Channel.pair(), Channel.pair()
        self.control, theirs = Channel.pair()
        self.warm = spawn(WARM, [theirs, evaluations[1], jobs[1]], paths=paths)
        self.warmed_up = False
        self._workers = [evaluations[0], jobs[0]]
        self._loading: tuple[Channel, subprocess.Popen[bytes]] | None = self._start()

    def __enter__(self) -> RunProcesses:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def coordinator(self) -> tuple[Channel, subprocess.Popen[bytes]]:
        """Return a coordinator that waits for its StartRun, and the channel to it."""
        found, self._loading = self._loading or self._start(), None
        return found

    def end(self) -> None:
        """End the warm parent, its children, and a coordinator that was not used."""
        self.control.close()
        try:
            # it reads no messages while it loads
            end_in(END_PATIENCE_S if self.warmed_up else 0.0, self.warm)
        finally:
            if self._loading is not None:
                channel, process = self._loading
                self._loading = None
                channel.close()
                end_in(0.0, process)

    def _start(self) -> tuple[Channel, subprocess.Popen[bytes]]:
        ours, theirs = Channel.pair()
        ends = [theirs, *self._workers]
        return ours, spawn(COORDINATOR, ends, keep=self._workers, paths=self._paths)


def fork(name: str, work: Callable[[], int | None]) -> int:
    """Fork a child that runs ``work``, and return its pid.

    The child exits with the status that ``work`` returns (None: 0), or with 1 and a traceback if
    it raises. It ignores Ctrl-C, and the system kills it when this process ends. ps and top show
    ``name``.
    """
    sys.stdout.flush(), sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        status = _child(name, work, parent)
    finally:  # an exception must not return into the parent's code
        os._exit(status)


def _child(name: str, work: Callable[[], int | None], parent: int) -> int:
    status: int | None = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in LIKE_CTRL_C:
            if signal.getsignal(number) is interrupt:
                signal.signal(number, signal.SIG_DFL)
        _control(PR_SET_NAME, name.encode())  # Linux cuts it to 15 bytes
        die_with_parent()
        # the parent may have ended before die_with_parent took effect
        status = work() if os.getppid() == parent else 0
    except BaseException as error:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
        traceback.print_exc()
    with suppress(OSError, ValueError):
        sys.stdout.flush(), sys.stderr.flush()
    return status or 0


def answer_of_fork(name: str, work: Callable[[], str]) -> tuple[str, int]:
    """Run ``work`` in a fork, and return its answer and the fork's exit status."""
    reader, writer = os.pipe()

    def answer() -> None:
        with os.fdopen(writer, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(work())

    pid = fork(name, answer)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as found:
        text = found.read()
    return text, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def forked_bytes(work: Callable[[], object]) -> int:
    """Run ``work`` in a fork, and return the private memory that the fork has then, in bytes."""
    import psutil  # here, because each command starts faster without it

    def measure() -> str:
        work()
        return str(psutil.Process().memory_full_info().uss)

    return int(answer_of_fork("memory", measure)[0])


def die_with_parent() -> None:
    """Ask the system to kill this process when its parent ends, for whatever reason."""
    _control(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_soon() -> None:
    """Ask the system to end this process in ORPHAN_S seconds, whatever its threads do."""
    signal.alarm(ORPHAN_S)


def _control(option: int, value: int | bytes) -> None:
    with suppress(OSError, AttributeError):  # only Linux has prctl
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def close_all_but(*keep: int) -> None:
    """Close every descriptor above stderr except ``keep``.

    If a child kept the parent's other channels open, their other ends would not see them close.
    """
    most = min(os.sysconf("SC_OPEN_MAX"), MOST_FILES)
    for below, above in zip((2, *sorted(keep)), (*sorted(keep), most)):
        os.closerange(below + 1, above)


def most_files() -> int:
    """Raise the limit of this process's open files as far as allowed, and return it."""
    import resource  # POSIX only

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def room_for_edges(edges: int) -> int:
    """Raise the limit of open files as far as allowed, and return how many ``edges`` leave over.

    UserError if there are too few: at the limit libzmq would spin.
    """
    hard = most_files()
    left = hard - edges * FILES_PER_EDGE - FILES_SPARE
    if left < 0:
        raise UserError(
            f"{edges} edges need {edges * FILES_PER_EDGE + FILES_SPARE} open files, this system"
            f" allows {hard} (ulimit -n)"
        )
    return left


def edge_groups(
    edges: Sequence[str],
    per_process: int | str,
    alone: Collection[str],
    cores: int,
    free_bytes: int,
) -> list[tuple[str, ...]]:
    """Divide the edges of this host among processes, neighbours into one.

    ``per_process``: as ``edges.per_process`` has it. ``alone``: edges that share none. UserError if
    a process may not have as many open files as its edges need.
    """
    together = [edge for edge in edges if edge not in alone]
    fit = max((most_files() - FILES_SPARE - FILES_JOINING) // FILES_PER_SHARED, 1)
    if not isinstance(per_process, int):
        most = max(min(PROCESSES_PER_CORE * cores, free_bytes // 2 // PROCESS_BYTES), 1)
        per_process = 1 if len(edges) <= MOST_ALONE else min(-(-len(together) // most) or 1, fit)
    elif (largest := min(per_process, len(together))) > fit:
        raise UserError(
            f"edges.per_process: {largest} edges in a process need"
            f" {largest * FILES_PER_SHARED + FILES_SPARE + FILES_JOINING} open files, this"
            f" system allows {most_files()} (ulimit -n): expected {fit} or fewer"
        )
    starts = range(0, len(together), per_process)
    groups = [tuple(together[start : start + per_process]) for start in starts]
    return groups + [(edge,) for edge in edges if edge in alone]


def group_name(edges: Sequence[str]) -> str:
    """How lines for users name the process of these edges."""
    if len(edges) == 1:
        return f"edge {edges[0]}"
    return f"the process of {len(edges)} edges ({edges[0]} to {edges[-1]})"


def keep_freed_memory(of_any_size: bool = False) -> bool:
    """Reuse the memory of freed models instead of returning it to the system.

    New pages cost as much time as the copy into them, and large ones often much more.
    ``of_any_size``: also above LARGEST_ON_HEAP; for a process whose large vectors have few
    different sizes, so that they fit into the gaps of others. False if the C library is not glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False  # another C library
    return bool(
        mallopt(M_ARENA_MAX, 1)
        and mallopt(M_MMAP_THRESHOLD, LARGEST_ON_HEAP)
        and mallopt(M_TRIM_THRESHOLD, KEEP_BYTES)
        and (not of_any_size or mallopt(M_MMAP_MAX, 0))
    )
