"""FedAsync; when the test loss has dropped by x %, all edges at work get the new model at once."""

import torch

from edgefl.api import load_strategy

FedAsync = load_strategy("fedasync")


class MyPushOptions(FedAsync.Options):
    drop_percent: float = 5.0
    beta: float = 0.5


class Merging(FedAsync.rule):
    """w <- (1 - beta) w + beta w_pushed, at the first step after the pushed model's arrival."""

    def pushed(self, run, model, version, numbers):
        run.weights.lerp_(torch.tensor(model, device=run.weights.device), self.options.beta)


class MyPush(FedAsync):
    Options = MyPushOptions
    rule = Merging
    hears_evaluations = True

    def __init__(self, *args):
        super().__init__(*args)
        self.reference = None  # the loss at the last push

    def evaluated(self, event, now):
        loss = event.scores["test_loss"]
        if self.reference is None:
            self.reference = loss
        if not loss <= self.reference * (1 - self.options.drop_percent / 100):
            return []
        self.reference = loss
        return self.push(sorted(self.running))
