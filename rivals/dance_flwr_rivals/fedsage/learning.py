"""Training of NeighGen: first all of it on the client's own hidden nodes, then fGen with peers.

Its graphs are impaired, with some nodes hidden, or augmented with generated nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dance_flwr.methods.server_side import entries_under
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.propagation import operator
from dance_flwr_rivals.fedsage import FedSageConfig
from dance_flwr_rivals.fedsage.networks import (
    Encoder,
    FeatureGenerator,
    add_noise,
    load_feature_generator,
    round_counts,
)
from dance_flwr_rivals.refined_graph import augmented_operator

State = dict[str, Tensor]
FEATURE_GENERATOR = "feature-generator/"  # prefix of fGen's parameters in a state
_FIRST, _SECOND, _STEP = "first/", "second/", "step"  # Adam's moments and number of steps


def nearest_distances(
    generated: Tensor, counts: Tensor, targets: Tensor, features: Tensor
) -> Tensor:
    """s_v = sum_{p < c_v} min_{u in T_v} ||x'_vp - x_u||^2, 0 where T_v is empty; -> [b].

    Parameters
    ----------
    generated : x', [b, P, F]
    counts : c, [b] int64
    targets : T, [b, D] int64 rows of `features`, padded with -1
    features : [n, F]
    """
    known = targets >= 0
    # Padded targets are infinitely far, so that the nearest is a real one.
    gap = generated.unsqueeze(2) - features[targets.clamp(min=0)].unsqueeze(1)
    square = gap.square().sum(dim=3).masked_fill(~known.unsqueeze(1), torch.inf)
    # Rows without a target would have an infinite minimum: 0 instead.
    used = within_counts(generated, counts)
    return torch.where(used & known.any(dim=1, keepdim=True), square.amin(dim=2), 0).sum(dim=1)


def feature_loss(generated: Tensor, counts: Tensor, targets: Tensor, features: Tensor) -> Tensor:
    """L_f = mean_v s_v / m_v over b nodes, m_v = |T_v|; 0 where no node lost a neighbour.

    Parameters as in `nearest_distances`, which returns s.
    """
    # At least 1: on clients of many small components most nodes have lost no neighbour.
    lost = (targets >= 0).sum(dim=1).clamp(min=1)
    distances = nearest_distances(generated, counts, targets, features)
    return (distances / lost).sum() / max(len(counts), 1)


def within_counts(generated: Tensor, counts: Tensor) -> Tensor:
    """Return the mask of the first c_v generated neighbours; [b, P, F], [b] -> [b, P] bool."""
    return torch.arange(generated.size(1), device=generated.device) < counts.unsqueeze(1)


@dataclass(frozen=True)
class ImpairedGraph:
    """A graph without its hidden nodes: m renumbered nodes, and the neighbours that each one lost.

    Attributes
    ----------
    nodes : [m] int64, their numbers in the complete graph
    rows, cols : [E] int64, edges in both directions, numbered 0..m-1
    lost : [m, P] int64, hidden neighbours by their number in the complete graph, padded with -1
    """

    nodes: Tensor
    rows: Tensor
    cols: Tensor
    lost: Tensor

    @property
    def missing(self) -> Tensor:
        """m_v, the number of hidden neighbours, at most P; [m] float32."""
        return (self.lost >= 0).sum(dim=1).float()

    def operator(self, kind: str) -> Tensor:
        """Return the propagation operator of the impaired graph, [m, m] sparse."""
        weights = torch.ones_like(self.rows, dtype=torch.float32)
        return operator(kind, self.rows, self.cols, weights, len(self.nodes))


def draw_hidden_nodes(candidates: Tensor, share: float) -> Tensor:
    """Return floor(share * |candidates|) random candidates as a mask; [n] bool -> [n] bool.

    Pass validation nodes only: test nodes must not become targets. Labels of hidden nodes are
    never read.
    """
    nodes = torch.nonzero(candidates).flatten()
    order = torch.randperm(len(nodes)).to(candidates.device)
    hidden = torch.zeros_like(candidates)
    hidden[nodes[order[: int(share * len(nodes))]]] = True
    return hidden


def impair(
    rows: Tensor, cols: Tensor, visible: Tensor, hidden: Tensor, limit: int
) -> ImpairedGraph:
    """Remove the hidden nodes and their edges.

    Parameters
    ----------
    rows, cols : [E] int64, edges in both directions, ordered by row
    visible : [n] bool, nodes that training may see
    hidden : [n] bool, a subset of them
    limit : P
    """
    remaining = visible & ~hidden
    nodes = torch.nonzero(remaining).flatten()
    # Remaining nodes are renumbered from 0 in their order.
    position = torch.cumsum(remaining, 0) - 1
    inside = remaining[rows] & remaining[cols]
    lost = neighbour_table(rows, cols, hidden, limit)[nodes]
    return ImpairedGraph(nodes, position[rows[inside]], position[cols[inside]], lost)


def neighbour_table(rows: Tensor, cols: Tensor, eligible: Tensor, limit: int) -> Tensor:
    """Return the first `limit` eligible neighbours of each node, padded with -1; [n, limit] int64.

    Neighbours are in ascending order.

    Parameters
    ----------
    rows, cols : [E] int64, ordered by row
    eligible : [n] bool
    """
    selected = eligible[cols]
    rows, cols = rows[selected], cols[selected]
    count = torch.bincount(rows, minlength=len(eligible))
    rank = torch.arange(len(rows), device=rows.device) - (torch.cumsum(count, 0) - count)[rows]
    table = torch.full((len(eligible), limit), -1, device=rows.device)
    # At most P targets, as at most P neighbours are generated.
    near = rank < limit
    table[rows[near], rank[near]] = cols[near]
    return table


def select_generated(nodes: Tensor, generated: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first c_v generated neighbours of each node: their nodes [g], features [g, F].

    Parameters
    ----------
    nodes : [b] int64; generated : [b, P, F]; counts : c, [b] int64
    """
    used = within_counts(generated, counts)
    return nodes.repeat_interleave(counts), generated[used]


def links_of(owners: Tensor) -> Tensor:
    """Return the link of each generated node to its owner; [g] -> [2, g] int64."""
    return torch.stack([torch.arange(len(owners), device=owners.device), owners])


@dataclass(frozen=True)
class ImpairedSample:
    """The training data of NeighGen.

    Attributes
    ----------
    graph : the impaired graph of m nodes
    features : [n, F], of all nodes
    labels : [m] int64 training labels, -1 elsewhere
    """

    graph: ImpairedGraph
    features: Tensor
    labels: Tensor


class NeighGen(nn.Module):
    """Encoder, dGen and fGen, and the classifier whose loss on augmented graphs trains them too."""

    def __init__(self, text_dim: int, config: FedSageConfig, classifier: PlainModel) -> None:
        super().__init__()
        self.encoder = Encoder(text_dim, config.latent_dim)
        # m = relu(w^T z + b), the number of neighbours that each node misses; [n, latent] -> [n].
        line = nn.Linear(config.latent_dim, 1)
        self.degree_generator = nn.Sequential(line, nn.ReLU(), nn.Flatten(0))
        self.feature_generator = FeatureGenerator(text_dim, config, classifier.dropout)
        self.classifier = classifier


def train_locally(model: NeighGen, sample: ImpairedSample, config: FedSageConfig) -> None:
    """Minimise a L_d + b L_f + c L_c with L_d = mean_v SmoothL1(m'_v, m_v), in place.

    For L_f and L_c see `generator_loss`. Counts are rounded before nodes are generated, so that
    L_d alone trains dGen.
    """
    optimizer = _adam(model, config)
    # The encoder reads the impaired graph: what it lacks is what NeighGen learns.
    features, step = sample.features[sample.graph.nodes], sample.graph.operator("gcn")
    model.train()
    for _ in range(config.steps):
        optimizer.zero_grad()
        latents = model.encoder(features, step)
        # Step 1: dGen counts, fGen makes as many neighbours, the classifier reads the augmented
        # graph.
        missing = model.degree_generator(latents)
        counts = round_counts(missing, config.max_generated_per_node)
        loss = generator_loss(
            model.feature_generator, model.classifier, sample, latents, counts, config
        )
        # Step 2: L_d; an empty mean would be NaN.
        if len(missing):
            loss = loss + config.count_weight * F.smooth_l1_loss(missing, sample.graph.missing)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()


def draw_nodes(counts: Tensor, batch: int) -> Tensor:
    """Return at most `batch` random nodes with a count above 0; [m] int64 -> [b] int64."""
    nodes = torch.nonzero(counts).flatten()
    return nodes[torch.randperm(len(nodes)).to(nodes.device)[:batch]]


def generator_loss(
    feature_generator: FeatureGenerator,
    classifier: PlainModel,
    sample: ImpairedSample,
    latents: Tensor,
    counts: Tensor,
    config: FedSageConfig,
) -> Tensor:
    """Return b L_f + c L_c, estimated on a random batch of the nodes that get neighbours.

    L_f = mean_v (1/m_v) sum_{p < c_v} min_u ||x'_vp - x_u||^2 over all m nodes. L_c is the
    classifier's cross-entropy of the training nodes on the impaired graph, augmented at the batch.

    Parameters
    ----------
    latents : z, [m, latent]; counts : c, [m] int64
    """
    # A sample of the nodes that get neighbours; L_f is scaled to the mean over all nodes.
    batch = draw_nodes(counts, config.batch)
    generated = feature_generator(add_noise(latents[batch]))
    share = int((counts > 0).sum()) / max(len(counts), 1)
    graph, known = sample.graph, sample.labels >= 0
    near = feature_loss(generated, counts[batch], graph.lost[batch], sample.features)
    owners, added = select_generated(batch, generated, counts[batch])
    loss = config.feature_weight * share * near
    # A client without a training label has no L_c.
    if not config.class_weight or not bool(known.any()):
        return loss
    nodes, kind = len(graph.nodes), classifier.backbone.operator
    sizes, links = (nodes, len(owners)), links_of(owners)
    step = augmented_operator(kind, graph.rows, graph.cols, links, sizes)
    features = torch.cat([sample.features[graph.nodes], added])
    # Generated nodes have no label: the loss covers the real ones.
    logits = classifier.graph_logits(classifier.backbone(features, step))[:nodes]
    return loss + config.class_weight * F.cross_entropy(logits[known], sample.labels[known])


def step_with_peers(
    state: State,
    classifier: PlainModel,
    sample: ImpairedSample,
    peer_gradients: Mapping[str, Tensor],
    config: FedSageConfig,
) -> State:
    """Take one Adam step of fGen by the gradient of `generator_loss` plus those of other clients.

    Parameters
    ----------
    state : "latents" [m, latent] and "counts" [m] of the nodes, which no longer change, fGen's
        parameters, and Adam's moments (none before the first step), as returned; all but the first
        two are overwritten
    classifier : frozen here, as the encoder and dGen are
    peer_gradients : parameter name -> sum of the other clients' gradients; empty without any

    Returns
    -------
    the state after the step
    """
    weights = entries_under(state, FEATURE_GENERATOR)
    feature_generator = load_feature_generator(
        weights, sample.features.size(1), config, classifier.dropout
    )
    optimizer = _adam(feature_generator, config)
    for name, parameter in feature_generator.named_parameters():
        # Adam goes on where the last exchange stopped; clients keep no optimiser in memory.
        if _FIRST + name in state:
            optimizer.state[parameter] = {
                "step": state[_STEP].clone(),  # each parameter counts its own steps
                "exp_avg": state[_FIRST + name],
                "exp_avg_sq": state[_SECOND + name],
            }
    # Only fGen is trained in this phase.
    classifier.requires_grad_(False).eval()
    loss = generator_loss(
        feature_generator, classifier, sample, state["latents"], state["counts"], config
    )
    loss.backward()  # type: ignore[no-untyped-call]
    for name, parameter in feature_generator.named_parameters():
        # The paper's cross loss: gradients add up, so that no client needs another one's features.
        if name in peer_gradients and parameter.grad is not None:
            parameter.grad.add_(peer_gradients[name])
    optimizer.step()
    after = dict(state)
    for name, parameter in feature_generator.named_parameters():
        moments = optimizer.state[parameter]
        after |= {
            _FIRST + name: moments["exp_avg"],
            _SECOND + name: moments["exp_avg_sq"],
            _STEP: moments["step"],
        }
        after[FEATURE_GENERATOR + name] = parameter.detach()
    return after


def _adam(model: nn.Module, config: FedSageConfig) -> torch.optim.Adam:
    return torch.optim.Adam(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )


def cross_gradient(
    feature_generator: FeatureGenerator,
    latents: Tensor,
    counts: Tensor,
    table: Tensor,
    features: Tensor,
    clients: int,
) -> State:
    """Return d L / d theta of another client's fGen, by parameter name.

    L = (1 / M) mean_v sum_{p < c_v} min_{u in T_v} ||x'_vp - x_u||^2 over the b nodes of the batch;
    T_v are the neighbours of a random local node. The gradient is zero where the batch is empty or
    no local node has a neighbour.

    Parameters
    ----------
    feature_generator : the other client's fGen
    latents : its z + noise, [b, latent]
    counts : its c, [b] int64
    table : [n, D] int64, neighbours of the local nodes without test nodes, padded with -1
    features : [n, F] of the local nodes
    clients : M
    """
    nodes = torch.nonzero(table[:, 0] >= 0).flatten() if table.size(1) else table.new_empty(0)
    parameters = dict(feature_generator.named_parameters())
    if not len(nodes) or not len(counts):
        return {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    # Targets are the neighbours of a random local node, as in the paper's code.
    targets = table[nodes[torch.randint(len(nodes), (len(counts),)).to(nodes.device)]]
    distances = nearest_distances(feature_generator(latents), counts, targets, features)
    loss = distances.sum() / (len(counts) * clients)
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    return dict(zip(parameters, gradients, strict=True))
