"""The nodes of a client that a model is scored on."""

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.graphs.codes import VAL
from dance_flwr.seeding import generator


def labelled_nodes(data: ClientData, code: int) -> Tensor:
    """Return the labelled nodes of a split, found once; [m] int64, ascending."""

    def find() -> Tensor:
        return torch.nonzero((data.split == code) & (data.labels >= 0)).flatten()

    return data.cached(f"labelled {code}", code, find)


def validated_nodes(data: ClientData, config: RunConfig) -> Tensor:
    """Return the nodes that validations of a run predict: at most `validation-nodes`, the same in
    every round; [m] int64, ascending.
    """
    nodes, limit = labelled_nodes(data, VAL), config.validation_nodes
    if not limit or nodes.numel() <= limit:
        return nodes

    def draw() -> Tensor:
        # Without a round: every round validates the same nodes, so that rounds can be compared.
        draws = generator(config.seed, "validation", client=data.card.client)
        chosen = torch.randperm(nodes.numel(), generator=draws)[:limit].sort().values
        return nodes[chosen.to(nodes.device)]

    return data.cached("validated", (config.seed, limit), draw)
