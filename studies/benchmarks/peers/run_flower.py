"""FedAvg of a PyG GCN as in Flower's quickstart for PyTorch, under Flower's simulation (Ray)."""

from typing import Any

import torch
from common import CLIENTS, DECAY, EPOCHS, RATE, ROUNDS, Clock, Gcn, load, right
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch.nn import functional as F

client, server = ClientApp(), ServerApp()


def received(message: Message, context: Context) -> tuple[dict[str, Any], Gcn]:
    """Return the data of a client and the model that it was sent."""
    data = load(int(context.node_config["partition-id"]))
    model = Gcn(data["x"].size(1), data["classes"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return data, model


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train the local epochs."""
    data, model = received(message, context)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=DECAY)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        logits = model(data["x"], data["edge_index"])[data["train"]]
        F.cross_entropy(logits, data["y"][data["train"]]).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": len(data["y"])})
    records = {"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}
    return Message(RecordDict(records), reply_to=message)


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Count right predictions."""
    data, model = received(message, context)
    with torch.no_grad():
        counts = right(model.eval()(data["x"], data["edge_index"]), data)
    metrics = MetricRecord({"counts": counts.flatten().tolist(), "num-examples": len(data["y"])})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


class Timed(FedAvg):
    """FedAvg that notes the end of each round."""

    clock: Clock

    def aggregate_evaluate(self, server_round: int, replies: Any) -> MetricRecord:
        """Add the counts of the clients up."""
        counts = [reply.content["metrics"]["counts"] for reply in replies]
        self.clock.counted(torch.tensor(counts).sum(0).view(2, 2))
        return MetricRecord()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run FedAvg on all clients."""
    nodes = {"min_train_nodes": CLIENTS, "min_evaluate_nodes": CLIENTS}
    strategy = Timed(min_available_nodes=CLIENTS, **nodes)
    data, strategy.clock = load(0), Clock()
    model = Gcn(data["x"].size(1), data["classes"])
    strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=ROUNDS)
    strategy.clock.report()


if __name__ == "__main__":
    from flwr.simulation import run_simulation

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0}}
    run_simulation(server, client, CLIENTS, backend_config=resources)
