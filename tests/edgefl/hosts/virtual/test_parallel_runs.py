"""Whole runs in forked processes: which refusal is reported does not depend on speed."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from edgefl.errors import UserError
from edgefl.hosts.virtual.run_batch import ParallelRuns

LATE_S = 0.2


def runs(work: Any) -> ParallelRuns:
    return ParallelRuns(2, work, lambda job, line, lasting: None, lambda job, summary: None)


@pytest.mark.processes
def test_of_several_refusals_the_first_in_the_list_is_told() -> None:
    def work(job: int, report: Any, begun: Any) -> dict[str, Any]:
        time.sleep(LATE_S * (job == 0))
        raise UserError(f"job {job} is wrong")

    for _ in range(3):
        with pytest.raises(UserError, match="job 0 is wrong"):
            runs(work).run(4)


@pytest.mark.processes
def test_a_refusal_ends_what_has_begun() -> None:
    read, write = os.pipe()

    def work(job: int, report: Any, begun: Any) -> dict[str, Any]:
        if job == 1:
            os.read(read, 1)  # not before the other has begun
            raise UserError("job 1 is wrong")
        try:
            begun()
            os.write(write, b"x")
            time.sleep(1000)
        except KeyboardInterrupt:
            os.write(write, b"ended in order")
        return {}

    try:
        with pytest.raises(UserError, match="job 1 is wrong"):
            runs(work).run(3)
        assert os.read(read, 100) == b"ended in order"
    finally:
        os.close(read), os.close(write)
