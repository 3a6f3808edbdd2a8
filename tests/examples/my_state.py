"""Your own strategy with a state of its own: it learns which edges to choose, by a torch model."""

import torch

from edgefl.api import Rounds, weighted_sum


class Chooser(Rounds):
    """FedAvg; of the idle edges it chooses those whose loss is expected to be the largest."""

    def __init__(self, *args):
        super().__init__(*args)
        self.model = torch.nn.Linear(2, 1)  # (share of the samples, version) -> loss
        for parameter in self.model.parameters():
            torch.nn.init.zeros_(parameter)  # its random numbers are not those of the run's seed

    def select(self, count, trigger):
        return sorted(self.idle, key=lambda edge: (-self.expected(edge).item(), edge))[:count]

    def expected(self, edge):
        share = self.known[edge] / sum(self.known.values())
        return self.model(torch.tensor([share, self.version / 100]))

    def aggregate(self, updates):
        for update in updates:
            self.model.zero_grad()
            (self.expected(update.edge) - update.numbers["loss"]).square().sum().backward()
            for parameter in self.model.parameters():
                parameter.data -= 0.1 * parameter.grad
        counts = [update.numbers["samples"] for update in updates]
        return weighted_sum([u.weights for u in updates], [n / sum(counts) for n in counts])

    # A checkpoint cannot hold a torch module, but it can hold the module's arrays.
    def state(self):
        arrays = {name: tensor.numpy() for name, tensor in self.model.state_dict().items()}
        return super().state() | {"model": arrays}

    def restore(self, state):
        arrays = {name: torch.from_numpy(array) for name, array in state["model"].items()}
        self.model.load_state_dict(arrays)
        super().restore(state | {"model": self.model})
