"""`python -m edgefl...` without the second of imports, by a fork of a process that has them.

``WarmPython`` replaces ``subprocess.Popen``. A module or a script of this project runs in a fork,
with the requested files, environment, folder and session. Every other command starts as usual. The
forks come from a server process, which each test session starts once. A process that such a fork
starts (a launcher its coordinator) is a fork of the fork.

The server forks twice and this process is a "child subreaper", so the forks are its own children.
Waiting, signals, exit statuses and process trees are therefore as for normal child processes.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import orjson
from paths import ROOT, SUPPORT

from edgefl.clocks.processes import ONE_THREAD

PACKAGE, SCRIPTS = "edgefl", ROOT / "scripts"
WATCHED = SUPPORT / "watched_edgefl.py"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MOST_BYTES, MOST_FILES = 1 << 20, 64
HEAVY = ("matplotlib.backends.backend_agg", "sklearn.datasets", "torch._dynamo", "torch.optim")

ColdPython = subprocess.Popen  # kept, because tests replace the name later


class WarmPython(ColdPython[Any]):
    """Popen with another way to start the child; that step is unchanged since Python 3.11."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        words = _ours(args)
        if not words or not _may_fork():
            super()._execute_child(args, *rest)
            return
        _, _, _, pass_fds, cwd, env, _, _, _, *pipes = rest[:15]
        stdin, _, _, stdout, _, stderr = pipes
        new_session, group = rest[-2:]
        files = {0: stdin, 1: stdout, 2: stderr} | {fd: fd for fd in pass_fds}
        start = {
            "words": words,
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
            "session": bool(new_session),
            "group": group,
        }
        self.pid = _fork(start, {to: fd for to, fd in files.items() if fd >= 0})
        self._child_created = True
        self._close_pipe_fds(*pipes)  # keep our ends and close the fork's ends


def _ours(args: Any) -> list[str]:
    """Return what to run and its arguments if it is a module or script of the project, else []."""
    if not isinstance(args, list) or args[:1] != [sys.executable]:
        return []
    if args[1:2] == ["-m"] and args[2].partition(".")[0] == PACKAGE:
        return list(args[2:])
    # a script that starts itself would find its old state there
    script = not Server.forked and Path(args[1]).is_relative_to(SCRIPTS)
    return list(args[1:]) if script or Path(args[1]) == WATCHED else []


def _may_fork() -> bool:
    return sys.platform == "linux" and (not Server.forked or threading.active_count() == 1)


def _fork(start: dict[str, Any], files: dict[int, int]) -> int:
    """Fork and return the pid; ``files``: descriptor in the fork -> descriptor here."""
    files = {fd: fd for fd in (0, 1, 2)} | files
    if not Server.forked:
        return Server.present().fork(start, files)
    sys.stdout.flush(), sys.stderr.flush()
    return os.fork() or _become(start, files)


# ------------------------------------------------------------------ the server
class Server:
    """This process's view of the server, which has imported everything."""

    forked = False  # whether this process is a fork itself
    _present: Server | None = None

    @classmethod
    def present(cls) -> Server:
        if cls._present is None:
            cls._present = cls()
        return cls._present

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self.end, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        self.process = ColdPython(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=os.environ | ONE_THREAD | {"PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
        theirs.close()

    def fork(self, start: dict[str, Any], files: dict[int, int]) -> int:
        message = orjson.dumps(start | {"files": list(files)})
        socket.send_fds(self.end, [message], list(files.values()))
        return int(self.end.recv(MOST_BYTES))


def serve(end: socket.socket) -> None:
    """Fork until the test session is over."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    Server.forked = True
    _import_all()
    gc.collect()
    gc.freeze()
    while True:
        message, fds, _, _ = socket.recv_fds(end, MOST_BYTES, MOST_FILES)
        if not message:
            return
        start = orjson.loads(message)
        end.send(str(_fork_orphan(start, dict(zip(start["files"], fds)))).encode())
        for fd in fds:
            os.close(fd)


def _fork_orphan(start: dict[str, Any], files: dict[int, int]) -> int:
    """Fork with a parent that ends, so that the test session's process becomes the parent."""
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        between = os.getpid()
        pid = os.fork()
        if pid == 0:
            while os.getppid() == between:  # else the fork could bind its life to the wrong parent
                time.sleep(0.001)
            _become(start, files)
        os.write(write, str(pid).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        pid = int(pipe.read())
    os.waitpid(between, 0)
    return pid


def _import_all() -> None:
    for name in HEAVY:
        import_module(name)
    package = import_module(PACKAGE)
    for module in pkgutil.walk_packages(package.__path__, f"{PACKAGE}."):
        with suppress(Exception):  # an extra may be missing; a bug shows in the tests
            import_module(module.name)
    assert threading.active_count() == 1


# ------------------------------------------------------------------ in the fork
def _become(start: dict[str, Any], files: dict[int, int]) -> NoReturn:
    """Run the module and end as a Python process would."""
    status = 1
    try:
        _settle(start, files)
        what, *sys.argv[1:] = start["words"]
        if what.endswith(".py"):
            sys.argv[0], sys.path[0] = what, str(Path(what).parent)
            runpy.run_path(what, run_name="__main__")
        else:
            sys.path[0] = start["cwd"]
            sys.modules.pop(what, None)  # because runpy warns about an imported module
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    finally:
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()
        with suppress(OSError):
            sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)


def _settle(start: dict[str, Any], files: dict[int, int]) -> None:
    """Set session, files, environment and folder, as the kernel and a new interpreter do."""
    if start["session"]:
        os.setsid()
    elif start["group"] >= 0:
        os.setpgid(0, start["group"])
    # move them first, because the wanted numbers may be in use
    above = max(*files, *files.values()) + 1
    moved = {to: fcntl.fcntl(fd, fcntl.F_DUPFD, above) for to, fd in files.items()}
    for to, fd in moved.items():
        os.dup2(fd, to)
    wanted = sorted(moved)
    for low, high in zip(wanted, [*wanted[1:], os.sysconf("SC_OPEN_MAX")]):
        os.closerange(low + 1, high)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(start["env"])
    os.chdir(start["cwd"])
    tempfile.tempdir = None  # TMPDIR may be different
    Server.forked = True
    subprocess.Popen = WarmPython


if __name__ == "__main__":
    sys.modules["warm_python"] = sys.modules["__main__"]
    serve(socket.socket(fileno=int(sys.argv[1])))
