"""The strategy's open jobs: from RunJob to the event with the result."""

from __future__ import annotations

from edgefl.actor import Run
from edgefl.coordinator.checks import result_fault
from edgefl.jobs import Job, Result
from edgefl.strategies.base.decisions import RunJob
from edgefl.strategies.base.events import JobDone, JobFailed
from edgefl.vectors import read_only


class OpenJobs:
    """Open jobs, by identity. ``allowed``: the hosts have workers for jobs."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self.names: dict[Job, str] = {}

    def open(self, decision: RunJob) -> Run:
        """Open a job, and return the order for the host.

        ValueError if there are no workers, or if another job of that name is open.
        """
        if not self.allowed:
            raise ValueError(
                f"cannot run job {decision.name!r}: only a strategy with runs_jobs = True has"
                " workers for jobs"
            )
        if decision.name in self.names.values():
            raise ValueError(f"cannot run job {decision.name!r}: a job of that name is under way")
        self.names[decision.job] = decision.name
        return Run(decision.job, decision.cost_ns)

    def end(self, job: Job, result: Result | str) -> JobDone | JobFailed | None:
        """Close a job, and return the strategy's event: its result, or why there is none.

        None if the job is already closed: a job may be done twice.
        """
        name = self.names.pop(job, None)
        if name is None:
            return None
        fault = result if isinstance(result, str) else result_fault(*result)
        if isinstance(result, str) or fault is not None:
            return JobFailed(name, fault or "")
        read_only(result[0].values())
        return JobDone(name, *result)
