"""The clients: a NumPyClient that trains a softmax regression."""

import numpy as np
from flwr.app import Context
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits

digits = load_digits()


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


class DigitsClient(NumPyClient):
    """Gradient descent on every sample of the partition at once."""

    def __init__(self, partition_id, num_partitions, epochs, learning_rate):
        mine = np.arange(len(digits.target)) % num_partitions == partition_id
        self.pixels, self.labels = digits.data[mine] / 16, digits.target[mine]
        self.train, self.test = np.arange(mine.sum()) % 5 > 0, np.arange(mine.sum()) % 5 == 0
        self.epochs, self.learning_rate = epochs, learning_rate

    def fit(self, parameters, config):
        weights, bias = (array.copy() for array in parameters)
        pixels, labels = self.pixels[self.train], self.labels[self.train]
        for _ in range(self.epochs):
            error = softmax(pixels @ weights + bias) - np.eye(10)[labels]
            weights -= self.learning_rate * (pixels.T @ error / len(labels))
            bias -= self.learning_rate * error.mean(axis=0)
        return [weights, bias], len(labels), {}

    def evaluate(self, parameters, config):
        weights, bias = parameters
        pixels, labels = self.pixels[self.test], self.labels[self.test]
        chances = softmax(pixels @ weights + bias)
        loss = -np.log(chances[np.arange(len(labels)), labels]).mean()
        right = (chances.argmax(axis=1) == labels).mean()
        return float(loss), len(labels), {"accuracy": float(right)}


def client_fn(context: Context):
    node, config = context.node_config, context.run_config
    return DigitsClient(
        node["partition-id"],
        node["num-partitions"],
        config["local-epochs"],
        config["learning-rate"],
    ).to_client()


app = ClientApp(client_fn=client_fn)
