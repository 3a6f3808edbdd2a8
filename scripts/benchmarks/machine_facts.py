"""What must be equal on two machines of one run, computed on this machine; arm64.py compares."""

from __future__ import annotations

import platform
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import numpy as np
from orjson import dumps

from edgefl.catalog import find
from edgefl.models.workspace import initial, layout_of
from edgefl.streams import Streams

PARTITIONS: dict[str, dict[str, Any]] = {
    "iid": {},
    "dirichlet": {"alpha": 0.1},
    "few_labels": {"labels": 2},
    "one_label": {"samples": 50, "deal": "drawn"},
}
MODELS = ("mlp", "cnn", "lenet5", "resnet20")
SEEDS, EDGES, SAMPLES, CLASSES, SHAPE = 100, 20, 6000, 10, (3, 32, 32)
PACKAGES = ("torch", "numpy", "pydantic", "pyzmq", "orjson", "safetensors")


def tell() -> None:
    """Print the facts as JSON."""
    print(dumps({"versions": _versions(), "digests": digests()}).decode())


def _versions() -> dict[str, str]:
    found = {name: version(name) for name in PACKAGES}
    return {"machine": platform.machine(), "Python": platform.python_version()} | found


def digests() -> dict[str, str]:
    """Return name -> digest, for what two sides of a run both compute."""
    found = {}
    for name, settings in PARTITIONS.items():
        for seed in range(SEEDS):
            found[f"partition {name}, seed {seed}"] = _partition(name, settings, seed)
    for name in MODELS:
        build = find("edgefl.models", name, "build")
        options = find("edgefl.models", name, "Options")()
        model = partial(build, options, SHAPE, CLASSES)
        found[f"layout {name}"] = layout_of(model()).digest()
        first = initial(model, Streams(1))
        found[f"first model {name}"] = sha256(first.tobytes()).hexdigest()
    return found


def _partition(name: str, settings: dict[str, Any], seed: int) -> str:
    labels = Streams(seed).rng("labels").integers(CLASSES, size=SAMPLES)
    options = find("edgefl.data.partition", name, "Options")(**settings)
    split = find("edgefl.data.partition", name, "split")
    shares = split(labels, EDGES, options, Streams(seed).rng("partition"))
    state = sha256()
    for indices in shares:
        state.update(np.ascontiguousarray(indices, dtype="<i8").tobytes() + b"|")
    return state.hexdigest()
