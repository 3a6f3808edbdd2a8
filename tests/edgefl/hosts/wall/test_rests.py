"""The pacing thread's sleep between two turns, at a clock that the test moves."""

from edgefl.hosts.wall.coordinator.gaps import Gaps
from edgefl.hosts.wall.coordinator.rests import Rests
from edgefl.hosts.wall.mailbox import Mailbox
from edgefl.hosts.wall.system import System

MS = 1_000_000
GRAIN_S = 0.004


class Machine(System):
    """A socket and a clock. A message is ready at ``message_ns``; nothing else takes time."""

    def __init__(self) -> None:
        self.now = self.message_ns = 1_000 * MS
        self.slept: list[tuple[str, float]] = []
        self.late_ns = 0  # how late each sleep ends
        self.gaps: list[tuple[int, int]] = []
        gaps = Gaps(5 * MS, lambda began, length: self.gaps.append((began, length)))
        self.rests = Rests(self, Mailbox(), self, gaps)  # type: ignore[arg-type]  # a stand-in

    def monotonic_ns(self) -> int:
        return self.now

    def sleep(self, pause_s: float) -> None:
        self.slept.append(("sleep", round(1000 * pause_s, 6)))
        self.now += round(pause_s * 1e9) + self.late_ns

    def wait(self, other_fd: int, timeout_s: float) -> bool:
        self.slept.append(("wait", round(1000 * timeout_s, 6)))
        until_ns = min(self.now + round(timeout_s * 1e9), max(self.message_ns, self.now))
        self.now = until_ns + self.late_ns
        return False

    def turn(self, due_ns: int, grain_s: float = GRAIN_S) -> list[tuple[str, float]]:
        self.slept = []
        self.rests.sleep(lambda: max(due_ns - self.now, 0) / 1e9, grain_s)
        return self.slept


def test_messages_of_a_grain_are_waited_for_in_one_sleep() -> None:
    machine = Machine()
    machine.turn(due_ns=machine.now)  # begins a turn
    machine.now += MS  # of work
    assert machine.turn(due_ns=machine.now + 20 * MS) == [("sleep", 3.0), ("wait", 17.0)]
    assert machine.now == 1_004 * MS  # the message had come, so the wait took no time


def test_what_is_due_within_the_grain_is_not_slept_over() -> None:
    machine = Machine()
    machine.turn(due_ns=machine.now)
    assert machine.turn(due_ns=machine.now + MS) == [("sleep", 1.0), ("wait", 0.0)]


def test_after_a_grain_of_work_or_without_one_only_the_socket_is_waited_for() -> None:
    machine = Machine()
    machine.turn(due_ns=machine.now)
    machine.now += 5 * MS
    assert machine.turn(due_ns=machine.now + 2 * MS) == [("wait", 2.0)]
    assert machine.turn(due_ns=machine.now + 2 * MS, grain_s=0.0) == [("wait", 2.0)]


def test_a_late_end_of_either_sleep_is_a_gap_and_the_sleep_itself_is_none() -> None:
    machine = Machine()
    machine.message_ns = 2_000 * MS
    machine.turn(due_ns=machine.now + 100 * MS, grain_s=0.05)
    assert machine.gaps == []
    machine.late_ns = 6 * MS
    machine.turn(due_ns=machine.now + 100 * MS, grain_s=0.05)
    assert machine.gaps == [(1_150 * MS, 6 * MS), (1_200 * MS, 6 * MS)]
