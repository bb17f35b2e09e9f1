"""The edge predictor of LLM4FGL, its training, and the links that it predicts."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.nn.hops import contains
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr.seeding import generator
from dance_flwr_rivals.llm4fgl import Llm4FglConfig

HELD_OUT = 0.1  # share of a client's edges that its predictor never sees
_RATE, _DECAY = 0.001, 5e-4  # of Adam
_BATCH = 8192  # edges per step at most
CANDIDATES = 32  # nearest nodes of a generated one whose link is predicted
_ENTRIES = 2**22  # cosines in memory at a time
_ROWS = 1024  # generated nodes whose links are predicted at a time


class EdgePredictor(nn.Module):
    """p(u, v) = sigmoid(a^T relu(B [d x_u * x_v || sqrt(d) |x_u - x_v|] + b) + c).

    x are texts of norm 1, * is by element; p(u, v) = p(v, u). Both inputs have entries of order 1.

    Parameters
    ----------
    text_dim : d; hidden : rows of B
    """

    def __init__(self, text_dim: int, hidden: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2 * text_dim, hidden), nn.Linear(hidden, 1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the logits of pairs; [m, d], [m, d] of norm 1 -> [m]."""
        width = left.size(-1)
        pairs = [width * (left * right), width**0.5 * (left - right).abs()]
        hidden = self.first(torch.cat(pairs, dim=-1)).relu()
        return self.last(hidden).squeeze(-1)  # type: ignore[no-any-return]


class GeneratingModel(PlainModel):
    """The plain model, the edge predictor, and the feedback of a reflection.

    The plain part starts as that of FedAvg: its weights are drawn first.

    Attributes
    ----------
    feedback : [2, C]; rows: the sum of confidences and the number of generated nodes, per predicted
        class and node of the client. No gradient reaches it: a client writes it in a feedback
        round and returns it as it came in all others, so the model carries the mean to everyone
    """

    def __init__(
        self, shape: ModelShape, backbone: str, dropout: float, reads_labels: bool, hidden: int
    ) -> None:
        # The plain part first: its initial weights are those of FedAvg.
        super().__init__(shape, backbone, dropout, reads_labels)
        self.predictor = EdgePredictor(shape.text_dim, hidden)
        # An entry of the model, so that masks and noise cover it like every other.
        self.feedback = nn.Parameter(torch.zeros(2, shape.classes))


class LocalPairs:
    """The edges of a client: those that the predictor is trained on, those held out, and non-edges.

    Parameters
    ----------
    graph : for training
    seed : of the run; client : its number

    Attributes
    ----------
    trained, held_out : [2, e] int64, undirected edges, each once
    """

    def __init__(self, graph: LocalGraph, seed: int, client: int) -> None:
        rows, cols = graph.edges()
        once = torch.stack([rows, cols])[:, rows < cols]
        # One split for the whole run: what is held out in a round is held out in all.
        draw = generator(seed, "held-out-edges", client=client)
        order = torch.randperm(once.size(1), generator=draw).to(rows.device)
        held = int(HELD_OUT * once.size(1))
        self.held_out, self.trained = once[:, order[:held]], once[:, order[held:]]
        self._nodes, self._rows = torch.nonzero(graph.visible).flatten(), graph.rows

    def non_edges(self, count: int, draw: torch.Generator) -> Tensor:
        """Return at most `count` random pairs of distinct nodes without an edge; [2, <= count].

        Twice as many are drawn, so that only a graph near to complete has fewer.
        """
        if not len(self._nodes):
            return self.trained[:, :0]
        # Twice as many, as those that hit an edge are left out.
        places = torch.randint(len(self._nodes), (2, 2 * count + 8), generator=draw)
        pairs = self._nodes[places.to(self._nodes.device)]
        fresh = (pairs[0] != pairs[1]) & ~contains(self._rows, pairs[0], pairs[1])
        return pairs[:, fresh][:, :count]


def train_predictor(
    predictor: EdgePredictor, texts: Tensor, pairs: LocalPairs, steps: int, draw: torch.Generator
) -> None:
    """Minimise BCE over local edges and as many random non-edges, in place.

    Each step draws its non-edges, and at most 8192 edges. A client without edges trains nothing.
    No number of torch's global generator is used.

    Parameters
    ----------
    texts : [n, d] of norm 1
    """
    if not pairs.trained.size(1):
        return
    # Fresh moments in every round, as for the model itself.
    optimizer = torch.optim.Adam(predictor.parameters(), lr=_RATE, weight_decay=_DECAY)
    for _ in range(steps):
        order = torch.randperm(pairs.trained.size(1), generator=draw)[:_BATCH]
        edges = pairs.trained[:, order.to(texts.device)]
        others = pairs.non_edges(edges.size(1), draw)
        ends = torch.cat([edges, others], dim=1)
        # As many non-edges as edges: the threshold is a probability under balanced classes.
        target = torch.zeros(ends.size(1), device=texts.device)
        target[: edges.size(1)] = 1
        optimizer.zero_grad()
        logits = predictor(texts[ends[0]], texts[ends[1]])
        F.binary_cross_entropy_with_logits(logits, target).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    optimizer.zero_grad()


def nearest(queries: Tensor, texts: Tensor, allowed: Tensor, limit: int) -> Tensor:
    """Return the allowed texts of largest cosine, nearest first; [q, min(limit, allowed)] int64.

    Parameters
    ----------
    queries : [q, d]; texts : [n, d], all of norm 1; allowed : [n] bool
    """
    nodes = torch.nonzero(allowed).flatten()
    width = min(limit, len(nodes))
    if not len(queries) or not width:
        return nodes.new_zeros(len(queries), width)
    blocks = torch.split(queries, max(1, _ENTRIES // len(nodes)))
    among = texts[nodes]
    return torch.cat([nodes[(block @ among.T).topk(width, dim=1).indices] for block in blocks])


@torch.no_grad()
def link(
    predictor: EdgePredictor,
    generated: Tensor,
    texts: Tensor,
    allowed: Tensor,
    settings: Llm4FglConfig,
) -> Tensor:
    """Return the pairs (generated node, raw node) with p > `llm4fgl.threshold`; [2, l] int64.

    Each generated node is linked to at most `llm4fgl.links` nodes, those of largest p among its 32
    nearest. A generated node whose text no node resembles has no link.

    Parameters
    ----------
    generated : [g, d]; texts : [n, d], all of norm 1
    allowed : [n] bool, nodes that may be linked
    """
    # The nearest 32 nodes, as the predictor on all pairs would be quadratic.
    near = nearest(generated, texts, allowed, CANDIDATES)
    owner = torch.arange(len(generated), device=near.device)[:, None].expand_as(near)
    blocks = zip(torch.split(owner, _ROWS), torch.split(near, _ROWS), strict=True)
    logits = torch.cat([predictor(generated[left], texts[other]) for left, other in blocks])
    best = torch.sort(torch.sigmoid(logits), dim=1, descending=True, stable=True)
    chosen = best.values[:, : settings.links] > settings.threshold
    nodes = near.gather(1, best.indices)[:, : settings.links]
    return torch.stack([owner[:, : settings.links][chosen], nodes[chosen]])
