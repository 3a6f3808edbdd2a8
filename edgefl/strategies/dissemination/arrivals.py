"""Compute a device's gradient from its update."""

from __future__ import annotations

import numpy as np

from edgefl.strategies.base.events import UpdateArrived
from edgefl.strategies.dissemination.learned import Arrival
from edgefl.vector_terms import Terms


def arrival(
    update: UpdateArrived,
    sent: tuple[int, np.ndarray] | None,
    started: int,
    made: int,
    t: int,
    staleness: int,
) -> Arrival:
    """Return the update as an Arrival, with the gradient g = (w_o - w_i) / (eta n) of n steps.

    The paper prints the negative of g. ``sent``: version and model that the device requested and
    merged after m steps. Then the jump of the merge is left out: w_i = (1 - beta) (w_o - A) + beta
    w_g - B, so g = ((1 - beta) w_o + beta w_g - w_i) / (eta ((1 - beta) m + n - m)).
    """
    said = update.numbers
    steps, rate, beta = (
        said.get("steps", 0.0),
        said.get("learning_rate", 0.0),
        said.get("beta", 0.0),
    )
    trained: Terms = ((update.base, 1.0), (update.weights, -1.0))
    if sent is not None and said.get("fresh_version") == sent[0] and 0 < beta < 1:
        trained = ((update.base, 1.0 - beta), (sent[1], beta), (update.weights, -1.0))
        steps -= beta * min(said.get("merge_step", 0.0), steps)
    return Arrival(
        update.edge, update.weights, started, made, t, staleness, trained, max(rate * steps, 0.0)
    )
