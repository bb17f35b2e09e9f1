"""The server side of FedTAD: distillation on generated graphs (Zhu et al., IJCAI 2024).

A generator is trained to produce pseudo-nodes on which the clients' models, each weighted on class
c by its reliability, agree on the label and disagree with the global model; the global model then
learns to agree with them. Here a pseudo-graph is built once per update, not once per client, and
the clients' logits, which do not change while the global model learns, are computed once: 2 m
passes of clients per outer step instead of 6 m. Graphs have N = 100 nodes, so that a pass costs
little more than its overhead. Clients pass one after the other through the same kernels as the
global model: equal models give equal logits, bit by bit.
"""

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dance_flwr.methods.plain_method import plain_model
from dance_flwr.methods.server_side import Merged, ServerSide, State, Upload, weighted_mean
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.propagation import operator
from dance_flwr.seeding import seeded
from dance_flwr_rivals.fedtad import FedTadConfig

_WEIGHT_DECAY = 5e-4  # of the generator; the global model has none, see `distil`


class Generator(nn.Module):
    """x_hat = W tanh(W_3 tanh(W_2 tanh(W_1 [E_c || z]))), of widths 64, 128, 256 and d."""

    def __init__(self, classes: int, text_dim: int, noise_dim: int) -> None:
        super().__init__()
        self.noise_dim = noise_dim
        self.classes = nn.Embedding(classes, classes)
        widths = (classes + noise_dim, 64, 128, 256)
        layers: list[nn.Module] = []
        for wide, narrow in pairwise(widths):
            layers += [nn.Linear(wide, narrow), nn.Tanh()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], text_dim))

    def forward(self, labels: Tensor, noise: Tensor) -> Tensor:
        """Return features of pseudo-nodes; labels [N], noise z [N, noise] -> [N, d]."""
        return self.layers(torch.cat([self.classes(labels), noise], dim=1))  # type: ignore[no-any-return]


def normalise_reliability(reliability: Tensor) -> Tensor:
    """Phi_bar_kc = max(Phi_kc, 0) / sum_j max(Phi_jc, 0), 0 / 0 = 0; [m, C] -> [m, C].

    Columns sum to 1 or 0.
    """
    # Cosines can be negative, and so can a reliability; a weight cannot.
    shares = reliability.clamp(min=0)
    # Across clients, as in the paper; OpenFGL normalises over the classes of each client.
    total = shares.sum(dim=0)
    return torch.where(total > 0, shares / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)


def pseudo_labels(nodes: int, classes: int) -> Tensor:
    """Return balanced labels, the remainder in the last class; [N] int64."""
    return (torch.arange(nodes) // max(nodes // classes, 1)).clamp(max=classes - 1)


@torch.no_grad()
def pseudo_operator(features: Tensor, neighbours: int, kind: str) -> Tensor:
    """Return the operator of the symmetrised graph of nearest neighbours by cosine.

    Parameters
    ----------
    features : [N, d], without a gradient
    neighbours : number of neighbours per node, including the node itself
    kind : kind of the operator
    """
    unit = F.normalize(features, dim=1)
    nodes = len(features)
    # A node is its own nearest neighbour, as in the public code: 5 links are 4 to others.
    nearest = (unit @ unit.T).topk(min(neighbours, nodes), dim=1).indices
    linked = torch.zeros(nodes, nodes, dtype=torch.bool).scatter_(1, nearest, True)
    linked = (linked | linked.T).fill_diagonal_(False)  # operators with self loops add them
    rows, cols = linked.nonzero(as_tuple=True)
    return operator(kind, rows, cols, torch.ones(rows.numel(), dtype=features.dtype), nodes)


def forward(model: PlainModel, features: Tensor, graph: Tensor) -> Tensor:
    """Return the logits of a model; [N, d], [N, N] -> [N, C]."""
    return model.graph_logits(model.backbone(features, graph))


def node_weights(reliability: Tensor, labels: Tensor) -> Tensor:
    """r_ki = Phi_bar_k,y_i / N_y_i, so that sum_i r_ki x_i = sum_c Phi_bar_kc mean_{i in c} x_i.

    Returns [m, N], given Phi_bar [m, C] and y [N].
    """
    sizes = torch.bincount(labels, minlength=reliability.size(1))
    return reliability[:, labels] / sizes[labels]


def divergence(ours: Tensor, theirs: Tensor, weights: Tensor) -> Tensor:
    """L_D = sum_k sum_i r_ki mean_c |f_g(i)_c - f_k(i)_c|, a scalar; KL in the paper.

    Parameters
    ----------
    ours : f_g, [N, C]
    theirs : f_k, [m, N, C]
    weights : r, [m, N]
    """
    return (weights * (ours - theirs).abs().mean(dim=2)).sum()


def generator_loss(
    ours: Tensor,
    theirs: Tensor,
    weights: Tensor,
    labels: Tensor,
    features: Tensor,
    noise: Tensor,
    config: FedTadConfig,
) -> Tensor:
    """L_G = lambda_1 sum_ki r_ki CE(f_k(i), y_i) - L_D + lambda_2 m exp(-mean_ij D_ij).

    D_ij = ||z_i - z_j||^2 / dim_z * ||x_i - x_j||_1 / d. As in the public code, L_D has no gradient
    through the clients' logits, and diversity counts once per client.

    Parameters
    ----------
    ours, theirs, weights : as in `divergence`
    labels : y, [N]
    features : x, [N, d]
    noise : z, [N, dim_z]
    """
    clients = len(theirs)
    entropy = F.cross_entropy(theirs.flatten(0, 1), labels.repeat(clients), reduction="none").view(
        clients, -1
    )
    # Noises that are far apart should give features that are far apart.
    distances = (noise[:, None] - noise).square().mean(dim=2) * (
        torch.cdist(features, features, p=1) / features.size(1)
    )
    # Once per client, as in the public code.
    diversity = clients * torch.exp(-distances.mean())
    return (
        config.label_weight * (weights * entropy).sum()
        # The generator looks for graphs on which global and local models still disagree.
        - divergence(ours, theirs.detach(), weights)
        + config.diversity_weight * diversity
    )


def distil(
    model: PlainModel,
    generator: Generator,
    clients: Sequence[Mapping[str, Tensor]],
    reliability: Tensor,
    config: FedTadConfig,
) -> list[float]:
    """Alternate updates of `generator` by L_G and of `model` by L_D, both in place.

    Returns L_D before each update of `model`. Both use the same noise within an outer step.
    Deviations from the public code: dropout is off, and the global model has no weight decay, which
    would move it by up to 1e-3 per update even where L_D is 0.

    Parameters
    ----------
    clients : m states
    reliability : Phi_bar, [m, C]
    """
    labels = pseudo_labels(config.nodes, reliability.size(1))
    weights = node_weights(reliability, labels)
    for_generator = torch.optim.Adam(
        generator.parameters(), lr=config.learning_rate, weight_decay=_WEIGHT_DECAY
    )
    # No weight decay, unlike the public code's: it would move the model even where L_D is 0.
    for_model = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    # No dropout: equal models must give equal logits.
    model.eval()
    teachers = [deepcopy(model).requires_grad_(False) for _ in clients]
    for teacher, state in zip(teachers, clients, strict=True):
        teacher.load_state_dict(state)
    losses = []
    for _ in range(config.steps):
        # The generator and then the model are updated with the same noise.
        noise = torch.randn(config.nodes, config.noise_dim)
        for _ in range(config.generator_steps):
            features = generator(labels, noise)
            graph = pseudo_operator(features, config.neighbours, model.backbone.operator)
            theirs = torch.stack([forward(teacher, features, graph) for teacher in teachers])
            ours = forward(model, features, graph)
            loss = generator_loss(ours, theirs, weights, labels, features, noise, config)
            for_generator.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for_generator.step()
        # The pseudo-graph and the clients' logits stay while the model learns, so that they are
        # computed once.
        with torch.no_grad():
            features = generator(labels, noise)
            graph = pseudo_operator(features, config.neighbours, model.backbone.operator)
            theirs = torch.stack([forward(teacher, features, graph) for teacher in teachers])
        for _ in range(config.model_steps):
            loss = divergence(forward(model, features, graph), theirs, weights)
            for_model.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for_model.step()
            losses.append(float(loss.detach()))
    return losses


class FedTadServer(ServerSide):
    """omega <- distil(sum_k n_k omega_k / sum_k n_k), `dance_flwr_rivals.fedtad.server`.

    The generator is trained on from round to round, as in the public code; both optimisers start
    with fresh moments in each round, as the clients' do.

    Attributes
    ----------
    memory : name -> array, the generator's parameters; empty before round 1
    """

    statistics = ("reliability",)

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Return the distilled model; the server's seconds are "distil"."""
        begin = time.perf_counter()
        mean = weighted_mean(uploads, start, bound)
        reliability = torch.stack([upload.statistics["reliability"] for upload in uploads])
        models = [upload.state for upload in uploads]
        state = self._distil(mean, models, reliability, round_)
        return Merged(state, seconds={"distil": time.perf_counter() - begin})

    def _distil(
        self, mean: State, models: list[State], reliability: torch.Tensor, round_: int
    ) -> State:
        settings = FedTadConfig.of(self.config)
        # Without a step this is FedAvg, bit by bit.
        if not settings.steps:
            return mean
        model = plain_model(self.shape, self.config)
        # One initial generator per run; the checkpoint has what it has learnt since.
        with seeded(self.config.seed, "generator"):
            generator = Generator(self.shape.classes, self.shape.text_dim, settings.noise_dim)
        if self.memory:
            last = {name: torch.from_numpy(array) for name, array in self.memory.items()}
            generator.load_state_dict(last)
        model.load_state_dict(mean)
        with seeded(self.config.seed, "distil", round_=round_):
            distil(model, generator, models, normalise_reliability(reliability), settings)
        state = generator.state_dict().items()
        self.memory = {name: tensor.numpy().copy() for name, tensor in state}
        return {name: tensor.detach() for name, tensor in model.state_dict().items()}
