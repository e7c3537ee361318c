"""The ClientApp: it trains as before, and hands over which parameters matter."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn
from torch.nn.functional import cross_entropy

from modelkin.integrations.flower import SupportMod, hand_over
from modelkin.torch import fisher_importance
from turned_digits.task import accuracy, load, network, train


def part_of(context: Context) -> int:
    """Which part of the data this node has."""
    return int(context.node_config["partition-id"])


def name_of(context: Context) -> str:
    """What clusters, the service and its explorer call this node."""
    return f"clinic-{part_of(context):02}"


def tags_of(context: Context) -> list[str]:
    """Anything else that helps to find it there."""
    return ["north" if part_of(context) < 6 else "south"]


app = ClientApp(mods=[SupportMod(name=name_of, tags=tags_of)])


@app.train()
def train_here(message: Message, context: Context) -> Message:
    """Train the model that the server sent, on this clinic's images."""
    model, (samples, _) = received(message), load(part_of(context))
    hand_over(fisher_importance(model, cross_entropy, [samples]))  # before any training
    loss = train(model, samples, epochs=int(context.run_config["local-epochs"]))
    records = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"loss": loss, "num-examples": len(samples[1])}),
    }
    return Message(RecordDict(records), reply_to=message)


@app.evaluate()
def evaluate_here(message: Message, context: Context) -> Message:
    """Test the model that the server sent, on images that no clinic trained on."""
    _, samples = load(part_of(context))
    metrics = {"accuracy": accuracy(received(message), samples), "num-examples": len(samples[1])}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


def received(message: Message) -> nn.Module:
    """The network with the weights of a message."""
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return model
