"""Small clients in memory, for training by methods of the plain network."""

from types import SimpleNamespace

import torch

from dance_flwr.client_data.inputs import resident_inputs
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.data.graphs.graph import TEST
from dance_flwr.nn.model import ModelShape, PlainModel
from support.builders import ragged

TEXT_DIM, CLASSES = 6, 3


def toy_site(labels, split, edges, *, client=0, inductive=False, seed=5):
    """What the methods read of a client; `labels` of all splits, `split` codes by node."""
    n = len(labels)
    labels, split = torch.tensor(labels), torch.tensor(split, dtype=torch.uint8)
    near = [
        sorted({b for a, b in edges if a == v} | {a for a, b in edges if b == v}) for v in range(n)
    ]
    whole = LocalGraph(ragged(near), torch.ones(n, dtype=torch.bool))
    training = whole
    if inductive:
        seen = [v for v in range(n) if split[v] != TEST]
        rows = [[u for u in row if u in seen] if v in seen else [] for v, row in enumerate(near)]
        training = LocalGraph(ragged(rows), split != TEST, "training")
    names = tuple(f"c{number}" for number in range(CLASSES))
    features = torch.randn(n, TEXT_DIM, generator=torch.Generator().manual_seed(seed))
    return SimpleNamespace(
        features=features,
        inputs=lambda graph, backbone: resident_inputs(backbone, features, graph),
        labels=labels,
        split=split,
        train_labels=torch.where(split == 1, labels, -1),
        graph=whole,
        training_graph=training,
        num_nodes=n,
        inductive=inductive,
        device=torch.device("cpu"),
        card=SimpleNamespace(client=client, class_names=names),
    )


def toy_model(*, seed=3, hidden=4, dropout=0.0, reads_labels=False):
    """A GCN of the toy's widths, with a map of labels that is not zero if it has one."""
    torch.manual_seed(seed)
    model = PlainModel(ModelShape(TEXT_DIM, hidden, CLASSES), "gcn", dropout, reads_labels)
    if reads_labels:
        torch.nn.init.normal_(model.label_weight)
    return model


def dense(graph):
    """The adjacency matrix of a graph, without loops."""
    rows, cols = graph.edges()
    n = graph.visible.numel()
    return torch.zeros(n, n).index_put((rows, cols), torch.ones(len(rows)))
