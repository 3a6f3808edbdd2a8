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


# ---------------------------------------------------------------------- making pictures fit
LUMA = np.array([0.299, 0.587, 0.114])  # grey from red, green, blue: ITU-R BT.601
BLOCK = 1024


def fitted(pictures: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return ``pictures`` (n, channels, height, width) with the channels and size of ``like``.

    Colours become grey by their brightness; grey becomes three equal channels. Sizes change by
    averaging areas. UserError if they are not images, or have another type or other numbers of
    channels.
    """
    if pictures.ndim != 4 or like.ndim != 4 or pictures.dtype != like.dtype:
        raise UserError(
            f'unlabelled.transform: "fit" is for pictures of one type, found {pictures.dtype}'
            f" {pictures.shape} for {like.dtype} {like.shape}"
        )
    channels, height, width = like.shape[1:]
    if {pictures.shape[1], channels} - {1, 3} and pictures.shape[1] != channels:
        raise UserError(
            'unlabelled.transform: "fit" knows pictures of 1 or 3 channels, found'
            f" {pictures.shape[1]} for {channels}"
        )
    out = np.empty((len(pictures), channels, height, width), like.dtype)
    down, across = _areas(pictures.shape[2], height), _areas(pictures.shape[3], width)
    for start in range(0, len(pictures), BLOCK):
        block = _with_channels(pictures[start : start + BLOCK].astype(np.float64), channels)
        block = down @ block @ across.T
        out[start : start + BLOCK] = (
            np.rint(block) if np.issubdtype(like.dtype, np.integer) else block
        )
    return out


def _with_channels(block: np.ndarray, channels: int) -> np.ndarray:
    if block.shape[1] == 3 and channels == 1:
        return np.tensordot(block, LUMA, axes=(1, 0))[:, None]
    return np.repeat(block, channels, axis=1) if block.shape[1] == 1 else block


def _areas(size: int, wanted: int) -> np.ndarray:
    """Return (wanted, size): the share of each old pixel in each new one."""
    length = size / wanted
    begins, old = np.arange(wanted)[:, None] * length, np.arange(size)[None, :]
    shared = np.minimum(begins + length, old + 1) - np.maximum(begins, old)
    shared = np.clip(shared, 0.0, None)
    return shared / shared.sum(axis=1, keepdims=True)
