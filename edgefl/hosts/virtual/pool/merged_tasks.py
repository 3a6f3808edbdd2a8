"""Training tasks that are trained together (``training.tasks_at_once``).

When a task is due, it is trained together with tasks that have begun and are due later. Which ones
depends only on the tasks that are under way, so a run that goes on from a checkpoint, which holds
what was trained ahead, writes the same bytes. A task that no longer counts when it is due has only
cost time.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import torch

from edgefl.errors import UserError
from edgefl.flower.app_folder import is_flower
from edgefl.hosts.setup.learning import Learning
from edgefl.hosts.virtual.pool.deferred_run import DeferredRun, RunOutcome
from edgefl.hosts.virtual.pool.executor import Executor, Standing, Stretch, ended
from edgefl.hosts.virtual.pool.group_counts import A_TASK_FAILED, GroupCounts
from edgefl.hosts.virtual.pool.merged_steps import CannotMerge, MergedSteps, first_line
from edgefl.jobs import Train
from edgefl.models.torch_device import CPU
from edgefl.strategies.base.local_rule import LocalRule, owns

KEY = "training.tasks_at_once"


class MergedTasks:
    """The tasks under way of an engine that trains up to ``at_once`` of them together.

    ``counts``: how the groups were trained.
    """

    def __init__(self, learned: Learning, executor: Executor, at_once: int) -> None:
        self.learned, self.executor, self.at_once = learned, executor, at_once
        self.counts = GroupCounts()
        self._steps = MergedSteps(learned.workspace, learned.task.loss)
        self._waiting: dict[DeferredRun, tuple[int, int]] = {}  # -> when it is due, number
        self._started = 0
        of_all = self._reason_against_all()
        self._reasons = [
            of_all or reason_against(learned.rule(index))
            for index in range(len(learned.experiment.strategies))
        ]
        self.note = self._told(of_all)

    def start(self, job: Train, due_ns: int) -> None:
        """Note that this task is under way."""
        self._started += 1
        if self._fits(job) and job.run.outcome is None:
            self._waiting[job.run] = due_ns, self._started

    def trained(self, job: Train) -> bool:
        """Whether ``job.run`` has its outcome: it was trained with others, perhaps just now."""
        run: DeferredRun = job.run
        self._waiting.pop(run, None)
        if not self._fits(job):
            return False
        if run.outcome is not None:
            return True
        others = [other for other in self._waiting if other.index == run.index]
        others = heapq.nsmallest(self.at_once - 1, others, key=self._waiting.__getitem__)
        if not others:
            return False
        for other in others:
            del self._waiting[other]
        group = [run, *others]
        for each, outcome in zip(group, self._together(group)):
            each.outcome = outcome
        return True

    def drop(self, run: DeferredRun) -> None:
        self._waiting.pop(run, None)

    def clear(self) -> None:
        self._waiting.clear()

    def _fits(self, job: Train) -> bool:
        run: DeferredRun = job.run
        whole = run.step == 0 and job.until_step == run.steps > 0
        free = run.checkpoint is None and not run.merges
        return self._reasons[run.index] is None and whole and free

    def _together(self, group: Sequence[DeferredRun]) -> list[RunOutcome]:
        """Train these tasks, and return their outcomes, which may be failures."""
        stretches = [
            Stretch(run.index, run.edge, run.task, run.kept, (), run.steps) for run in group
        ]
        standing = [self.executor.begin(stretch) for stretch in stretches]
        begun = [each for each in standing if each.run.failure is None]
        reason = self._merged(begun) if begun else None
        if reason is None:
            return [ended(each) for each in standing]
        # the task that has failed tells its own reason, and the others do not fail with it
        outcomes = [self._alone(run, stretch) for run, stretch in zip(group, stretches)]
        failures = sum(outcome.failure is not None for outcome in outcomes)
        of_a_task = failures > len(group) - len(begun)  # more than failed at their begin
        name = self.learned.experiment.strategies[group[0].index].name
        self.counts.failed(
            A_TASK_FAILED if of_a_task else reason,
            f"{KEY} = {self.at_once}: {len(begun)} tasks of {name} could not be trained together"
            f" ({reason}), so they were trained again one by one; more such groups are counted in"
            " summary.json",
        )
        return outcomes

    def _merged(self, begun: Sequence[Standing]) -> str | None:
        """Do all steps of these runs together; return the reason if that fails, otherwise None."""
        runs, rules = [each.run for each in begun], [each.rule for each in begun]
        try:
            self._steps.train(begun[0].trainer, runs, rules)
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"{KEY} = {self.at_once}: {len(begun)} tasks together need more memory than the"
                " GPU has: expected fewer"
            ) from error
        except CannotMerge as reason:
            return str(reason)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return first_line(error)
        self.counts.together[len(begun)] += 1
        return None

    def _alone(self, run: DeferredRun, stretch: Stretch) -> RunOutcome:
        outcome = self.executor.train(run, stretch)
        assert outcome is not None, "a run without a checkpoint has stopped"
        return outcome

    # ------------------------------------------------------------------ what can be merged
    def _reason_against_all(self) -> str | None:
        training, learned = self.learned.experiment.training, self.learned
        if is_flower(learned.experiment.task):
            return "a Flower app trains itself"
        keys = {
            'trainer = "none"': training.trainer == "none",
            'optimizer = "adamw"': training.optimizer == "adamw",
            "schedule": training.schedule is not None,
            "micro_batch_size": training.micro_batch_size is not None,
        }
        if any(keys.values()):
            return f"with training.{next(key for key in keys if keys[key])}"
        if learned.workspace.device != CPU:
            learned.place()  # a run before this one has moved the model, but not these samples
        start = learned.workspace.placed(learned.initial_weights())
        return self._steps.reason_against(start, learned.train)

    def _told(self, of_all: str | None) -> str | None:
        """A line that says which tasks are trained one by one; None: none of them."""
        alone = f"{KEY} = {self.at_once}: trained one by one are the tasks of"
        if of_all is not None:
            return f"{alone} all strategies: {of_all}"
        names = [entry.name for entry in self.learned.experiment.strategies]
        told = [f"{name}: {why}" for name, why in zip(names, self._reasons) if why is not None]
        return f"{alone} {'; '.join(told)}" if told else None


def reason_against(rule: LocalRule) -> str | None:
    """Say why tasks with this rule are trained one by one; None: they can be trained together.

    What a rule does before and after the steps, and to the gradients, is done run by run.
    """
    if not rule.moves:
        return "its devices compute single gradients"
    if owns(rule, "extra_loss") or rule.sees != LocalRule.sees:
        return "its local rule adds a term to the loss"
    if owns(rule, "checkpoint"):
        return "its devices ask for fresher models"
    return None
