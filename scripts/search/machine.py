"""A simulated machine: processes with threads, in one thread of this one, under one clock.

The program under test runs unchanged. Each of its threads is a greenlet. A call that would block
(a wait for a socket, a queue, a sleep) goes back to the simulation, which advances time to the next
event. So a run of minutes takes a fraction of a second, and the same seed gives the same run.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
from greenlet import GreenletExit, getcurrent, greenlet

NS_PER_S = 1_000_000_000
STEP_NS = 1_000  # the least time that a call of the system takes
SCHEDULER_NS = 50_000  # a thread that is woken runs after up to this time
BOOT_NS = 1_000 * NS_PER_S  # of the machines: their monotonic clocks are above 0
TOLD = 40  # latest lines of the story, shown with a failure
MOST_EVENTS = 400_000  # of one run; more means that it turns in a circle


class Killed(GreenletExit):
    """Ends a thread of a process that was killed."""


class TurnsInACircle(Exception):
    """The run has far more events than any run that ends."""


class Simulation:
    """Time, the events to come, and the trace: a digest of all that has happened.

    ``after_event`` is called after every event: it checks the invariants.
    """

    def __init__(self, seed: int, verbose: bool = False) -> None:
        self.now_ns = 0
        self.rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 1])))
        self.hub = getcurrent()
        self.after_event: Callable[[], None] = lambda: None
        self.events = 0
        self.verbose = verbose
        self.told: deque[str] = deque(maxlen=TOLD)
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()
        self._digest = hashlib.blake2b(digest_size=12)
        self._draws: list[int] = []

    # ------------------------------------------------------------------ events
    def at(self, at_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """Call at this moment, or now if it has passed."""
        entry = (max(at_ns, self.now_ns), next(self._numbers), call, arguments)
        heapq.heappush(self._heap, entry)

    def after(self, delay_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now_ns + delay_ns, call, *arguments)

    def run(self, until: Callable[[], bool], most_ns: int) -> None:
        """Play events until ``until()`` or the moment ``most_ns``. TurnsInACircle."""
        while not until():
            if not self._heap or self._heap[0][0] > most_ns:
                self.now_ns = most_ns
                return
            at_ns, _, call, arguments = heapq.heappop(self._heap)
            self.now_ns = at_ns
            self._digest.update(at_ns.to_bytes(8, "little"))
            call(*arguments)
            self.events += 1
            if self.events > MOST_EVENTS:
                raise TurnsInACircle(f"more than {MOST_EVENTS} events")
            self.after_event()

    def draw(self, below: int) -> int:
        """A random whole number in [0, below); 0 if there is none."""
        if not self._draws:  # one call for many draws
            self._draws = self.rng.integers(0, 1 << 62, 512).tolist()
        return self._draws.pop() % max(below, 1)

    # ------------------------------------------------------------------ the trace
    def tell(self, *what: Any) -> None:
        """Add a line to the trace."""
        line = f"{self.now_ns / NS_PER_S:.6f} {' '.join(map(str, what))}"
        self._digest.update(line.encode())
        self.told.append(line)
        if self.verbose:
            print(line, flush=True)

    def add_to_trace(self, data: bytes) -> None:
        """Add data that is no line to the trace."""
        self._digest.update(data)

    @property
    def trace(self) -> str:
        return self._digest.hexdigest()


class Process:
    """One process. ``clock_ns``: its monotonic clock minus simulated time.

    ``fuse``: after so many calls of the system it is killed, in the middle of the last one.
    """

    def __init__(self, sim: Simulation, name: str, clock_ns: int = BOOT_NS) -> None:
        self.sim, self.name, self.clock_ns = sim, name, clock_ns
        self.alive, self.killed = True, False
        self.slept_ns = 0  # in sum, while its host slept
        self.fuse: int | None = None
        self.threads: list[SimulatedThread] = []
        self.frozen_until_ns = 0
        self._pending: list[SimulatedThread] = []
        self.at_end: list[Callable[[], None]] = []  # called when it has ended, however
        self.error: BaseException | None = None

    def monotonic_ns(self) -> int:
        return self.sim.now_ns + self.clock_ns

    def start(
        self, run: Callable[[], Any], name: str, within_ns: int = SCHEDULER_NS
    ) -> SimulatedThread:
        thread = SimulatedThread(self, run, name)
        self.threads.append(thread)
        self.sim.after(self.sim.draw(within_ns), thread.resume)
        return thread

    def step(self, what: str) -> bool:
        """Count a call of the system by the thread that runs now.

        True if the process dies in it: the caller does a part of the work, then calls ``die``.
        """
        if not self.alive:
            raise Killed
        if self.fuse is None:
            return False
        self.fuse -= 1
        if self.fuse > 0:
            return False
        self.sim.tell(self.name, "dies in", what)
        return True

    def call(self, what: str) -> None:
        """Count a call of the system that has no parts."""
        if self.step(what):
            self.die()

    def die(self) -> None:
        """Kill the process from inside, and end the thread that runs now."""
        self.kill()
        raise Killed

    def kill(self) -> None:
        """End all threads, at once and without their knowledge."""
        if not self.alive:
            return
        self.alive, self.killed = False, True
        self.sim.tell(self.name, "is dead")
        self.sim.after(0, self._throw)
        self._ended()

    def _throw(self) -> None:
        for thread in self.threads:
            thread.end()

    def _ended(self) -> None:
        for call in self.at_end:
            call()

    def freeze(self, until_ns: int) -> None:
        self.frozen_until_ns = max(self.frozen_until_ns, until_ns)
        self.sim.at(self.frozen_until_ns, self._thaw)

    @property
    def frozen(self) -> bool:
        return self.sim.now_ns < self.frozen_until_ns

    def _thaw(self) -> None:
        if self.frozen:
            return
        pending, self._pending = self._pending, []
        for thread in pending:
            self.sim.after(self.sim.draw(SCHEDULER_NS), thread.resume)

    def later(self, thread: SimulatedThread) -> None:
        """Resume this thread once the process is no longer frozen."""
        self._pending.append(thread)

    def thread_ended(self, error: BaseException | None, main: bool) -> None:
        """A thread has returned. With the first thread the process ends."""
        if not self.alive:
            return
        self.error = self.error or error
        if main or error is not None:
            self.alive = False
            self.sim.after(0, self._throw)
            self._ended()


class SimulatedThread:
    """A thread of the program under test, as a greenlet."""

    def __init__(self, process: Process, run: Callable[[], Any], name: str) -> None:
        self.process, self.name, self._run = process, name, run
        self.main = not process.threads
        self.ended = False
        self.slow_ns = 0  # further time until it runs after it was woken: others have its core
        self._waiters: list[SimulatedThread] = []
        self._wait = 0  # number of the present wait; an earlier one's alarm does nothing
        self._waking = True  # ``start`` has planned the first turn
        self._greenlet = greenlet(self._main, parent=process.sim.hub)

    @property
    def sim(self) -> Simulation:
        return self.process.sim

    def _main(self) -> None:
        error = None
        try:
            self._run()
        except Killed:
            pass
        except BaseException as raised:
            error = raised
        self.ended = True
        for waiter in self._waiters:
            waiter.wake()
        self.process.thread_ended(error, self.main)

    def resume(self) -> None:
        if self.ended:
            return
        if not self.process.alive:
            self.end()
        elif self.process.frozen:
            self.process.later(self)
        else:
            self._waking = False
            self._greenlet.switch()

    def end(self) -> None:
        """End this thread of a dead process."""
        if not self.ended:
            self.ended = True
            if self._greenlet:  # it has begun
                self._greenlet.throw(Killed)

    def block(self, until_ns: int | None) -> None:
        """Wait until ``wake`` or until this moment (simulated ns). For the thread that runs now."""
        if not self.process.alive:
            raise Killed
        self._wait += 1
        if until_ns is not None:
            self.sim.at(max(until_ns, self.sim.now_ns + STEP_NS), self._alarm, self._wait)
        self.sim.hub.switch()
        if not self.process.alive:
            raise Killed

    def _alarm(self, wait: int) -> None:
        if wait == self._wait:
            self.wake()

    def wake(self) -> None:
        """End this thread's wait soon."""
        if not self._waking and not self.ended:
            self._waking = True
            self.sim.after(STEP_NS + self.sim.draw(SCHEDULER_NS) + self.slow_ns, self.resume)

    def join(self, thread: SimulatedThread, timeout_ns: int | None) -> None:
        """Wait until ``thread`` has ended."""
        until_ns = None if timeout_ns is None else self.sim.now_ns + timeout_ns
        while not thread.ended and (until_ns is None or self.sim.now_ns < until_ns):
            thread._waiters.append(self)
            self.block(until_ns)


def running(process: Process) -> SimulatedThread:
    """The thread of this process that runs now."""
    now = getcurrent()
    return next(thread for thread in process.threads if thread._greenlet is now)
