"""The server's unlabelled samples: held-out training samples, or samples of another data set.

Samples of another data set can be converted to fit; none may be a test sample. The samples are
evenly spaced in their source, so all seeds of an experiment have the same ones.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from pydantic import BaseModel

from edgefl.catalog import find, options_of
from edgefl.config.experiment import Experiment, Unlabelled
from edgefl.data.dataset import Dataset, first_not_finite
from edgefl.data.encoding import TokenOptions
from edgefl.data.fitting import fitted
from edgefl.data.paths import data_dir
from edgefl.errors import UserError

HELD_OUT = "held_out"


def held_out(section: Unlabelled | None, samples: int) -> np.ndarray:
    """Return the indices of the training samples that no edge gets, out of ``samples``.

    UserError if there are too few.
    """
    return (
        _spread(section.size, samples, "training samples")
        if section is not None and section.data == HELD_OUT
        else np.zeros(0, np.int64)
    )


def unlabelled(experiment: Experiment, base: Path | None, dataset: Dataset) -> np.ndarray | None:
    """Return the samples of ``[unlabelled]`` (size, ...), in the form of ``dataset``'s samples.

    None without that table. UserError if they do not fit, or are test samples.
    """
    section = experiment.unlabelled
    if section is None:
        return None
    if section.data == HELD_OUT:
        if experiment.data.source != "partition":
            raise UserError(
                f'unlabelled.data: "{HELD_OUT}" needs data.source = "partition", found'
                f' "{experiment.data.source}": give another data set'
            )
        rows = dataset.train_x[held_out(section, len(dataset.train_x))]
    else:
        rows = _of_another(section, experiment, base, dataset)
    _refuse_test_samples(rows, dataset.test_x, section.data)
    return rows


def _of_another(
    section: Unlabelled, experiment: Experiment, base: Path | None, dataset: Dataset
) -> np.ndarray:
    load = find("edgefl.data", section.data, "load", base, "data set")
    source = _samples(load, section, experiment)
    rows = np.ascontiguousarray(
        source[_spread(section.size, len(source), f"samples in {section.data!r}")]
    )
    bad = first_not_finite(rows)
    if bad is not None:
        raise UserError(
            f"unlabelled.data: row {bad} of {section.data!r} is not finite (NaN or infinite)"
        )
    if section.transform == "fit":
        rows = fitted(rows, dataset.train_x)
    expected = (*dataset.train_x.shape[1:], dataset.train_x.dtype)
    if (*rows.shape[1:], rows.dtype) != expected:
        hint = "" if section.transform == "fit" else '; transform = "fit" makes pictures fit'
        raise UserError(
            f"unlabelled.data: samples of {section.data!r} are {rows.dtype} {rows.shape[1:]},"
            f" expected {expected[-1]} {expected[:-1]}{hint}"
        )
    return rows


def _samples(load: Any, section: Unlabelled, experiment: Experiment) -> np.ndarray:
    """Return a data set's unlabelled part, if its file has a function ``unlabelled``, else its
    training samples.
    """
    own = getattr(sys.modules[load.__module__], "unlabelled", None)
    directory = data_dir(experiment.data.dir, os.environ)
    kind = options_of(load)
    options: list[BaseModel] = []
    if kind is not None and issubclass(kind, TokenOptions):
        options = [_encoded_alike(kind, section, experiment, directory)]
    elif kind is not None and own is None:
        options = [kind()]
    return load(directory, *options).train_x if own is None else own(directory, *options)


def _encoded_alike(
    kind: type[TokenOptions], section: Unlabelled, experiment: Experiment, directory: Path
) -> TokenOptions:
    """Return options with the tokenizer and length of ``[data]``; all its options, if both are the
    same data set.
    """
    given = experiment.data.options()
    if section.data != experiment.data.name:
        given = {key: given[key] for key in TokenOptions.model_fields if key in given}
    return kind(**given).placed(directory, experiment.model.options().get("path"))


def _spread(size: int, samples: int, what: str) -> np.ndarray:
    if size > samples:
        raise UserError(f"unlabelled.size: expected at most {samples}, the {what}, found {size}")
    return np.arange(size, dtype=np.int64) * samples // size


def _refuse_test_samples(rows: np.ndarray, test: np.ndarray, name: str) -> None:
    known = {_key(row) for row in test}
    same = [number for number, row in enumerate(rows) if _key(row) in known]
    if same:
        raise UserError(
            f"unlabelled.data: {len(same)} of the {len(rows)} samples of {name!r} are test samples"
            f" too, the first is number {same[0]}: the accuracy would not hold for new data"
        )


def _key(row: np.ndarray) -> bytes:
    return xxhash.xxh3_128_digest(np.ascontiguousarray(row).data)
