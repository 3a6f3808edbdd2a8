"""Files between the processes of a run, where the disk has no room for them."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import JobFinished, JobRaised
from edgefl.clocks.wall.coordinator import workers
from edgefl.clocks.wall.coordinator.workers import Evaluator, _reply
from edgefl.errors import UserError
from edgefl.jobs import Evaluate

LARGE = np.zeros(100_000, np.float32)


@contextmanager
def no_room() -> Iterator[None]:
    """A limit of file size replaces a full disk: the system refuses to write in the same way."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_snapshot_without_room_is_a_line(tmp_path: Path) -> None:
    ours, theirs = Channel.pair()
    evaluator, job = Evaluator(ours, tmp_path), Evaluate(3, 0, LARGE, 0, 0)
    with (
        no_room(),
        pytest.raises(UserError, match=r"cannot be written \(File too large\); \$TMPDIR"),
    ):
        evaluator.submit(job)
    evaluator.submit(job)
    theirs.close()


def test_a_result_without_room_is_the_jobs_failure_and_its_worker_lives(tmp_path: Path) -> None:
    job, path = SimpleNamespace(work=lambda learned: ({"w": LARGE}, {"n": 1.0})), tmp_path / "done"
    with no_room():
        raised = _reply(job, None, "1", path)
    assert isinstance(raised, JobRaised) and raised.users and "File too large" in raised.error
    assert not path.exists()
    finished = _reply(job, None, "2", path)
    assert isinstance(finished, JobFinished)
    vectors, numbers = workers.take_arrays(path, finished.result)
    assert vectors["w"].nbytes == LARGE.nbytes and numbers == {"n": 1.0}


@pytest.mark.parametrize(
    "array",
    [
        np.float32(2.5) * np.ones((2, 3), np.float32),
        np.zeros((0, 4), np.int64),
        np.arange(10)[::3],
        np.array([True, False]),
    ],
)
def test_every_array_comes_back(tmp_path: Path, array: np.ndarray) -> None:
    found = workers.take_arrays(tmp_path / "file", workers.put_arrays(tmp_path / "file", [array]))[
        0
    ]
    assert found.dtype == array.dtype and np.array_equal(found, array)
