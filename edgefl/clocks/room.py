"""What a run does while its disk is full: it waits, tells the user, and goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

LOOK_S = 0.5  # how often it tries again


class WaitForRoom:
    """The ``Room`` of a run's disk. Several threads may wait at once.

    ``say`` gets lines for the user. ``now_s`` and ``sleep`` are the host's clock. ``given_up``
    tells whether the run must end: then the write fails. ``waited`` gets the file and the seconds,
    once there is room again.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        now_s: Callable[[], float],
        sleep: Callable[[float], None],
        given_up: Callable[[], bool],
        waited: Callable[[Path, float], None] = lambda path, waited_s: None,
    ) -> None:
        self.say = say
        self.now_s = now_s
        self.sleep = sleep
        self.given_up = given_up
        self.waited = waited
        self._since_s: dict[Path, float] = {}  # by the file that waits

    def wait(self, path: Path, error: OSError) -> bool:
        """Wait a while. False: the run must end."""
        if path not in self._since_s:
            self._since_s[path] = self.now_s()
            self.say(
                f"{path}: cannot be written ({error.strerror}): the run waits until there is room"
            )
        if self.given_up():
            return False
        self.sleep(LOOK_S)
        return True

    def over(self, path: Path) -> None:
        """There is room again."""
        waited_s = self.now_s() - self._since_s.pop(path)
        self.say(f"{path}: there is room again after {waited_s:.1f} s: the run goes on")
        self.waited(path, waited_s)
