"""The strategy's jobs on the wall clock.

A worker process runs them one after the other.
"""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

from edgefl.errors import TEMPORARY, UserError, trace, written
from edgefl.hosts.ipc import Channel
from edgefl.hosts.process_messages import DoJob, JobFinished, JobRaised, WorkerDied
from edgefl.hosts.wall import array_file
from edgefl.hosts.wall.coordinator.job_table import JobOrder
from edgefl.hosts.wall.coordinator.thread_messages import Worked
from edgefl.hosts.wall.edge.worker import Turns
from edgefl.hosts.wall.system import OWN_SYSTEM, Inbox, System
from edgefl.jobs import Job, Result, of_plain, plain
from edgefl.snake_case import snake

MOST_DEATHS = 3  # after so many dead workers the job itself counts as the cause


class Jobs:
    """The coordinator's end. ``job_table`` keeps what is open.

    Another thread sends orders and receives results, so that the logic thread never waits.
    """

    def __init__(
        self,
        channel: Channel,
        scratch: Path,
        now: Callable[[], int],
        system: System = OWN_SYSTEM,
    ) -> None:
        self.channel, self.scratch, self.now = channel, scratch, now
        self.system = system
        self._orders: Inbox = system.inbox()  # of JobOrder

    def listen(self, tell: Callable[[Any], None]) -> None:
        """Start the thread, which passes the outcome of each order to ``tell``."""
        self.system.start(Thread(target=self._listen, args=(tell,), name="jobs", daemon=True))

    def submit(self, order: JobOrder) -> None:
        self._orders.put(order)

    # ------------------------------------------------------------------ the thread
    def _listen(self, tell: Callable[[Any], None]) -> None:
        try:
            while True:
                tell(self._outcome(self._orders.get()))
        except (EOFError, ConnectionError):
            return  # the run's processes are ending

    def _outcome(self, order: JobOrder) -> Worked:
        """Return one Worked for each order, also after an error: the strategy waits for it."""
        try:
            return self._done(order)
        except (EOFError, ConnectionError):
            raise
        except OSError as error:  # for example a full disk
            return Worked(
                self.now(),
                order,
                error=(
                    f"a job ({snake(type(order.job).__name__)}) could not be handed to its worker:"
                    f" {error}"
                ),
                users=True,
            )
        except Exception:  # the job does not fit into a message: a bug of its author
            return Worked(self.now(), order, error=traceback.format_exc())

    def _done(self, order: JobOrder) -> Worked:
        """Send the order again if its worker dies. Orders are sent one at a time, so that a dead
        worker loses only one.
        """
        for deaths in range(MOST_DEATHS):
            match self._asked(order, deaths):
                case JobRaised() as raised:
                    return Worked(self.now(), order, error=raised.error, users=raised.users)
                case JobFinished() as finished:
                    result = _result(finished)
                    return Worked(self.now(), order, result, finished.real_s, deaths)
        return Worked(self.now(), order, f"its worker died {MOST_DEATHS} times", deaths=MOST_DEATHS)

    def _asked(self, order: JobOrder, attempt: int) -> JobFinished | JobRaised | WorkerDied:
        name = f"{os.getpid()}-{order.number}"
        path = self.scratch / f"job-{name}-{attempt}"
        row = array_file.put(path, plain(order.job))
        self.channel.send(DoJob(name, order.due_ns, str(path), row))
        while True:
            reply = self.channel.receive()
            if isinstance(reply, WorkerDied) or reply.order == name:
                return reply
            # a reply to an earlier strategy's order, or from a worker that counted as dead
            if isinstance(reply, JobFinished):
                Path(reply.file).unlink(missing_ok=True)


def _result(finished: JobFinished) -> Result:
    vectors, numbers = array_file.take(Path(finished.file), finished.result)
    # JSON has no nan
    return vectors, {name: math.nan if n is None else n for name, n in numbers.items()}


def serve(channel: Channel, learned: Any, turns: Turns) -> None:
    """Run the worker process: one job after the other, each in its own turn, until the channel
    closes.
    """

    learned.place()

    def done(order: DoJob) -> JobFinished | JobRaised | None:
        path = Path(order.file)
        if not path.exists():
            return None  # the coordinator that sent the order has ended
        job = of_plain(array_file.take(path, order.job))
        turns.take(order.due_ns)
        reply = _reply(job, learned, order.order, path.with_suffix(".done"))
        turns.give()
        return reply

    channel.serve(done)


def _reply(job: Job, learned: Any, order: str, path: Path) -> JobFinished | JobRaised:
    began = time.perf_counter()
    try:
        result = list(job.work(learned))
    except UserError as error:
        return JobRaised(order, str(error), users=True)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit
        return JobRaised(order, trace(error), users=False)
    real_s = time.perf_counter() - began
    try:
        with written(f"{path}:", TEMPORARY):
            return JobFinished(order, str(path), array_file.put(path, result), real_s)
    except UserError as error:
        path.unlink(missing_ok=True)
        return JobRaised(order, f"the result of a job: {error}", users=True)
