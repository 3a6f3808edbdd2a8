"""The clients, in Flower's message API."""

from __future__ import annotations

import time

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import load_part
from digits_app.task import test as test_fn
from digits_app.task import train as train_fn

app = ClientApp()


def part_of(context: Context) -> tuple[np.ndarray, np.ndarray]:
    node = context.node_config
    return load_part(node["partition-id"], node["num-partitions"], context.run_config["seed"])


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train for one epoch; say how long that took, too."""
    began_s, config = time.monotonic(), context.run_config
    images, labels = part_of(context)
    weights, loss = train_fn(
        msg.content["arrays"].to_numpy_ndarrays(),
        images,
        labels,
        config["batch-size"],
        config["learning-rate"],
    )
    metrics = {
        "train_loss": loss,
        "train_s": time.monotonic() - began_s,
        "num-examples": len(labels),
    }
    content = RecordDict({"arrays": ArrayRecord(weights), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Measure the model on the images of this client."""
    images, labels = part_of(context)
    loss, accuracy = test_fn(msg.content["arrays"].to_numpy_ndarrays(), images, labels)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(labels)}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
