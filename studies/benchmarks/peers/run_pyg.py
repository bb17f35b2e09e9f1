"""PyG alone: a GCN on the whole graph, with the edges between clients. A round is three epochs."""

import torch
from common import DECAY, EPOCHS, RATE, ROUNDS, Clock, Gcn, load, right
from torch.nn import functional as F

data = load("all")
x, edges, y, train = data["x"], data["edge_index"], data["y"], data["train"]
model = Gcn(x.size(1), data["classes"])
optimizer = torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=DECAY)
clock = Clock()
for _ in range(ROUNDS):
    model.train()
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        F.cross_entropy(model(x, edges)[train], y[train]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        clock.counted(right(model(x, edges), data))
clock.report()
