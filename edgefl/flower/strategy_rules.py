"""Which strategies a Flower app can train for: those that change nothing on the edge.

The app trains by itself: it calls no hook of a strategy's ``LocalRule``.
"""

from __future__ import annotations

import sys
from typing import Any

from edgefl.strategies.base.events_and_decisions import Urge
from edgefl.strategies.base.strategy import LocalRule, Strategy
from edgefl.strategies.fedprox import Pull

HOOKS = ("unpack", "begin", "extra_loss", "adjust", "checkpoint", "merge", "payload")


def refusal(strategy: type[Strategy], options: Any) -> str | None:
    """Return why a Flower app cannot train for this strategy with these options, or None."""
    rule = strategy.rule
    own = [name for name in HOOKS if getattr(rule, name) is not getattr(LocalRule, name)]
    if issubclass(rule, Pull) and not own and options.mu:
        return (
            f"mu: expected 0 with a Flower app, which trains without our term, found {options.mu}"
        )
    if own or rule.remembers or not rule.moves:
        does = f"its edge half ({rule.__name__}) has {own[0]}()" if own else "edges send gradients"
        return f"cannot train with a Flower app: {does}, and the app trains by itself"
    if strategy.needs_unlabelled or strategy.runs_jobs:
        return "cannot train with a Flower app: its server needs the model and the data"
    # it ends tasks early: an app trains all its epochs in one call
    modules = [sys.modules.get(each.__module__) for each in strategy.__mro__]
    if any(value is Urge for module in modules if module for value in vars(module).values()):
        return "cannot train with a Flower app: it ends tasks early, and an app trains in one call"
    return None
