"""The cache of parsed data sets: written once for all processes, complete or not at all, and valid
for one state of its sources.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT

from edgefl.data import cache
from edgefl.data.dataset import Dataset
from edgefl.errors import UserError

X, Y = np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2), np.array([0, 1])


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEFL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "source").write_bytes(b"1")
    return tmp_path


def load(folder: Path, calls: list[int], options: str = "") -> Dataset:
    def parse(place: Path) -> Dataset:
        calls.append(1)
        return Dataset(X, Y, X[:1], Y[:1], 2, (1.0, 2.0, 3.0), (4.0, 5.0, 6.0))

    return cache.cached("tiny", [folder / "source"], options, parse)


def test_the_second_time_is_mapped_and_not_parsed(own: Path) -> None:
    calls: list[int] = []
    first, second = load(own, calls), load(own, calls)
    assert (
        len(calls) == 1
        and isinstance(second.train_x, np.memmap)
        and not second.train_x.flags.writeable
    )
    assert (
        (second.train_x == X).all()
        and second.mean == (1.0, 2.0, 3.0)
        and second.std == (4.0, 5.0, 6.0)
        and second.classes == 2
    )
    assert (
        first.digest()
        == second.digest()
        == Dataset(X, Y, X[:1], Y[:1], 2, (1.0, 2.0, 3.0), (4.0, 5.0, 6.0)).digest()
    )


def test_another_source_or_option_is_another_entry(own: Path) -> None:
    calls: list[int] = []
    load(own, calls)
    load(own, calls, "length=3")
    assert len(calls) == 2
    (own / "source").write_bytes(b"12")
    load(own, calls)
    os.utime(own / "source", ns=(1, 1))
    load(own, calls)
    assert len(calls) == 4


def found_folder(own: Path) -> Path:
    (folder,) = (path for path in (own / "cache").iterdir() if path.is_dir())
    return folder


def test_a_parser_that_fails_leaves_nothing(own: Path) -> None:
    def parse(place: Path) -> Dataset:
        (place / "half").write_bytes(b"x")
        raise UserError("source: truncated")

    with pytest.raises(UserError, match="source: truncated"):
        cache.cached("tiny", [own / "source"], "", parse)
    assert not [path for path in (own / "cache").iterdir() if path.is_dir()]


@pytest.mark.parametrize("spoil", ["about.json", "train_x.npy", "test_y.npy"])
def test_a_damaged_entry_is_named(own: Path, spoil: str) -> None:
    load(own, [])
    file = found_folder(own) / spoil
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(UserError, match=f"{found_folder(own).name}: a damaged entry .*: delete it"):
        load(own, [])


@pytest.mark.parametrize("mapped", [False, True])
def test_a_cache_without_room_is_named_and_nothing_stays(own: Path, mapped: bool) -> None:
    """Also where the parser writes into a mapped file, which would kill the process on a full disk.

    A limit of file size replaces a full disk: the system refuses to write in the same way.
    """

    def parse(place: Path) -> Dataset:
        shape = (100_000, 1, 1, 1)
        x = cache.large(place, "train_x", shape, np.uint8) if mapped else np.zeros(shape, np.uint8)
        return Dataset(x, np.zeros(len(x), np.int64), x[:1], Y[:1], 2, (1.0,), (4.0,))

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(
            UserError, match=r"cache: the cache .* cannot be written .*EDGEFL_CACHE"
        ):
            cache.cached("tiny", [own / "source"], "", parse)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.suffix for path in (own / "cache").iterdir()] == [".lock"]


PARSER = """
import sys, time
from pathlib import Path
import numpy as np
from edgefl.data.cache import cached
from edgefl.data.dataset import Dataset
folder = Path(sys.argv[1])
def parse(place):
    with open(folder / "parsed", "a") as file:
        file.write("x")
    time.sleep(0.2)
    x, y = np.ones((5, 1, 2, 2), np.uint8), np.arange(5)
    return Dataset(x, y, x, y, 5)
print(cached("tiny", [folder / "source"], "", parse).digest())
"""


@pytest.mark.processes
def test_processes_that_come_at_the_same_time_parse_once(own: Path) -> None:
    run = [sys.executable, "-c", PARSER, str(own)]
    started = [
        subprocess.Popen(
            run,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        for _ in range(4)
    ]
    digests = {process.communicate()[0] for process in started}
    assert (
        [process.returncode for process in started] == [0] * 4
        and len(digests) == 1
        and len(digests.pop().strip()) == 16
    )
    assert (own / "parsed").read_text() == "x"


def test_large_sets_are_normalised_batch_by_batch_with_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    from edgefl.data import dataset
    from edgefl.data.samples import Samples

    data = Dataset(X, Y, X, Y, 2, (1.0, 2.0, 3.0), (3.0, 7.0, 11.0))
    whole, _ = data.train()
    monkeypatch.setattr(dataset, "SMALL", 0)
    lazy, _ = data.train()
    assert isinstance(whole, torch.Tensor) and isinstance(lazy, Samples) and len(lazy) == 2
    by_hand = (X.astype(np.float32) - np.float32([1, 2, 3]).reshape(1, 3, 1, 1)) / np.float32(
        [3, 7, 11]
    ).reshape(1, 3, 1, 1)
    for picked in (
        lazy[:],
        lazy.index_select(0, torch.tensor([0, 1])),
        lazy[np.array([0, 1])],
        whole,
    ):
        assert picked.dtype == torch.float32 and picked.numpy().tobytes() == by_hand.tobytes()
