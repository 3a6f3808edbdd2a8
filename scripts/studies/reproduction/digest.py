"""What decides the numbers of a run, as a short digest; and the machine that it ran on.

Comments, docstrings and layout of the code do not count. Of a config, keys that have their default
do not count, so that a new key changes no digest.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import psutil

import edgefl
from edgefl.catalog import names
from edgefl.config.experiment import Experiment
from edgefl.strategies.base import catalog

PACKAGE = Path(edgefl.__file__).parent
# How edges train, and the vectors' arithmetic; besides these the model and the data set.
TRAINER = ("edges", "compression", "jobs.py", "streams.py", "vectors.py", "vector_terms.py")
PLUG_INS = {"models": "build", "data": "load"}  # folder -> what each of its plug-ins binds
LENGTH = 8  # hex digits of each part
PARTS = {"s": "the strategy's code", "t": "the trainer's code", "c": "the config"}
# of the config: names, and what changes no result
NOT_COUNTED = ("name", "seed", "seeds", "record", "network", "fidelity")


def digest_of(experiment: Experiment, base: Path) -> str:
    """Return "s1a2b3c4d-t...-c..." of an experiment with one strategy.

    ``base``: the folder of the user's code.
    """
    (entry,) = experiment.strategies
    kind = catalog.load(entry.strategy, base)
    trainer = _of_trainer(experiment.model.name, experiment.data.name)
    return f"s{_of_classes(kind.__mro__)}-t{trainer}-c{_of_config(experiment)}"


def differing(digest: str, other: str) -> list[str]:
    """Return which parts of two digests differ, in words."""
    pairs = zip(digest.split("-"), other.split("-"))
    return [PARTS[one[0]] for one, two in pairs if one != two] or ["its form"]


@cache
def _of_classes(kinds: tuple[type, ...]) -> str:
    files = dict.fromkeys(
        Path(inspect.getfile(each)) for each in kinds if each.__module__ != "builtins"
    )
    folder = PACKAGE / "strategies" / "dissemination"
    shared = sorted(folder.glob("*.py")) if any(_imports(file, folder) for file in files) else []
    return _hashed(_code(file) for file in (*files, *shared))


def _imports(file: Path, folder: Path) -> bool:
    return f"strategies.{folder.name}" in file.read_text(encoding="utf-8")


@cache
def _of_trainer(*own: str) -> str:
    """Return the digest with the plug-ins ``own``: one model and one data set are used."""
    found: list[Path] = []
    for name in TRAINER:
        path = PACKAGE / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    for folder, attribute in PLUG_INS.items():
        others = set(names(f"edgefl.{folder}", attribute)) - set(own)
        found += [
            path for path in sorted((PACKAGE / folder).rglob("*.py")) if path.stem not in others
        ]
    return _hashed(_code(file) for file in found)


def _of_config(experiment: Experiment) -> str:
    found = experiment.model_dump(
        mode="json", exclude_none=True, exclude_defaults=True, exclude=set(NOT_COUNTED)
    )
    found.get("data", {}).pop("dir", None)
    for entry in found["strategies"]:
        entry.pop("label", None)
    return _hashed([orjson.dumps(found, option=orjson.OPT_SORT_KEYS)])


@cache
def _code(file: Path) -> bytes:
    """Return a file's syntax tree without docstrings and places, as bytes."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        kept = [each for each in body if not _is_text(each)]
        node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]  # it has a body
    return _dumped(tree).encode()


def _dumped(tree: ast.AST) -> str:
    """Return the tree as text, the same with every version of Python: as 3.11 writes it.

    3.12 added ``type_params``, and 3.13 leaves empty lists out.
    """
    for node in ast.walk(tree):
        if getattr(node, "type_params", None) == []:
            del node.type_params  # type: ignore[attr-defined]  # it has them, as was just seen
    more: dict[str, Any] = {"show_empty": True} if sys.version_info >= (3, 13) else {}
    return ast.dump(tree, **more)


def _is_text(node: Any) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _hashed(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()[:LENGTH]


# ------------------------------------------------------------------ the machine
def machine() -> dict[str, str]:
    """Return what may decide the last digit and the CPU time: processor, memory, versions."""
    import numpy
    import torch

    return {
        "cpu": _cpu(),
        "cores": str(psutil.cpu_count(logical=True) or 1),
        "memory_GiB": f"{psutil.virtual_memory().total / 2**30:.0f}",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    } | _gpu()


def _gpu() -> dict[str, str]:
    """Return the name of the first GPU, if there is one.

    The driver's tool tells it: a process that asks torch for the name begins to use CUDA, and may
    not be forked any more.
    """
    tool = shutil.which("nvidia-smi")
    words = ["--query-gpu=name", "--format=csv,noheader"]
    told = tool and subprocess.run([tool, *words], capture_output=True, text=True, check=False)
    return {"gpu": told.stdout.splitlines()[0]} if told and told.stdout.strip() else {}


def machine_id(facts: dict[str, str]) -> str:
    """Return a short name of a machine by its facts."""
    return _hashed([orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)])[:6]


def _cpu() -> str:
    """Return the processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or sys.platform
