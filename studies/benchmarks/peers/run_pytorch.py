"""The network of fedavg-full in bare PyTorch: FedAvg in a loop, without a framework around it.

What does not depend on parameters, P LN(x), is computed once, as dance-flwr does.
"""

import torch
from common import CLIENTS, DECAY, DROPOUT, EPOCHS, RATE, ROUNDS, WIDTH, Clock, load, right
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn.conv.gcn_conv import gcn_norm


class Net(nn.Module):
    """Two graph convolutions and a linear head."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, spread: Tensor, operator: Tensor) -> Tensor:
        """Return logits from P LN(x); [n, d], [n, n] -> [n, C]."""
        hidden = F.relu(self.first(F.dropout(spread, DROPOUT, self.training)))
        hidden = F.linear(F.dropout(hidden, DROPOUT, self.training), self.second.weight)
        return self.head(operator @ hidden + self.second.bias)  # type: ignore[no-any-return]


clients = [load(number) for number in range(CLIENTS)]
for data in clients:
    nodes = len(data["y"])
    edges, weights = gcn_norm(data["edge_index"], num_nodes=nodes)
    data["operator"] = torch.sparse_coo_tensor(edges, weights, (nodes, nodes)).to_sparse_csr()
    data["spread"] = data["operator"] @ F.layer_norm(data["x"], data["x"].shape[-1:])
model = Net(clients[0]["x"].size(1), clients[0]["classes"])
parameters, whole = list(model.parameters()), sum(len(data["y"]) for data in clients)
clock = Clock()
for _ in range(ROUNDS):
    start = [parameter.detach().clone() for parameter in parameters]
    mean = [torch.zeros_like(tensor) for tensor in start]
    for data in clients:
        with torch.no_grad():
            torch._foreach_copy_(parameters, start)
        optimizer = torch.optim.Adam(parameters, lr=RATE, weight_decay=DECAY, fused=True)
        model.train()
        for _ in range(EPOCHS):
            optimizer.zero_grad()
            logits = model(data["spread"], data["operator"])[data["train"]]
            F.cross_entropy(logits, data["y"][data["train"]]).backward()
            optimizer.step()
        with torch.no_grad():
            torch._foreach_add_(mean, parameters, alpha=len(data["y"]) / whole)
    model.eval()
    with torch.no_grad():
        torch._foreach_copy_(parameters, mean)
        clock.counted(sum(right(model(d["spread"], d["operator"]), d) for d in clients))
clock.report()
