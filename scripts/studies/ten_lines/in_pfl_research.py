"""The experiment of docs/how-to/from-python.md in pfl-research, in rounds.

Needs pfl[pytorch], matplotlib, scikit-learn, scipy and torch.
See docs/explanation/alternatives.md.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging as FedAvg
from pfl.algorithm.fedprox import FedProx, FedProxParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from scipy.stats import sem, t
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn import Flatten, Linear, ReLU, Sequential
from torch.nn.functional import cross_entropy

CLIENTS, ROUNDS, SEEDS = 10, 20, (1, 2, 3)
SGD, ADAM = torch.optim.SGD, torch.optim.Adam
STRATEGIES = {"fedavg": (FedAvg, SGD, 1.0), "fedprox": (FedProx, SGD, 1.0)}
STRATEGIES["fedadam"] = (FedAvg, ADAM, 0.01)


class Network(Sequential):
    def __init__(self):
        super().__init__(Flatten(), Linear(64, 64), ReLU(), Linear(64, 10))

    def loss(self, x, y):
        return cross_entropy(self(x), y.long())

    def metrics(self, x, y):
        right = (self(x).argmax(1) == y).sum().item()
        return {"accuracy": Weighted(right, len(y))}


def data():
    x, y = load_digits(return_X_y=True)
    x = ((x - 4.884) / 6.017).astype("float32")
    return train_test_split(x, y, test_size=0.2, stratify=y, random_state=0)


class Curve(TrainingProcessCallback):
    def __init__(self, test):
        self.test = test
        self.values = []

    def after_central_iteration(self, metrics, model, *, central_iteration):
        found = model.evaluate(self.test)
        self.values.append(found["accuracy"].overall_value)
        return False, found


def parts(labels, seed):
    random = np.random.default_rng(seed)
    mine = [[] for _ in range(CLIENTS)]
    for label in range(10):
        found = random.permutation(np.flatnonzero(labels == label))
        shares = random.dirichlet([0.5] * CLIENTS).cumsum()[:-1]
        for client, some in enumerate(np.split(found, (shares * len(found)).astype(int))):
            mine[client].extend(random.permutation(some))
    return mine


def run(algorithm, optimizer, rate, seed):
    torch.set_num_threads(1)
    np.random.seed(seed)
    torch.manual_seed(seed)
    x, x_test, y, y_test = data()
    users = [Dataset((x[mine], y[mine])) for mine in parts(y, seed)]
    sampler = MinimizeReuseUserSampler(range(CLIENTS))
    clients = FederatedDataset(users.__getitem__, sampler)
    backend = SimulatedBackend(clients, clients, [WeightByDatapoints()])
    network = Network()
    model = PyTorchModel(network, SGD, optimizer(network.parameters(), lr=rate))
    common = (ROUNDS, ROUNDS + 1, CLIENTS, 0)  # no evaluation by clients
    params = FedProxParams(*common, 0.01) if algorithm is FedProx else NNAlgorithmParams(*common)
    train = NNTrainHyperParams(local_batch_size=16, local_num_epochs=2, local_learning_rate=0.1)
    curve = Curve(Dataset((x_test, y_test)))
    algorithm().run(params, backend, model, train, NNEvalHyperParams(None), [curve])
    return curve.values


for name, options in STRATEGIES.items():
    curves = np.array([run(*options, seed) for seed in SEEDS])
    half = t.ppf(0.975, len(SEEDS) - 1) * sem(curves[:, -1])
    print(f"{name:8} {curves[:, -1].mean():.3f} ± {half:.3f}")
    plt.plot(curves.mean(0), label=name)
plt.legend()
plt.savefig("accuracy.png")
