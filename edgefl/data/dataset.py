"""A data set as numpy arrays, in memory or memory-mapped, and a task: data, model and loss.

Only their tensors need torch. A user's own ``task = "my_task.py:build"`` returns a ``Task``. Below:
labels and splits by them, and where data sets and the cache are on this machine.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from edgefl.compiled.network import Network
from edgefl.config.section import Section
from edgefl.errors import UserError
from edgefl.streams import Streams

if TYPE_CHECKING:
    import torch
    from torch import nn

    from edgefl.data.samples import NextTokens, Samples

PART = 1 << 22  # elements that are checked at one time
# largest number of elements for which all samples are normalised at once; above it, each batch is
# normalised when it is read
SMALL = 1 << 23


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Training and test samples with their labels.

    Images are (n, channels, height, width) as uint8 or float32, texts (n, length) as int32 token
    numbers, labels (n,) as int64. ``mean`` and ``std`` are in the units of the samples, one number
    for all channels (a number alone becomes a tuple) or one for each; tensors are (x - mean) / std.
    ``pixel_max``: the largest possible value of a pixel; None: 255 for uint8, unknown for float32.
    ``vocabulary``: number of token numbers of texts; 0 for images. ``pinned``: the digest, if it
    was computed when the files were parsed. ``words``: a file with the words of the token numbers
    from 2 on.

    ``tokens``: the targets of texts (n, 2, length) that a pretrained model's tokenizer has encoded
    (``edgefl.data.encoding``): "labels", or "next" for the next tokens of the second part; "" for
    all other samples. ``tokenizer``: the digest of its vocabulary.
    """

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    classes: int
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    vocabulary: int = 0
    pinned: str = ""
    words: Path | None = None
    # other columns of the training samples: name -> numbers or texts (n,), for a partition
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    pixel_max: float | None = None
    tokens: Literal["", "labels", "next"] = ""
    tokenizer: str = ""

    def __post_init__(self) -> None:
        for key in ("mean", "std"):
            value: Any = getattr(self, key)
            if isinstance(value, int | float | np.number):
                object.__setattr__(self, key, (float(value),))  # the class is frozen

    @classmethod
    def of(cls, arrays: Sequence[np.ndarray], about: Mapping[str, Any], **more: Any) -> Dataset:
        """Make a data set of its four arrays and what ``about`` has returned."""
        train_x, train_y, test_x, test_y = arrays
        return cls(
            train_x,
            train_y,
            test_x,
            test_y,
            about["classes"],
            tuple(about["mean"]),
            tuple(about["std"]),
            about["vocabulary"],
            pixel_max=about.get("pixel_max"),  # older files lack these
            tokens=about.get("tokens", ""),
            tokenizer=about.get("tokenizer", ""),
            **more,
        )

    def about(self) -> dict[str, Any]:
        """Return what a file says about the arrays, as JSON."""
        names = ("classes", "mean", "std", "vocabulary", "pixel_max", "tokens", "tokenizer")
        return {name: getattr(self, name) for name in names}

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample: (channels, height, width), or (vocabulary, length) of a text, or
        (vocabulary, 2, length) of an encoded one.
        """
        return (
            (self.vocabulary, *self.train_x.shape[1:])
            if self.vocabulary
            else self.train_x.shape[1:]
        )

    def scaled(self, scale: str) -> Dataset:
        """Return the data set with another scale of its tensors.

        "raw": the pixels as they are; "unit": divided by the largest possible value of a pixel;
        "standard": by ``mean`` and ``std``. UserError if the data set does not have that scale.
        """
        if scale == "standard":
            return self
        if self.vocabulary:
            raise UserError(f'data.scale: expected "standard" for texts, found {scale!r}')
        largest = 1.0 if scale == "raw" else self._largest_pixel()
        pinned = hashlib.sha256(f"{self.pinned} {scale}".encode()).hexdigest()[:16]
        return replace(self, mean=(0.0,), std=(largest,), pinned=pinned if self.pinned else "")

    def _largest_pixel(self) -> float:
        if self.pixel_max is not None:
            return self.pixel_max
        if self.train_x.dtype != np.uint8:
            raise UserError(
                f'data.scale = "unit": the largest value of a pixel is not known for'
                f" {self.train_x.dtype} samples: set it in the data set (Dataset.pixel_max), or"
                ' use "raw" or "standard"'
            )
        return 255.0

    def train(self) -> tuple[torch.Tensor | Samples, torch.Tensor | NextTokens]:
        """Return normalised float32 inputs (int64 for texts) and int64 targets for training.

        ``Samples`` and ``NextTokens`` can be indexed like a tensor.
        """
        return self._tensors(self.train_x, self.train_y)

    def test(self) -> tuple[torch.Tensor | Samples, torch.Tensor | NextTokens]:
        """Return normalised float32 inputs (int64 for texts) and int64 targets of the test set."""
        return self._tensors(self.test_x, self.test_y)

    def token_counts(self) -> np.ndarray:
        """Return the number of tokens of each training sample (n,), without padding where the model
        leaves it out. UserError if the samples are not texts.
        """
        if not self.vocabulary:
            raise UserError(
                'devices.unit: expected "samples", found "tokens": these samples are not texts'
            )
        if self.train_x.ndim == 3:  # (n, 2, length): token numbers and parts, edgefl.data.encoding
            return np.count_nonzero(self.train_x[:, 1], axis=1)
        return np.full(len(self.train_x), self.train_x.shape[1])

    def digest(self) -> str:
        """Return a digest: two data sets with equal digests have the same numbers."""
        if self.pinned:
            return self.pinned
        digest = hashlib.sha256(
            repr(
                (self.classes, self.mean, self.std, *([self.vocabulary] if self.vocabulary else []))
            ).encode()
        )
        digest.update(f"{self.tokens}{self.tokenizer}".encode())
        for array in (self.train_x, self.train_y, self.test_x, self.test_y):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]

    def _tensors(
        self, samples: np.ndarray, labels: np.ndarray
    ) -> tuple[torch.Tensor | Samples, torch.Tensor | NextTokens]:
        import torch

        from edgefl.data.samples import NextTokens, Samples

        if self.tokens == "next":
            return Samples(samples), NextTokens(samples)
        targets = torch.from_numpy(np.array(labels, dtype=np.int64))
        if self.vocabulary:
            return Samples(samples), targets
        inputs = Samples(
            samples, _by_channel(self.mean, samples.ndim), _by_channel(self.std, samples.ndim)
        )
        return inputs[:] if samples.size <= SMALL else inputs, targets


class NormalisedRows:
    """Images of a data set as float32 arrays: the same numbers as the tensors of ``train``.

    ``whole`` has all of them, if they are few; otherwise they are normalised when they are read.
    """

    def __init__(self, dataset: Dataset, raw: np.ndarray) -> None:
        self.raw = raw
        self._mean, self._std = (
            _by_channel(numbers, raw.ndim) for numbers in (dataset.mean, dataset.std)
        )
        self.whole = self._normalised(raw) if raw.size <= SMALL else None

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        return self._normalised(self.raw[rows]) if self.whole is None else self.whole[rows]

    def _normalised(self, rows: np.ndarray) -> np.ndarray:
        inputs = rows.astype(np.float32, order="C")
        inputs -= self._mean
        inputs /= self._std
        return inputs


def check_finite(found: Dataset, name: str) -> None:
    """UserError if a number of the data set is NaN or infinite, or not a float32.

    One such sample makes every update of its edge useless, so it is refused before the run.
    ``name``: of the data set or its file, for the message. Samples are counted from 0. Whole
    numbers, such as pixels of uint8 and tokens, are finite; only floats are read.
    """
    arrays = {key: getattr(found, key) for key in ("train_x", "train_y", "test_x", "test_y")}
    for what, array in arrays.items():
        first = first_not_finite(array)
        if first is not None:
            raise UserError(
                f"data {name}: {what}[{first}] is not finite (NaN, infinite, or too large for"
                " float32), expected finite numbers"
            )
    for column, numbers in found.columns.items():
        first = first_not_finite(numbers)
        if first is not None:
            raise UserError(f"data {name}: number {first} of the column {column!r} is not finite")
    scale = np.array([*found.mean, *found.std], dtype=np.float64)
    if not np.isfinite(scale).all() or 0.0 in found.std:
        raise UserError(
            f"data {name}: mean is {found.mean} and std is {found.std}, expected finite numbers,"
            " and no std of 0"
        )


def first_not_finite(array: np.ndarray) -> int | None:
    """Return the number of the first row with an element that is not finite in float32."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or not array.size:
        return None
    rows = max(1, PART * len(array) // array.size)
    for begin in range(0, len(array), rows):
        part = array[begin : begin + rows]
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(part if part.dtype.itemsize <= 4 else part.astype(np.float32))
        if bad.any():
            return begin + int(bad.reshape(len(bad), -1).any(axis=1).argmax())
    return None


def _by_channel(numbers: tuple[float, ...], dimensions: int) -> np.ndarray:
    return np.array(numbers, dtype=np.float32).reshape(1, -1, *[1] * (dimensions - 2))


BLOCK = 4096


def by_channel(pictures: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and standard deviation of each channel.

    ``pictures``: (n, channels, height, width) as uint8. Values are counted first, and the counts
    evaluated in float64.
    """
    counts = np.zeros((pictures.shape[1], 256), dtype=np.int64)
    for start in range(0, len(pictures), BLOCK):
        block = pictures[start : start + BLOCK]
        counts += [
            np.bincount(block[:, channel].reshape(-1), minlength=256)
            for channel in range(pictures.shape[1])
        ]
    levels, total = np.arange(256, dtype=np.float64), counts.sum(axis=1)
    mean = (counts * levels).sum(axis=1) / total
    deviation = np.sqrt((counts * (levels - mean[:, None]) ** 2).sum(axis=1) / total)
    return tuple(round(float(value), 3) for value in mean), tuple(
        max(round(float(value), 3), 0.001) for value in deviation
    )


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy of a batch of logits."""
    from torch.nn import (
        functional,  # here, so that processes that need only the data do not import torch
    )

    return functional.cross_entropy(outputs, targets)


def right_answers(outputs: torch.Tensor, targets: torch.Tensor) -> Any:
    """Return how many samples of the batch have their largest output at the target."""
    return (outputs.argmax(dim=1) == targets).sum()


@dataclass(frozen=True, slots=True)
class Task:
    """The data, the model, the loss and the metric of an experiment.

    ``model()`` builds a new module; ``loss(outputs, targets)`` returns the mean of a batch,
    ``metric(outputs, targets)`` its sum. ``terms(targets)``: of how many terms the loss is the
    mean.
    """

    dataset: Dataset
    model: Callable[[], nn.Module]
    loss: Callable[[Any, Any], Any] = cross_entropy
    metric: Callable[[Any, Any], Any] = right_answers
    terms: Callable[[Any], int] = len
    network: Network | None = None  # the same model, if it is known without torch

    def __post_init__(self) -> None:
        if hasattr(self.model, "forward") and not isinstance(self.model, type):  # loads no torch
            raise TypeError(
                "model: expected a function that returns a module, found the module"
                f" {type(self.model).__name__}"
            )

    @property
    def classifies(self) -> bool:
        """Whether loss and metric are cross-entropy and right answers, known of each sample."""
        usual = self.loss is cross_entropy and self.metric is right_answers
        return usual and self.terms is len


# ---------------------------------------------------------------------- labels
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class OwnClasses(Section):
    """Options of data sets of the user's own files, whose labels are names."""

    classes: tuple[str, ...] = Field((), strict=False)
    """Names of the classes, in the order of their numbers; none: those of the training samples,
    numbers in their order before texts. Edges with files of their own (`data.source = "local"`)
    need it if some of them lack a class.
    """
    test_share: float = Field(0.2, gt=0, lt=1)
    """Share of each class that is for testing, if there are no test samples apart."""
    split_seed: int = Field(0, ge=0)
    """Seed of that split. It does not depend on the seed of the run."""

    def trains(self, labels: np.ndarray) -> np.ndarray:
        """Return a mask (n,) of the samples for training, by ``test_share``."""
        rng = Streams(self.split_seed).rng("train and test")
        return stratified(labels, 1 - self.test_share, rng)


def stratified(labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return a mask (n,) with a random ``share`` of each class."""
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        chosen[members[: round(share * len(members))]] = True
    return chosen


def class_names(labels: Sequence[Any], chosen: Sequence[str] = ()) -> dict[Any, int]:
    """Return name -> number of the classes: ``chosen``, or those of ``labels`` in their order.

    UserError if a name is chosen twice.
    """
    names = chosen or sorted(set(labels), key=_order)
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise UserError(f"data.classes: two classes are named {twice!r}")
    return {name: number for number, name in enumerate(names)}


def class_numbers(
    labels: Sequence[Any], known: Mapping[Any, int], where: object, of: str = "the training rows"
) -> np.ndarray:
    """Return the numbers (n,) of the labels of rows. UserError for a name that is not ``known``.

    ``where``: the file; ``of``: where the known names are from, for the message. Rows count from 1.
    """
    for row, label in enumerate(labels, start=1):
        if label not in known:
            valid = ", ".join(map(str, [*known][:20]))
            raise UserError(f"{where}: row {row}: label {label!r}, expected one of {of}: {valid}")
    return np.array([known[label] for label in labels], dtype=np.int64)


def _order(label: object) -> tuple[bool, float, str]:
    """Numbers in their order, then texts."""
    text = str(label)
    is_number = NUMBER.fullmatch(text) is not None
    return not is_number, float(text) if is_number else 0.0, text


def checked(labels: np.ndarray, classes: int, where: Path | str) -> np.ndarray:
    """Return ``labels`` as int64. UserError unless all are 0 to ``classes`` - 1, or if empty."""
    if not len(labels):
        raise UserError(f"{where}: no samples")
    worst = labels.min() if labels.min() < 0 else labels.max()
    if not 0 <= worst < classes:
        raise UserError(f"{where}: label {worst}, expected 0 to {classes - 1}")
    return labels.astype(np.int64)


def spelled(values: Sequence[Any], where: str) -> list[Any]:
    """Return the labels of a table's rows, without white space around them.

    UserError if one is missing, or is neither text nor number, or if two of them differ only in
    case, in white space, or as a number does from its text: they would be classes of their own.
    ``where``: the file and the column, for the message. Rows count from 1.
    """
    found = [value.strip() if isinstance(value, str) else value for value in values]
    first: dict[str, tuple[int, Any]] = {}  # how a label is compared -> the first such row
    for row, value in enumerate(found, start=1):
        if value is None or value == "":
            raise UserError(f"{where}: row {row} has no value: expected a text or a number")
        if not isinstance(value, str | int | float):
            raise UserError(
                f"{where}: row {row}: expected a text or a number, found {str(value)[:60]!r}"
            )
        before, other = first.setdefault(_compared(value), (row, value))
        if (type(other), other) != (type(value), value):
            raise UserError(
                f"{where}: {other!r} (row {before}) and {value!r} (row {row}) are nearly equal:"
                " expected one spelling for each label"
            )
    return found


def _compared(label: str | float) -> str:
    text = " ".join(str(label).split())
    if len(text) == 1:  # the labels may be letters, small and capital ones
        return text
    whole, point, zeros = text.partition(".")
    is_whole = bool(point) and whole.lstrip("-").isdecimal() and not zeros.strip("0")
    return whole if is_whole else text.casefold()


# ---------------------------------------------------------------------- where data sets are
VARIABLE = "EDGEFL_DATA"
CACHE_VARIABLE = "EDGEFL_CACHE"


def data_dir(configured: str | None, env: Mapping[str, str]) -> Path:
    """Return the data directory: the config's ``[data] dir``, else $EDGEFL_DATA, else ``data/``."""
    return Path(configured or env.get(VARIABLE) or "data").expanduser()


def cache_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of the cache of parsed data sets.

    It is $EDGEFL_CACHE, else ``edgefl`` in the user's cache directory.
    """
    return Path(
        env.get(CACHE_VARIABLE) or Path(env.get("XDG_CACHE_HOME") or "~/.cache") / "edgefl"
    ).expanduser()


def first_of(
    directory: Path,
    folders: Iterable[str],
    names: Iterable[str],
    fits: Callable[[Path], bool] = Path.is_file,
) -> Path | None:
    """Return the first of ``names`` that is in ``directory/FOLDER/``, else in ``directory/``.

    ``fits``: whether a path is what is searched for.
    """
    names = tuple(names)
    places = (*(directory / folder for folder in folders), directory)
    paths = (place / name for place in places for name in names)
    return next((path for path in paths if fits(path)), None)


def file_of(directory: Path, folders: Iterable[str], names: Iterable[str], get: str) -> Path:
    """Return the first of these files, as ``first_of`` does.

    The UserError for a missing file has the command that downloads the data set ``get``.
    """
    names = tuple(names)
    path = first_of(directory, folders, names)
    if path is None:
        raise missing(f"file {' or '.join(names)}", directory, folders, get)
    return path


def missing(what: str, directory: Path, folders: Iterable[str], get: str) -> UserError:
    """Return the error for a missing data set: what is missing, where, and how to download it."""
    where = f"{directory.absolute() / next(iter(folders))} or {directory.absolute()}"
    command = f"`edgefl data get {get} --dir {directory}`"
    return UserError(
        f"no {what} in {where}: {command} gets it; or set [data] dir or ${VARIABLE} to the"
        " directory that has it"
    )
