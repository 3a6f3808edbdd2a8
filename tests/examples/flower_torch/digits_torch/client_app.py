"""The clients, in Flower's message API."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_torch.task import Net, load_data
from digits_torch.task import test as test_fn
from digits_torch.task import train as train_fn

app = ClientApp()


def data_of(context: Context):
    node, config = context.node_config, context.run_config
    return load_data(node["partition-id"], node["num-partitions"], config["batch-size"])


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    trainloader, _ = data_of(context)
    train_loss = train_fn(
        model, trainloader, context.run_config["local-epochs"], msg.content["config"]["lr"]
    )
    rounds = context.state.metric_records.get("rounds", MetricRecord({"count": 0}))
    rounds["count"] += 1
    context.state["rounds"] = rounds
    metrics = {
        "train_loss": train_loss,
        "num-examples": len(trainloader.dataset),
        "my-rounds": rounds["count"],
    }
    content = RecordDict(
        {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
    )
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    _, valloader = data_of(context)
    eval_loss, eval_acc = test_fn(model, valloader)
    metrics = {
        "eval_loss": eval_loss,
        "eval_acc": eval_acc,
        "num-examples": len(valloader.dataset),
    }
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
