"""Going on with the files of a run as they were at a moment: later rows vanish, none is torn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgefl.errors import UserError
from edgefl.jobs import Evaluate
from edgefl.record.record import Record
from edgefl.record.tables import Rotation
from edgefl.vectors import aligned_copy
from emulator.links.transfer import Completion, Transfer

S = 10**9
MODEL = aligned_copy(np.ones(1, np.float32))


def rows(record: Record, begin: int, end: int) -> None:
    """Write rows number ``begin`` to ``end`` of all tables but hosts.csv."""
    for number in range(begin, end):
        now = number * S
        record.fact(now, {"fact": "noticed", "number": number})
        transfer = Transfer(number, "a", "up", 100 + number, "update")
        windows = ((now, now + S),) if number >= 3 else ()
        record.link(Completion(transfer, now, now, now, windows), now)
        record.measured("up", "a", number, (now, now + S, number))
        record.snapshot(number)
        by_label = (0.5, 0.25) if number >= 4 else ()
        job = Evaluate(number, now, MODEL, 0, 0)
        record.metrics(job, None, 0.5, 0.5, *by_label)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_going_on_gives_the_bytes_of_an_unbroken_record(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    record = Record(whole, lambda: 1.5, None)
    rows(record, 1, 9)
    record.close(MODEL)
    for moment in (2, 3, 6):  # without slots.csv and labels.csv, and with them
        first = Record(broken, lambda: 1.5, None)
        rows(first, 1, moment)
        sizes = first.sizes()
        rows(first, moment, 8)
        first.flush()
        first.sync()
        with (broken / "events.jsonl").open("ab") as torn:
            torn.write(b'{"t":99,"fa')
        second = Record(broken, lambda: 1.5, None, sizes=sizes)
        assert (
            second.sizes() == sizes == {name: (broken / name).stat().st_size for name in sizes}
        ), "cut to these sizes"
        assert not {"slots.csv", "labels.csv"} - set(sizes) & set(contents(broken))
        rows(second, moment, 9)
        second.close(MODEL)
        assert contents(broken) == contents(whole)


def rotated(folder: Path, part_bytes: int, sizes: dict[str, int] | None = None) -> Record:
    return Record(folder, lambda: 1.5, None, sizes=sizes, rotation=Rotation(part_bytes))


@pytest.mark.parametrize("part_bytes", [1, 150, 400])
def test_going_on_gives_the_same_parts_too(tmp_path: Path, part_bytes: int) -> None:
    """Also if files have become parts since the moment from which the record goes on."""
    whole = rotated(tmp_path / "whole", part_bytes)
    rows(whole, 1, 9)
    whole.close(MODEL)
    expected = contents(tmp_path / "whole")
    assert len([name for name in expected if name.startswith("links-")]) >= 1
    for moment in range(1, 9):
        for later in (moment, moment + 1, 9):
            broken = tmp_path / "broken"
            first = rotated(broken, part_bytes)
            rows(first, 1, moment)
            sizes = first.sizes()
            rows(first, moment, later)
            first.flush()
            second = rotated(broken, part_bytes, sizes)
            rows(second, moment, 9)
            second.close(MODEL)
            assert contents(broken) == expected


def test_a_file_that_is_shorter_than_it_should_be_is_told(tmp_path: Path) -> None:
    """A loss of power may take rows that were written before the sizes were noted."""
    record = Record(tmp_path, lambda: 0.0, None)
    rows(record, 1, 3)
    sizes = record.sizes()
    record.close(MODEL)
    (tmp_path / "links.csv").write_bytes(b"edge")
    with pytest.raises(UserError, match=r"links.csv: has 4 bytes, \d+ were expected"):
        Record(tmp_path, lambda: 0.0, None, sizes=sizes)
