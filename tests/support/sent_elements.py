"""The number of elements that each strategy sends down and up."""

from __future__ import annotations

MODEL = (
    2 * 16 + 16 + 2 * 16 + 16 * 2 + 2 + 2 * 16
)  # elements: own_task.py's parameters, then the running mean and variance
DROPPED = 4  # of 16 hidden units, at p = 0.25
SUB_MODEL = MODEL - DROPPED * (2 + 1 + 2 + 2 + 2)
CONTROLLED = MODEL + MODEL - 2 * 16  # FedAC's control variate has the trainable elements
DOWN, UP = (
    {"syncdrop": SUB_MODEL + DROPPED, "fedac": CONTROLLED},
    {"syncdrop": SUB_MODEL, "fedac": CONTROLLED},
)  # elements that differ from one model
MOST_HEADER = 300  # bytes: names and numbers of a message
