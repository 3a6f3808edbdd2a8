"""The model, the data of each partition, training and testing."""

from functools import cache

import torch
from datasets import Dataset
from flwr_datasets.partitioner import DirichletPartitioner
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """Two linear layers with a normalisation between them."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(64, 32)
        self.norm = nn.BatchNorm1d(32)
        self.out = nn.Linear(32, 10)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.hidden(x))))


@cache
def partitioner(num_partitions):
    """The digits, divided unevenly by label."""
    digits = load_digits()
    data = Dataset.from_dict({"pixels": digits.data / 16, "label": digits.target})
    divided = DirichletPartitioner(num_partitions, partition_by="label", alpha=1.0, seed=7)
    divided.dataset = data
    return divided


@cache
def load_tensors(partition_id, num_partitions):
    """Four fifths of a partition to train, the rest to test."""
    part = partitioner(num_partitions).load_partition(partition_id).with_format("torch")
    split = part.train_test_split(test_size=0.2, seed=42)
    halves = split["train"][:], split["test"][:]
    return [TensorDataset(half["pixels"].float(), half["label"]) for half in halves]


def load_data(partition_id, num_partitions, batch_size):
    """The batches of a partition, in the same order each time."""
    train, test = load_tensors(partition_id, num_partitions)
    order = torch.Generator().manual_seed(partition_id)
    return (
        DataLoader(train, batch_size, shuffle=True, generator=order, drop_last=True),
        DataLoader(test, batch_size=batch_size),
    )


def train(net, loader, epochs, learning_rate):
    """Train with SGD; return the mean loss of the batches."""
    optimizer = torch.optim.SGD(net.parameters(), lr=learning_rate)
    net.train()
    total, batches = 0.0, 0
    for _ in range(epochs):
        for pixels, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(pixels), labels)
            loss.backward()
            optimizer.step()
            total, batches = total + loss.item(), batches + 1
    return total / batches


def test(net, loader):
    """Return the loss and the share of right answers."""
    net.eval()
    loss, right, count = 0.0, 0, 0
    with torch.no_grad():
        for pixels, labels in loader:
            outputs = net(pixels)
            loss += nn.functional.cross_entropy(outputs, labels, reduction="sum").item()
            right += (outputs.argmax(dim=1) == labels).sum().item()
            count += len(labels)
    return loss / count, right / count
