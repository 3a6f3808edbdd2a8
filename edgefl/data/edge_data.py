"""The data of a process: the data set and the edges' shares of it, by ``[data] source``.

"partition"  every process has the whole data set and divides it in the same way
"shard"      an edge has its own file of ``edgefl data shard``; the coordinator has the test samples
             and may have the edges' files
"local"      an edge has its own data set and trains on all its training samples; the coordinator's
             own data set has the test samples
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from pydantic import BaseModel

from edgefl.catalog import called, check_options, find, options_of, own_code
from edgefl.config.experiment import Experiment, Named, Unlabelled
from edgefl.config.keys import nearest_key
from edgefl.config.section import Section, Source, validated
from edgefl.data import shards
from edgefl.data.dataset import Dataset, check_finite, data_dir, first_not_finite
from edgefl.data.encoding import TokenOptions
from edgefl.errors import UserError, as_user_error
from edgefl.streams import Streams
from emulator.plain_text import read_text

Shares = dict[str, np.ndarray]  # edge id -> indices of its training samples


@dataclass(frozen=True, slots=True)
class EdgeData:
    """A data set and the edges' shares of it.

    ``own_digest``: what both sides must agree on if no process has all the data, else "".
    """

    dataset: Dataset
    shares: Shares
    own_digest: str = ""


def edge_data(
    experiment: Experiment, base: Path | None, edges: Sequence[str] | None = None
) -> EdgeData:
    """Return the data of ``edges``. UserError if something is missing.

    None: all edges; an empty list: what a coordinator needs if its edges are on other machines.
    """
    here = experiment.edges.ids() if edges is None else list(edges)
    if experiment.data.source == "shard":
        return _sharded(experiment, here, wants_test=edges is None or not here)
    if experiment.data.source == "local":
        return _local(experiment, base, here, alone=edges is not None)
    found = dataset(experiment, base)
    return EdgeData(found, cut(experiment, base, found))


def digest(found: Dataset, shares: Shares) -> str:
    """Return a digest that is equal on two sides with the same data in the same shares."""
    state = xxhash.xxh3_64(found.digest().encode())
    for indices in shares.values():
        state.update(np.ascontiguousarray(indices, dtype=np.int64).data)
    return state.hexdigest()


def digests(found: Dataset, shares: Shares) -> dict[str, str]:
    """Return the ``digest`` of a data set with scale "standard", for each scale it can have."""
    result = {}
    for scale in ("standard", "raw", "unit"):
        with suppress(UserError):  # texts have one scale
            result[scale] = digest(found.scaled(scale), shares)
    return result


def dataset(experiment: Experiment, base: Path | None, directory: Path | None = None) -> Dataset:
    """Return the config's data set at its scale, from ``directory`` or the data directory."""
    load = find("edgefl.data", experiment.data.name, "load", base, "data set")
    place = directory or _directory(experiment)
    values: list[BaseModel] = []
    if options_of(load) is not None or experiment.data.options():
        values = [placed(checked_options(load, experiment.data, "data"), experiment)]
    with own_code(experiment.data.name, load):
        found = called(load, place, *values)
    if ":" in experiment.data.name:
        check(experiment.data.name, found)
    if ":" in experiment.data.name or not found.pinned:  # those of the cache were checked before
        own = "" if directory is None else f" in {directory}"
        check_finite(found, f"{experiment.data.name!r}{own}")
    return found.scaled(experiment.data.scale)


def placed(options: BaseModel, experiment: Experiment) -> BaseModel:
    """Return options with the tokenizer's directory on this machine, if they have one."""
    if not isinstance(options, TokenOptions):
        return options
    return options.placed(_directory(experiment), experiment.model.options().get("path"))


def cut(experiment: Experiment, base: Path | None, found: Dataset) -> Shares:
    """Return each edge's share of the training samples.

    A partition whose ``split`` has a parameter ``columns`` gets the columns of the data set.
    """
    ids = experiment.edges.ids()
    split = find("edgefl.data.partition", experiment.partition.name, "split", base, "partition")
    values = checked_options(split, experiment.partition, "partition")
    kept_back = held_out(experiment.unlabelled, len(found.train_y))
    rest = np.delete(np.arange(len(found.train_y)), kept_back)
    more = (
        {"columns": {name: column[rest] for name, column in found.columns.items()}}
        if "columns" in signature(split).parameters
        else {}
    )
    rng = Streams(experiment.seed).rng("partition")
    with own_code(experiment.partition.name, split):
        parts = split(found.train_y[rest], len(ids), values, rng, **more)
    if len(parts) != len(ids) or not all(len(part) for part in parts):
        raise UserError(
            f"partition {experiment.partition.name!r} gave {sum(len(part) > 0 for part in parts)}"
            f" shares with samples for {len(ids)} edges"
        )
    for edge, part in zip(ids, parts):
        _check_indices(f"partition {experiment.partition.name!r}: edge {edge}", part, len(rest))
    return dict(zip(ids, [rest[part] for part in parts] if len(kept_back) else parts))


def _check_indices(what: str, part: Any, count: int) -> None:
    """UserError unless ``part`` has indices of ``count`` samples: compiled code reads at them."""
    kind = type(part).__name__
    if not (isinstance(part, np.ndarray) and part.ndim == 1 and part.dtype.kind in "iu"):
        if isinstance(part, np.ndarray):
            kind = f"{part.dtype} of shape {part.shape}"
        raise UserError(f"{what}: expected an array (n,) of integers, found {kind}")
    if part.min() < 0 or part.max() >= count:
        raise UserError(
            f"{what}: indices from {part.min()} to {part.max()}, expected 0 to {count - 1}"
        )


def divided(
    shares: Mapping[str, np.ndarray], held_out: float, streams: Streams
) -> tuple[Shares, Shares]:
    """Return what each edge trains on, and what is held out: of n samples the whole number nearest
    to ``held_out`` n, at least 1 and at most n - 1.

    Places among the edge's own samples are drawn, so that an edge that has only these draws the
    same ones.
    """
    trained, scored = {}, {}
    for edge, rows in shares.items():
        count = min(max(round(held_out * len(rows)), 1), len(rows) - 1)
        places = np.sort(streams.rng("held out", edge).permutation(len(rows))[:count])
        trained[edge], scored[edge] = np.delete(rows, places), rows[places]
    return trained, scored


def checked_options(found: Any, section: Named, table: str) -> BaseModel:
    """Return the checked options of a section, also for the user's own code.

    Code without ``Options`` takes no options.
    """
    kind = options_of(found) or Section
    check_options(kind, f"{table} {section.name!r}")
    return validated(
        kind,
        section.options(),
        Source(f"options of {section.name!r}", near=nearest_key),
        (table,),
        tuple(type(section).model_fields),
    )


def _directory(experiment: Experiment) -> Path:
    return data_dir(experiment.data.dir, os.environ)


def _sharded(experiment: Experiment, here: list[str], wants_test: bool) -> EdgeData:
    found, shares, by_scale = shards.read(
        _directory(experiment), experiment.data.name, here, wants_test
    )
    scale = experiment.data.scale
    return EdgeData(found.scaled(scale), shares, by_scale.get(scale, by_scale["standard"]))


def _local(experiment: Experiment, base: Path | None, here: list[str], alone: bool) -> EdgeData:
    """Read every edge's own data set in DIR/ID/, one after the other.

    An edge that is ``alone`` on its machine may have it in DIR itself.
    """
    directory = _directory(experiment)
    places = {edge: directory / edge for edge in here}
    if alone and len(here) == 1 and not places[here[0]].is_dir():
        places[here[0]] = directory
    gone = next((place for place in places.values() if not place.is_dir()), None)
    if gone is not None:
        raise UserError(
            f'no folder {gone}: with data.source = "local" every edge has its own data set, in a'
            " folder of its id"
        )
    own = {edge: dataset(experiment, base, place) for edge, place in places.items()}
    if alone and len(here) == 1:
        main, place = own[here[0]], places[here[0]]
    else:
        main, place = dataset(experiment, base), directory
    common = _alike(main, experiment, place)
    differs = next(
        (edge for edge, part in own.items() if _alike(part, experiment, places[edge]) != common),
        None,
    )
    if differs is not None:
        part = own[differs]
        words = f", or another {'tokenizer' if part.tokens else 'vocabulary_file'}"
        words = words if part.vocabulary else ""
        raise UserError(
            f"{places[differs]}: samples of {part.shape} in {part.classes} classes{words}, expected"
            f" {main.shape} in {main.classes}"
        )
    shares = shards.in_order({edge: len(part.train_y) for edge, part in own.items()})
    return EdgeData(_joined(main, list(own.values())), shares, common)


def _joined(main: Dataset, own: list[Dataset]) -> Dataset:
    """Return ``main`` with the concatenated training samples of ``own``.

    It is returned unchanged if there is nothing to join.
    """
    if not own or own == [main]:
        return main
    train_x, train_y = (
        np.concatenate([getattr(part, name) for part in own]) for name in ("train_x", "train_y")
    )
    return replace(main, train_x=train_x, train_y=train_y, pinned="")


def _alike(found: Dataset, experiment: Experiment, place: Path) -> str:
    """Return a digest of what local data sets must have in common to train one model."""
    known = found.tokenizer.encode()
    if found.vocabulary and not found.tokens:
        name = experiment.data.options().get("vocabulary_file")
        if not name:
            raise UserError(
                'data.vocabulary_file: expected with data.source = "local", or every edge would'
                " number its words differently"
            )
        with as_user_error():  # the words, however the lines end
            known = read_text(place / Path(name).expanduser()).encode()
    return sha256(
        repr((found.shape, found.classes, found.mean, found.std, known)).encode()
    ).hexdigest()[:16]


# ---------------------------------------------------------------------- a user's own data set
def check(name: str, found: Any) -> None:
    """UserError if ``found``, which the file ``name`` returned, is no usable ``Dataset``."""
    if not isinstance(found, Dataset):
        raise UserError(
            f"data {name!r} returned {type(found).__name__}, expected edgefl.api.Dataset"
        )
    for part, samples, labels in (
        ("train", found.train_x, found.train_y),
        ("test", found.test_x, found.test_y),
    ):
        if not all(isinstance(array, np.ndarray) for array in (samples, labels)):
            raise UserError(
                f"data {name!r}: {part}_x is {type(samples).__name__}, {part}_y"
                f" {type(labels).__name__}, expected numpy arrays"
            )
        if len(samples) != len(labels):
            raise UserError(
                f"data {name!r}: {len(samples)} samples in {part}_x and {len(labels)} labels in"
                f" {part}_y, expected as many"
            )
        if not (np.issubdtype(samples.dtype, np.number) or samples.dtype == np.bool_):
            raise UserError(
                f"data {name!r}: {part}_x is of the type {samples.dtype}, expected numbers: uint8"
                " or float32"
            )
        if labels.ndim != 1:
            raise UserError(
                f"data {name!r}: {part}_y has the shape {labels.shape}, expected one whole number"
                f" for each sample, {labels.shape[:1]}"
            )
        if samples.shape[1:] != found.train_x.shape[1:]:
            raise UserError(
                f"data {name!r}: samples of shape {samples.shape[1:]} in {part}_x, expected"
                f" {found.train_x.shape[1:]} as in train_x"
            )
        _check_range(name, f"labels in {part}_y", labels, found.classes, "classes")
        if found.vocabulary:
            _check_range(name, f"tokens in {part}_x", samples, found.vocabulary, "vocabulary")
    check_details(f"data {name!r}", found)
    if not all(std > 0 for std in found.std):
        raise UserError(f"data {name!r}: std is {found.std}, expected numbers above 0")


def check_details(what: str, found: Dataset) -> None:
    """UserError unless ``classes``, ``mean``, ``std`` and the columns have the form they need.

    ``what``: the data or the task with this data set, for the message.
    """
    _check_whole(what, "classes", found.classes)
    channels = 1 if found.vocabulary else math.prod(np.shape(found.train_x)[1:2])
    for key in ("mean", "std"):
        numbers = np.array(getattr(found, key), dtype=object).ravel()
        if not all(isinstance(each, int | float | np.number) for each in numbers):
            raise UserError(f"{what}: {key} is {getattr(found, key)!r}, expected numbers")
        if len(numbers) not in (1, channels):
            many = f", or {channels}, one for each channel" if channels > 1 else ""
            raise UserError(f"{what}: {key} has {len(numbers)} numbers, expected 1{many}")
    for column, values in found.columns.items():
        if not isinstance(values, np.ndarray):
            raise UserError(
                f"{what}: the column {column!r} is {type(values).__name__}, expected a numpy array"
            )
        if values.shape != (len(found.train_y),):
            raise UserError(
                f"{what}: the column {column!r} has the shape {values.shape}, expected one value"
                f" for each training sample, ({len(found.train_y)},)"
            )


def _check_whole(what: str, key: str, value: Any) -> None:
    if not isinstance(value, int | np.integer):
        raise UserError(f"{what}: {key} is {value!r}, expected a whole number")


def _check_range(name: str, what: str, numbers: np.ndarray, most: int, key: str) -> None:
    _check_whole(f"data {name!r}", key, most)
    if not np.issubdtype(numbers.dtype, np.integer):
        raise UserError(f"data {name!r}: {what} are {numbers.dtype}, expected whole numbers")
    if not numbers.size:  # with data.source = "local" one side may have no samples of a part
        return
    least, largest = int(numbers.min()), int(numbers.max())
    if least < 0 or largest >= most:
        raise UserError(
            f"data {name!r}: {what} are {least} to {largest}, expected 0 to {most - 1}"
            f" ({key} = {most})"
        )


# ---------------------------------------------------------------------- unlabelled samples
# The server's unlabelled samples: held-out training samples, or samples of another data set.
#
# Samples of another data set can be converted to fit; none may be a test sample. The samples are
# evenly spaced in their source, so all seeds of an experiment have the same ones.

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
