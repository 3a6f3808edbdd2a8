"""Ask the strategy: give it an event, record both, and carry its decisions out."""

from __future__ import annotations

from typing import Any

from edgefl.actor import Output
from edgefl.coordinator.run_state import RunState
from edgefl.errors import Bug, UserError
from edgefl.strategies.base import decisions as do
from edgefl.strategies.base import events as ev


class Asking(RunState):
    """A run's state whose strategy can be asked."""

    def _ask(self, event: ev.Event, now: int) -> list[Output]:
        """Give the event to the strategy, record both, and carry the decisions out in order."""
        if self.finished:
            return []
        row = self.record.begin(now, event)
        try:
            decisions = self.strategy.handle(event, now)
        except (UserError, KeyboardInterrupt):
            raise  # for example a full disk: not the algorithm's mistake
        except BaseException as error:  # also SystemExit
            raise self._bug(row) from error
        return self._decided(event, row, decisions, now)

    def _decided(
        self, event: ev.Event, row: dict[str, Any], given: list[do.Decision], now: int
    ) -> list[Output]:
        """Carry out what the strategy has decided on an event, and record both."""
        before = self.version
        try:
            decisions = do.up_to_finish(given)
            outputs, numbers = self._carry_out(decisions, event, now)
        except (UserError, KeyboardInterrupt):
            raise
        except BaseException as error:  # also SystemExit
            raise self._bug(row) from error
        self.record.event(now, before, event, row, decisions, numbers)
        if decisions and isinstance(decisions[-1], do.Finish):
            return outputs + self.finish(decisions[-1].reason, now)
        return outputs + self.finish("versions", now) if self._all_versions else outputs

    @property
    def _all_versions(self) -> bool:
        most = self.experiment.stop.versions
        return most is not None and self.version >= most

    def _bug(self, row: dict[str, Any]) -> Bug:
        """A strategy's failure at an event; the story has the numbers."""
        kind = type(self.strategy)
        short = {key: value for key, value in row.items() if key != "numbers"}
        return Bug(f"{kind.__name__} failed at {short}", self.record.story(), kind)

    def _join_quietly(
        self, event: ev.EdgeJoined, quiet: list[ev.EdgeJoined], now: int
    ) -> list[Output]:
        """As ``_ask``, but an event without a decision only goes to ``quiet``."""
        if self.finished:
            return []
        try:
            decisions = self.strategy.handle(event, now)
        except (UserError, KeyboardInterrupt):
            raise
        except BaseException as error:  # also SystemExit
            self._record_joined(quiet, now)
            raise self._bug(self.record.begin(now, event)) from error
        if decisions == [] and not self._all_versions:
            quiet.append(event)
            return []
        self._record_joined(quiet, now)
        return self._decided(event, self.record.begin(now, event), decisions, now)

    def _record_joined(self, quiet: list[ev.EdgeJoined], now: int) -> None:
        self.record.joined(now, self.version, quiet)
        quiet.clear()
