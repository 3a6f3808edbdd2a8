"""The strategy's jobs on the wall clock: which are open, and results that are not due yet.

The logic thread keeps this table. It depends only on the inputs of that thread.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from edgefl.errors import Bug, UserError
from edgefl.hosts.wall.coordinator.thread_messages import Worked
from edgefl.jobs import Job, Result
from edgefl.snake_case import snake
from emulator.clock import Agenda
from emulator.fidelity import Quantiles, spread_ms
from emulator.units import NS_PER_S
from emulator.values import value_class


@value_class(frozen=True, slots=True, eq=False)
class JobOrder:
    """A job with its emulated start and end."""

    number: int
    job: Job
    start_ns: int
    due_ns: int


class JobTable:
    """``open``: orders by number, until their worker has ended them."""

    def __init__(self) -> None:
        self.open: dict[int, JobOrder] = {}
        self._held: Agenda[tuple[Job, Result | str]] = Agenda()  # results that are not due yet
        self._given = 0
        self._lag: defaultdict[str, Quantiles] = defaultdict(Quantiles)  # by sort of job
        self._real: defaultdict[str, Quantiles] = defaultdict(Quantiles)
        self._deaths: Counter[str] = Counter()

    def order(self, job: Job, now: int, cost_ns: int) -> JobOrder:
        """Open a job, and return the order for its worker."""
        self._given += 1
        order = self.open[self._given] = JobOrder(self._given, job, now, now + cost_ns)
        return order

    def worked(self, item: Worked) -> None:
        """Hold a result until it is due.

        If the job has failed, raise UserError or Bug, as under the virtual clock.
        """
        order: JobOrder = item.order
        if item.error is not None:
            raise (
                UserError(item.error)
                if item.users
                else Bug(
                    f"a worker failed at a job ({type(order.job).__name__})",
                    item.error.splitlines(),
                )
            )
        self.open.pop(order.number, None)
        sort = snake(type(order.job).__name__)
        self._lag[sort].add(item.now - order.due_ns)
        self._real[sort].add(int(item.real_s * NS_PER_S))
        self._deaths[sort] += item.deaths
        self._held.add(order.due_ns, (order.job, item.result))

    def next_due(self) -> int:
        """When the first held result is due."""
        return self._held.next_due()

    def pop_due(self, now: int) -> list[tuple[Job, Result | str]]:
        return [held for _, held in self._held.pop_due(now)]

    def summary(self) -> dict[str, Any]:
        """Statistics by kind of job: count, lag of results, real duration, dead workers."""
        return {
            sort: {
                "count": lag.count,
                "lag_ms": spread_ms(lag),
                "real_ms": spread_ms(self._real[sort]),
                "workers_died": self._deaths[sort],
            }
            for sort, lag in sorted(self._lag.items())
        }
