"""``edgefl doctor``: what works on this machine, what does not, why, and what to do."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import sys
import sysconfig
import time
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Literal

import psutil
import typer

import edgefl
from edgefl import catalog
from edgefl.clocks.processes import FILES_JOINING, FILES_PER_EDGE, FILES_PER_SHARED, FILES_SPARE
from edgefl.commands import show
from edgefl.config.experiment import FidelityLimits
from edgefl.data.dataset import VARIABLE, cache_dir, data_dir
from edgefl.errors import listed
from edgefl_testbed import NAME, install_command
from emulator.clock import precise_timers
from emulator.host import REAL_TIME, host_facts, real_time_priority

CLOCKS = ("tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page")  # read in ns
CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
SLEEPS, SLEEP_S = 200, 0.001
GB = 1e9
FREE_GB = 1.0  # of memory and disk, below which even small experiments may fail
USES = {  # extra -> what works with it; those of developers are left out
    "lab": "figures, tests over seeds, downloads, pictures, the data set digits",
    "text": "pretrained text models",
    "datasets": "data sets of the Hugging Face hub",
    "live": "edgefl view, --live",
    "launch": "edgefl launch, edgefl hosts",
    "discover": "--announce, --discover",
    "export": "edgefl export to Parquet and TensorBoard, --metrics-port",
    "mlflow": "edgefl export --to mlflow",
    "optuna": "edgefl sweep --sampler optuna",
    "ray": "--engine ray",
    "flower": "Flower apps and partitioners",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    ``status``: "ok"; "limited": it works, with what ``advice`` says; "missing": it does not.
    ``advice``: what that means and what to do; "" if nothing is to do.
    """

    name: str
    status: Literal["ok", "limited", "missing"]
    found: str
    advice: str = ""


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: a list of findings.")
    ] = False,
) -> None:
    """Say what works on this machine, what does not, why, and what to do.

    Looks at Python, cores, memory, timers, priorities, limits of open files, the GPU, data sets,
    and the extras that are installed. It changes nothing, and takes a few seconds.
    """
    findings = list(examined())
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in findings], indent=1))
        return
    width = max(len(each.name) for each in findings)
    for each in findings:
        show.line(f"{each.status:<7}  {each.name:<{width}}  {each.found}")
        if each.advice:
            show.line(f"{'':<7}  {'':<{width}}  -> {each.advice}")
    show.hint("edgefl check CONFIG, for what an experiment needs here")


def examined() -> Iterator[Finding]:
    """Look at this machine, one thing after the other."""
    yield _python()
    yield _cores()
    yield _memory()
    yield _timers()
    yield _clock()
    yield _priority()
    yield _files()
    yield from _torch()
    yield _data()
    yield from _folders()
    yield from _extras()


def _python() -> Finding:
    found = f"edgefl {edgefl.__version__} on Python {sys.version.split()[0]}, {sys.executable}"
    optimized = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    if optimized or sys.base_prefix == "/usr":  # Debian's is, without that option
        return Finding("python", "ok", found)
    return Finding(
        "python",
        "limited",
        f"{found}, built without --enable-optimizations",
        "the coordinator needs about a fifth more of a core; a distribution's Python is faster",
    )


def _cores() -> Finding:
    facts, load = host_facts(), os.getloadavg()[0]
    cores = int(str(facts["cores"]))
    found = f"{cores} ({facts['cpu_model']}), load {load:.1f}"
    if facts["governor"] not in (None, "performance", "schedutil", "ondemand"):
        found = f"{found}, frequency governor {facts['governor']}"
        advice = "cores slow down between tasks: choose the governor performance for measurements"
        return Finding("cores", "limited", found, advice)
    if cores < 2:
        advice = "runs on the wall clock need one core for the network: use --clock virtual"
        return Finding("cores", "limited", found, advice)
    if load > cores / 2:
        advice = "other programs compute: runs on the wall clock may be strained"
        return Finding("cores", "limited", found, advice)
    return Finding("cores", "ok", found)


def _memory() -> Finding:
    memory = psutil.virtual_memory()
    found = f"{memory.available / GB:.1f} of {memory.total / GB:.1f} GB free"
    if memory.available < FREE_GB * GB:
        return Finding("memory", "limited", found, "fewer edges, or end other programs")
    return Finding("memory", "ok", found)


def _timers() -> Finding:
    """Sleep for 1 ms many times: how late does the system wake a waiting thread?"""
    exact = precise_timers()
    late_ms = []
    for _ in range(SLEEPS):
        begin = time.perf_counter()
        time.sleep(SLEEP_S)
        late_ms.append(1000 * (time.perf_counter() - begin - SLEEP_S))
    worst, bound = quantiles(late_ms, n=100)[-1], FidelityLimits().transfer_lag_ms
    found = (
        f"a sleep of 1 ms ends {median(late_ms):.2f} ms late, 1 % of them {worst:.1f} ms or more"
    )
    if worst > bound:
        advice = (
            f"more than the {bound:g} ms of fidelity.transfer_lag_ms: runs on the wall clock may be"
            " strained; end other programs, or use --clock virtual"
        )
        return Finding("timers", "limited", found, advice)
    if not exact:
        return Finding("timers", "limited", found, "this system has no exact timers (prctl)")
    return Finding("timers", "ok", found)


def _clock() -> Finding:
    name = CLOCK.read_text().strip() if CLOCK.is_file() else ""
    if not name:
        return Finding("clock source", "ok", "not told by this system")
    if name in CLOCKS:
        return Finding("clock source", "ok", name)
    return Finding("clock source", "limited", name, f"slow to read; {CLOCKS[0]} is fast")


def _priority() -> Finding:
    if real_time_priority() == REAL_TIME:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        return Finding("priority", "ok", "real-time priority (SCHED_FIFO) is allowed")
    advice = (
        "other programs can make transfers late; a line such as `alice - rtprio 2` in"
        " /etc/security/limits.conf and a new login allow it (docs/how-to/strained-run.md)"
    )
    return Finding("priority", "limited", "real-time priority is refused", advice)


def _files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    edges = (hard - FILES_SPARE) // FILES_PER_EDGE
    shared = (hard - FILES_SPARE - FILES_JOINING) // FILES_PER_SHARED
    found = (
        f"{hard} may be open: up to {max(edges, 0)} edges on the wall clock, {max(shared, 1)} of"
        " them in a process"
    )
    if edges < 1000:
        return Finding("open files", "limited", found, "more edges: raise the limit, ulimit -n")
    return Finding("open files", "ok", found)


def _torch() -> Iterator[Finding]:
    for name, use in (("torch", "training and evaluation"), ("llvmlite", "the compiled step")):
        try:
            found = import_module(name)
        except Exception as error:  # a broken package raises anything
            said = f"cannot be imported ({type(error).__name__}: {error})"
            yield Finding(name, "missing", said, f"{use} needs it: install edgefl again")
        else:
            yield Finding(name, "ok", f"{found.__version__}, for {use}")
    torch, names = sys.modules.get("torch"), host_facts().get("gpus", [])
    assert isinstance(names, list)
    if torch is not None and torch.cuda.is_available():
        yield Finding("gpu", "ok", ", ".join(names) or torch.cuda.get_device_name(0))
    elif names:
        advice = "this torch is a CPU build: docs/how-to/gpu.md says which one to install"
        yield Finding("gpu", "limited", f"{', '.join(names)}, but torch cannot use it", advice)
    else:
        yield Finding("gpu", "ok", "none: training uses the CPU")


def _data() -> Finding:
    """Which data sets have a folder in the data directory; digits is part of scikit-learn."""
    place = data_dir(None, os.environ)
    there, missing = [], []
    for name in catalog.names("edgefl.data", "load"):
        folders = getattr(import_module(f"edgefl.data.{name}"), "FOLDERS", ())
        if any((place / folder).is_dir() for folder in folders):
            there.append(name)
        elif folders:
            missing.append(name)
    found = f"{place}: {', '.join(there) or 'no data set'}"
    if there:
        return Finding("data", "ok", f"{found}; not there: {listed(missing, most=8)}")
    advice = f"`edgefl data get mnist` downloads one; data.dir or ${VARIABLE} names another folder"
    return Finding("data", "limited", f"{found}; digits needs none", advice)


def _folders() -> Iterator[Finding]:
    for name, place in (("cache", cache_dir(os.environ)), ("runs", Path("runs"))):
        near = next(each for each in (place.absolute(), *place.absolute().parents) if each.exists())
        free = shutil.disk_usage(near).free / GB
        found = f"{place}: {free:.1f} GB free"
        if not os.access(near, os.W_OK):
            advice = "$EDGEFL_CACHE names another" if name == "cache" else "--out DIR names another"
            yield Finding(name, "missing", f"{place}: {near} cannot be written", advice)
        elif free < FREE_GB:
            yield Finding(name, "limited", found, "runs wait while the disk is full")
        else:
            yield Finding(name, "ok", found)


def _extras() -> Iterator[Finding]:
    packages = _packages()
    if not packages:
        advice = "install it from a wheel or a checkout: docs/how-to/install.md"
        yield Finding("extras", "limited", "not known: this copy is not installed", advice)
        return
    for extra, use in USES.items():
        missing = []
        for package in packages.get(extra, ()):
            try:
                metadata.version(package)
            except metadata.PackageNotFoundError:
                missing.append(package)
        name = f"extra {extra}"
        if missing:
            advice = f"for it: {install_command(extra)}"
            yield Finding(name, "missing", f"{use}: no {', '.join(missing)}", advice)
        else:
            yield Finding(name, "ok", use)


def _packages() -> dict[str, list[str]]:
    """Return extra -> its packages: from pyproject.toml in a checkout, else as installed.

    {} for a copy that is neither.
    """
    project = Path(edgefl.__file__).parents[1] / "pyproject.toml"
    found: dict[str, list[str]] = {}
    if project.is_file():
        tables = tomllib.loads(project.read_text(encoding="utf-8"))
        for extra, needs in tables["project"]["optional-dependencies"].items():
            found[extra] = [_package(each) for each in needs]
    else:
        try:
            requirements = metadata.requires(NAME) or []
        except metadata.PackageNotFoundError:
            return {}
        for each in requirements:
            extra = re.search(r"extra == ['\"]([^'\"]+)", each)
            if extra is not None:
                found.setdefault(extra[1], []).append(_package(each))
    return found


def _package(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
