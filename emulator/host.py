"""The machine: facts for the fidelity verdict, and real-time priority."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_CPUINFO = Path("/proc/cpuinfo")
_GPUS = "proc/driver/nvidia/gpus/*/information"


REAL_TIME = "SCHED_FIFO"


def real_time_priority(level: int = 1) -> str:
    """Request real-time priority for this thread; return REAL_TIME, or "normal" if refused.

    Threads and processes that it starts have normal priority. Otherwise an orphaned or
    long-running process could block a core.
    """
    try:
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(level))
    except (AttributeError, OSError):
        return "normal"
    return REAL_TIME


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host_facts() -> dict[str, object]:
    """Return facts about this machine as plain values.

    They are the cores that this process may use, CPU model, frequency governor (None if it cannot
    be read), kernel, memory in bytes, Python version, and the names of the GPUs if there are any.
    """
    found = gpus()
    return {
        "cores": cores(),
        "cpu_model": _cpu_model(),
        "governor": _text(_GOVERNOR).strip() or None,
        "kernel": f"{platform.system()} {platform.release()}",
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        **({"gpus": found} if found else {}),
    }


def gpus(root: Path = Path("/")) -> list[str]:
    """Return the names of the NVIDIA GPUs that the driver lists, in the order of their slots.

    It asks no CUDA, so the process may still be forked.
    """
    lines = [line for file in sorted(root.glob(_GPUS)) for line in _text(file).splitlines()]
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]


def _cpu_model() -> str:
    # x86 lists "model name" for each core; a Raspberry Pi lists "Model" once at the end;
    # platform.processor() is often empty.
    for key in ("model name", "Model"):
        for line in _text(_CPUINFO).splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
