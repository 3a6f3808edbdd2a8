"""Adam and AdamW on flat vectors, for training on edges and for distillation on the server.

Sources: Kingma, Ba 2015 (arXiv 1412.6980), algorithm 1; Loshchilov, Hutter 2019 (arXiv 1711.05101),
algorithm 2, as torch computes it: the decay is multiplied by the learning rate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch


@dataclass(slots=True)
class Adam:
    """Adam with bias correction; with ``weight_decay`` above 0, AdamW.

    ``first`` and ``second`` are its moments, ``steps`` the number of its steps so far.
    """

    first: torch.Tensor
    second: torch.Tensor
    steps: int
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float = 0.0

    def step(self, weights: torch.Tensor, gradient: torch.Tensor, learning_rate: float) -> None:
        """Move ``weights`` in place. The decay is no part of the gradient."""
        self.steps += 1
        if self.weight_decay:
            weights.mul_(1 - learning_rate * self.weight_decay)
        self.first.mul_(self.beta1).add_(gradient, alpha=1 - self.beta1)
        self.second.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        scale = (self.second / (1 - self.beta2**self.steps)).sqrt_().add_(self.epsilon)
        weights.addcdiv_(self.first, scale, value=-learning_rate / (1 - self.beta1**self.steps))

    def copied(self) -> Adam:
        return replace(self, first=self.first.clone(), second=self.second.clone())

    def moments(self) -> tuple[torch.Tensor, ...]:
        return self.first, self.second
