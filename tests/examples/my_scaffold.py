"""SCAFFOLD: control variates keep devices with different data from drifting apart (Karimireddy et
al. 2020, arXiv 1910.06378, algorithm 1, option II).
"""

import numpy as np
import torch

from edgefl.api import Assign, LocalRule, Rounds, RoundsOptions, weighted_sum, with_changes


class ScaffoldOptions(RoundsOptions):
    server_learning_rate: float = 1.0


class Corrected(LocalRule):
    """y <- y - lr (g - c_i + c) in each step; at the end c_i <- c_i - c + (x - y) / (steps lr)."""

    remembers = ("c_i",)  # stays on the edge between tasks

    def begin(self, run):
        run.memory.setdefault("c_i", torch.zeros(run.parameters))
        run.memory["c"] = torch.tensor(run.task.vectors["c"])

    def adjust(self, run, gradient):
        gradient.add_(run.memory["c"] - run.memory["c_i"])

    def payload(self, run):
        moved = (run.start - run.weights)[: run.parameters] / (run.step * run.learning_rate)
        change = moved - run.memory["c"]
        run.memory["c_i"] = run.memory["c_i"] + change
        return {"weights": run.weights.numpy(), "change": change.numpy()}, {}


class Scaffold(Rounds):
    """x <- x + rate (mean of y_i - x);  c <- c + (S / N) mean of the changes of c_i."""

    Options = ScaffoldOptions
    rule = Corrected

    def __init__(self, *args):
        super().__init__(*args)
        self.control = np.zeros(self.layout.parameters, np.float32)

    def assign(self, edges):
        self.mark_running(edges)
        return [Assign(tuple(edges), {"weights": self.weights, "c": self.control})]

    def update_size(self, edge, name):
        return self.layout.parameters if name == "change" else self.layout.size

    def aggregate(self, updates):
        changes = [update.vectors["change"] for update in updates]
        self.control = weighted_sum(
            [self.control, *changes], [1] + [1 / len(self.known)] * len(changes)
        )
        shares = [self.options.server_learning_rate / len(updates)] * len(updates)
        ends, starts = [update.weights for update in updates], [update.base for update in updates]
        return with_changes(self.weights, ends, starts, shares, self.layout.parameters)
