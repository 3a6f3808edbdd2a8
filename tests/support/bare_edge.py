"""Run `edgefl WORDS` in this process as on another machine, and write down what it imported.

``python bare_edge.py REPORT posix|base WORDS...``:

posix  a system that is not Linux: no fork, prctl, sched_*, resource, fcntl, and more of that kind
base   an environment without the packages of the extra `lab`

The report, written at the end, is a JSON object: the imported modules, and the memory (bytes).
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.abc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

POSIX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios")
NOT_EVERYWHERE: dict[Any, tuple[str, ...]] = {
    os: (
        *("fork", "forkpty", "killpg", "setsid", "nice"),
        *("sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "sched_param"),
        *("SCHED_FIFO", "SCHED_RESET_ON_FORK", "sysconf", "getuid", "geteuid", "getloadavg"),
        *("pipe2", "eventfd", "EFD_NONBLOCK", "memfd_create", "posix_fadvise", "pidfd_open"),
        *("posix_spawn", "pwritev", "splice", "sendfile"),
    ),
    signal: (
        *("SIGHUP", "SIGKILL", "SIGSTOP", "SIGCONT", "SIGCHLD", "SIGUSR1", "SIGUSR2", "SIGALRM"),
        *("alarm", "setitimer", "pthread_sigmask", "sigwait", "pthread_kill"),
    ),
    select: ("epoll", "poll"),
    socket: ("SOCK_SEQPACKET", "SCM_RIGHTS", "TCP_INFO", "SO_BINDTODEVICE"),
}
LIBRARY_CALLS = ("prctl", "mallopt", "sched_setscheduler", "timerfd_create", "epoll_create")
LAB = ("matplotlib", "sklearn", "scipy", "PIL", "pooch", "requests", "pandas")


class Hidden(importlib.abc.MetaPathFinder):
    """Refuses the import of these modules."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"hidden: {fullname}", name=fullname)


class OtherLibrary(ctypes.CDLL):
    """A C library without the calls of Linux."""

    def __getattr__(self, name: str) -> Any:
        if name in LIBRARY_CALLS:
            raise AttributeError(name)
        return super().__getattr__(name)


def hide_modules(names: Sequence[str]) -> None:
    for name in names:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Hidden(names))


def hide_linux() -> None:
    import psutil  # before: its build for Linux needs Linux, those for others do not

    for owner, names in (
        (psutil, ("sensors_temperatures", "sensors_fans")),
        (psutil.Process, ("cpu_affinity", "io_counters", "num_fds", "rlimit", "uids")),
    ):
        for name in names:
            delattr(owner, name)
    hide_modules(POSIX_MODULES)
    for module, names in NOT_EVERYWHERE.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    ctypes.CDLL = OtherLibrary  # type: ignore[misc]  # that is the point


def report(path: Path) -> None:
    import psutil

    memory = psutil.Process().memory_info()
    found = {"modules": sorted(sys.modules), "rss": memory.rss}
    path.write_text(json.dumps(found))


if __name__ == "__main__":
    place, system, *words = sys.argv[1:]
    {"posix": hide_linux, "base": lambda: hide_modules(LAB), "all": bool}[system]()
    atexit.register(report, Path(place).absolute())
    sys.argv = ["edgefl", *words]
    from edgefl.cli import main

    main()
