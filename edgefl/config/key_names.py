"""Every key of the experiment file with its place, and other names that people use for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_origin

from pydantic import BaseModel

from edgefl.config.experiment import Experiment
from edgefl.errors import nearest

SURE = 0.8  # difflib ratio from which an option counts as a misspelt key
# other names for a key: short ones, and those of other frameworks
ALIASES = {
    "algorithm": "strategies[].strategy",
    "algorithms": "strategies",
    "alpha": "partition.alpha",
    "bandwidth": "links.up_mbit_s",
    "batch": "training.batch_size",
    "batchsize": "training.batch_size",
    "bs": "training.batch_size",
    "clients": "edges.count",
    "data_dir": "data.dir",
    "dataset": "data.name",
    "delay": "links.latency_ms",
    "duration": "stop.emulated_s",
    "eta": "training.learning_rate",
    "latency": "links.latency_ms",
    "local_epochs": "training.epochs",
    "lr": "training.learning_rate",
    "n_clients": "edges.count",
    "nodes": "edges.count",
    "num_clients": "edges.count",
    "num_edges": "edges.count",
    "num_rounds": "stop.versions",
    "rate": "links.up_mbit_s",
    "round": "stop.versions",
    "rounds": "stop.versions",
    "scheme": "strategies[].strategy",
    "time": "stop.emulated_s",
    "wd": "training.weight_decay",
}
# table -> the key that people mean if they give the table as an option
TABLE_KEYS = {"data": "data.dir", "edges": "edges.count"}
# other names for the number of edges of a group
COUNTS = frozenset(
    ("clients", "devices_count", "edges", "n", "nodes", "num_clients", "num_edges", "size")
)


def sections(
    model: type[BaseModel] = Experiment, at: str = ""
) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield (dotted place, model) of the whole file and of each of its tables, outermost first.

    The place of an array ends in [].
    """
    yield at, model
    for key, info in model.model_fields.items():
        place = f"{at}.{key}" if at else key
        inner = table_of(info.annotation)
        if inner is not None:
            yield from sections(
                inner, place + "[]" if get_origin(info.annotation) is tuple else place
            )


def table_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model in an annotation, or that of an array's entries; None if there is none."""
    candidates = (annotation, *getattr(annotation, "__args__", ()))
    return next(
        (each for each in candidates if isinstance(each, type) and issubclass(each, BaseModel)),
        None,
    )


def _elsewhere() -> dict[str, str]:
    """Map the last part of every key of the file to the whole key; the outermost one wins."""
    return {
        name: f"{place}.{name}" if place else name
        for place, model in reversed(list(sections()))
        for name in model.model_fields
    }


def nearest_key(key: str, valid: Sequence[str]) -> str:
    """Return the end of an error line about an unknown ``key``: what was probably meant.

    In this order: the same key in another table, another name of a key, a typo of a key of this
    table, a typo of a key of another table, else all keys of this table.
    """
    elsewhere = _elsewhere()
    if key.lower() in COUNTS and "count" in valid:
        return " (nearest: 'count')"
    if key in elsewhere and key not in valid:
        return f" (nearest: {elsewhere[key]!r})"
    if key.lower() in ALIASES:
        return f" (nearest: {ALIASES[key.lower()]!r})"
    if get_close_matches(key.lower(), [name.lower() for name in valid]):
        return nearest(key, valid)
    close = get_close_matches(key, elsewhere, n=1)
    return f" (nearest: {elsewhere[close[0]]!r})" if close else nearest(key, valid)


def meant(name: str) -> str | None:
    """Return the whole key for ``name``, an option with a possible typo; None if there is none."""
    elsewhere = _elsewhere()
    name = name.strip("-").replace("-", "_").lower()
    close = get_close_matches(name, elsewhere, n=1, cutoff=SURE)
    found = ALIASES.get(name) or elsewhere.get(close[0] if close else name)
    tables = dict(sections())
    if found is not None and found in tables:  # a text is no table: name the key in it
        found = TABLE_KEYS.get(found) or (
            f"{found}.name" if "name" in tables[found].model_fields else None
        )
    return None if found is None or "[]" in found else found
