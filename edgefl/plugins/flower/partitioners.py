"""Flower's partitioners over our data sets: ``partition.name = "flwr:DirichletPartitioner"``.

An attribute of this module is a partition as those of ``edgefl.data.partition``. The arguments are
Flower's own, and so is their seed: 42 unless the config gives one.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from edgefl.errors import UserError, nearest, needs

COUNT, KEY = "num_partitions", "partition_by"  # arguments that are known here
LABEL, INDEX = "label", "edgefl index"  # columns of the data set that a partitioner sees
FEATURES = "Vertical"  # partitioners that divide the features of samples, not the samples


class Options(BaseModel):
    """The arguments of a partitioner. Its own signature says which there are."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class FlowerPartition:
    """One partitioner of flwr-datasets, as ``split`` of a partition."""

    def __init__(self, name: str, partitioner: Any) -> None:
        self.name, self.partitioner = name, partitioner
        self.expected = list(inspect.signature(partitioner).parameters)

    def __call__(
        self,
        labels: np.ndarray,
        edges: int,
        options: Options,
        rng: np.random.Generator,
        columns: Mapping[str, np.ndarray],
    ) -> list[np.ndarray]:
        """Return the sample indices of each edge, in Flower's order.

        ``label`` is the column of the labels; ``columns`` are those of the data set. UserError for
        an argument that the partitioner does not accept.
        """
        from datasets import Dataset

        given = self._arguments(options.model_extra or {}, edges, {LABEL, *columns})
        found = {LABEL: labels, **columns, INDEX: np.arange(len(labels))}
        try:
            made = self.partitioner(**given)
            made.dataset = Dataset.from_dict(found)
            count = made.num_partitions
            parts = [np.asarray(made.load_partition(edge)[INDEX][:]) for edge in range(count)]
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            said = " ".join(str(error).split())
            raise UserError(f"partition 'flwr:{self.name}': {said}") from error
        if count != edges:
            raise UserError(
                f"partition 'flwr:{self.name}' made {count} partitions, expected one for each of"
                f" the {edges} edges"
            )
        return [part.astype(np.int64) for part in parts]

    def _arguments(
        self, options: Mapping[str, Any], edges: int, columns: set[str]
    ) -> dict[str, Any]:
        """The partitioner's arguments. UserError for a key that is not one of them."""
        free = [name for name in self.expected if name != COUNT]
        unknown = next((name for name in options if name not in free), None)
        if unknown == COUNT:
            raise UserError(f"partition.{COUNT}: expected no such key, it is the number of edges")
        if unknown is not None:
            raise UserError(
                f"partition.{unknown}: 'flwr:{self.name}' has no such argument"
                f"{nearest(unknown, free)}"
            )
        column = options.get(KEY, LABEL)
        if KEY in self.expected and column not in columns:
            raise UserError(
                f"partition.{KEY}: the data set has no column {column!r}{nearest(column, columns)}"
            )
        known = {COUNT: edges, KEY: LABEL}
        made = {name: known[name] for name in known if name in self.expected} | dict(options)
        return {
            name: np.asarray(value) if name.endswith("_array") else value
            for name, value in made.items()
        }


def __getattr__(name: str) -> FlowerPartition:
    """Return the partitioner ``name``; UserError if flwr-datasets has none of that name."""
    if name.startswith("_"):
        raise AttributeError(name)
    with needs("flower", "a partition of Flower"):
        from flwr_datasets import partitioner
    names = [
        each
        for each in partitioner.__all__
        if each != "Partitioner" and not each.startswith(FEATURES)
    ]
    if name not in names:
        raise UserError(
            f"partition.name: flwr-datasets has no partitioner of samples {name!r}"
            f"{nearest(name, names)}"
        )
    return FlowerPartition(name, getattr(partitioner, name))
