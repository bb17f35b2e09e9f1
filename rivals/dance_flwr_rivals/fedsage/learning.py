"""Training of NeighGen: first all of it on the client's own hidden nodes, then fGen with peers."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dance_flwr.methods.server_side import entries_under
from dance_flwr.nn.model import PlainModel
from dance_flwr_rivals.fedsage import FedSageConfig
from dance_flwr_rivals.fedsage.graphs import (
    ImpairedGraph,
    feature_loss,
    links_of,
    nearest_distances,
    select_generated,
)
from dance_flwr_rivals.fedsage.networks import (
    DegreeGenerator,
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
        self.degree_generator = DegreeGenerator(config.latent_dim)
        self.feature_generator = FeatureGenerator(text_dim, config, classifier.dropout)
        self.classifier = classifier


def train_locally(model: NeighGen, sample: ImpairedSample, config: FedSageConfig) -> None:
    """Minimise a L_d + b L_f + c L_c with L_d = mean_v SmoothL1(m'_v, m_v), in place.

    For L_f and L_c see `generator_loss`. Counts are rounded before nodes are generated, so that
    L_d alone trains dGen.
    """
    optimizer = _adam(model, config)
    # The encoder reads the impaired graph: what it lacks is what NeighGen learns.
    features, operator = sample.features[sample.graph.nodes], sample.graph.operator("gcn")
    model.train()
    for _ in range(config.steps):
        optimizer.zero_grad()
        latents = model.encoder(features, operator)
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
    operator = augmented_operator(kind, graph.rows, graph.cols, links, sizes)
    features = torch.cat([sample.features[graph.nodes], added])
    # Generated nodes have no label: the loss covers the real ones.
    logits = classifier.graph_logits(classifier.backbone(features, operator))[:nodes]
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
