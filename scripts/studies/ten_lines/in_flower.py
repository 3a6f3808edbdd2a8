"""The experiment of docs/how-to/from-python.md in Flower's simulation, in rounds.

Needs flwr[simulation], matplotlib, scikit-learn, scipy and torch.
See docs/explanation/alternatives.md.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedProx
from flwr.simulation import run_simulation
from scipy.stats import sem, t
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn import Flatten, Linear, ReLU, Sequential
from torch.nn.functional import cross_entropy

CLIENTS, ROUNDS, SEEDS = 10, 20, (1, 2, 3)
STRATEGIES = {"fedavg": (FedAvg, {}), "fedprox": (FedProx, {"proximal_mu": 0.01})}
STRATEGIES["fedadam"] = (FedAdam, {"eta": 0.01, "tau": 0.001})


def network():
    return Sequential(Flatten(), Linear(64, 64), ReLU(), Linear(64, 10))


def data():
    x, y = load_digits(return_X_y=True)
    x = ((x - 4.884) / 6.017).astype("float32")
    return map(torch.from_numpy, train_test_split(x, y, test_size=0.2, stratify=y, random_state=0))


def part(labels, client, seed):
    random = np.random.default_rng(seed)
    mine = []
    for label in range(10):
        found = random.permutation(np.flatnonzero(labels == label))
        shares = random.dirichlet([0.5] * CLIENTS).cumsum()[:-1]
        mine.extend(np.split(found, (shares * len(found)).astype(int))[client])
    return torch.tensor(mine)


def client_app(seed):
    app = ClientApp()

    @app.train()
    def train(message, context):
        torch.set_num_threads(1)
        x, _, y, _ = data()
        mine = part(y.numpy(), context.node_config["partition-id"], seed)
        model = network()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        start = [each.detach().clone() for each in model.parameters()]
        mu = message.content["config"].get("proximal-mu", 0.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            for batch in mine[torch.randperm(len(mine))].split(16):
                optimizer.zero_grad()
                loss = cross_entropy(model(x[batch]), y[batch])
                for now, then in zip(model.parameters(), start) if mu else ():
                    loss = loss + mu / 2 * (now - then).square().sum()
                loss.backward()
                optimizer.step()
        arrays = ArrayRecord(model.state_dict())
        metrics = MetricRecord({"num-examples": len(mine)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


def run(strategy, options, seed):
    app, curve = ServerApp(), []
    _, x, _, y = data()

    def evaluate(_, arrays):
        model = network()
        model.load_state_dict(arrays.to_torch_state_dict())
        curve.append(float((model(x).argmax(1) == y).float().mean()))

    @app.main()
    def main(grid, context):
        torch.manual_seed(seed)
        everyone = {"fraction_evaluate": 0.0, "min_available_nodes": CLIENTS}
        first = ArrayRecord(network().state_dict())
        strategy(**everyone, **options).start(grid, first, ROUNDS, evaluate_fn=evaluate)

    run_simulation(app, client_app(seed), CLIENTS)
    return curve


for name, (strategy, options) in STRATEGIES.items():
    curves = np.array([run(strategy, options, seed) for seed in SEEDS])
    half = t.ppf(0.975, len(SEEDS) - 1) * sem(curves[:, -1])
    print(f"{name:8} {curves[:, -1].mean():.3f} ± {half:.3f}")
    plt.plot(curves.mean(0), label=name)
plt.legend()
plt.savefig("accuracy.png")
