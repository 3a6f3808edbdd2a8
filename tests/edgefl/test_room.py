"""A run that waits for room on its disk tells the user when it begins and when it goes on."""

from __future__ import annotations

import errno
from pathlib import Path

from edgefl.disk import LOOK_S, WaitForRoom

FULL = OSError(errno.ENOSPC, "No space left on device")
EVENTS, JOURNAL = Path("run/events.jsonl"), Path("run/journal/journal-000000.bin")


class Clock:
    """A clock that only ``sleep`` moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s


def test_it_tells_once_per_file_and_how_long_it_took() -> None:
    clock, told, waited = Clock(), list[str](), dict[str, float]()
    room = WaitForRoom(
        told.append,
        lambda: clock.now_s,
        clock.sleep,
        lambda: False,
        lambda path, seconds: waited.update({path.name: seconds}),
    )
    for path in (EVENTS, EVENTS, JOURNAL, EVENTS):
        assert room.wait(path, FULL)
    room.over(EVENTS)
    room.over(JOURNAL)
    assert waited == {EVENTS.name: 4 * LOOK_S, JOURNAL.name: 2 * LOOK_S}
    assert told == [
        "run/events.jsonl: cannot be written (No space left on device): the run waits until there"
        " is room",
        "run/journal/journal-000000.bin: cannot be written (No space left on device): the run waits"
        " until there is room",
        "run/events.jsonl: there is room again after 2.0 s: the run goes on",
        "run/journal/journal-000000.bin: there is room again after 1.0 s: the run goes on",
    ]
    room.wait(EVENTS, FULL)
    assert len(told) == 5, "a second time is told again"


def test_a_run_that_must_end_waits_no_longer() -> None:
    clock, ending = Clock(), [False, False, True]
    told: list[str] = []
    room = WaitForRoom(told.append, lambda: clock.now_s, clock.sleep, lambda: ending.pop(0))
    assert [room.wait(EVENTS, FULL) for _ in range(3)] == [True, True, False]
    assert clock.now_s == 100 + 2 * LOOK_S
