"""Inference from evidence: the views of a prediction."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.dance.nodes import Prediction
from dance_flwr.dance.passes import DanceClient, Reader, embed, plain_pass, plain_pass_in_blocks
from dance_flwr.dance.plan import Arrays
from dance_flwr.dance.selection import Selection
from dance_flwr.dance.text import condense_text, condensed_text
from dance_flwr.nn.moving import HOST, moved
from dance_flwr.nn.ragged import rows_at, weighted_rows

DEPLOYED = "deployed"  # the mean of the views that `dance.views` names
_NODES_PER_BLOCK = 4096  # of one selection: about 4096 * 50 rows of h floats


@torch.no_grad()
def predict(
    reader: Reader, nodes: Int64[Tensor, "m"] | None = None
) -> dict[str, Float[Tensor, "m C"]]:
    """Return [m, C] probabilities of local nodes per view, from their evidence.

    "fused" is softmax(Dec(x_v)) of the node's own pack; "core" runs the backbone on the original
    graph with features x_v; "plain" reads texts t_u without gating. "deployed" is the mean of the
    views that `dance.views` names; the others are not computed.

    Parameters
    ----------
    nodes : None = every local node
    """
    # Alg. 3, graph forward (once): every view and the difficulty need g_v of the original graph.
    plain = plain_pass(reader)
    difficulty = trained_prediction(reader, plain).difficulty
    if nodes is None or "core" in reader.views:  # which reads the x_v of every node
        views = views_of(reader, reader.everyone, plain.hidden, difficulty)
        return views if nodes is None else {view: probs[nodes] for view, probs in views.items()}
    return views_of(reader, nodes, plain.hidden[nodes], difficulty)


@torch.no_grad()
def trained_prediction(reader: Reader, plain: Prediction) -> Prediction:
    """Return z_v, p(y | v) and u_v of every node by a view that the loss trains.

    That is the plain one, unless `plain-weight` is 0 as in the paper.

    Parameters
    ----------
    plain : the plain pass over the reader's graph
    """
    if reader.settings.plain_weight > 0:
        return plain
    # Why "core" (decision 19): without the plain term nothing trains the plain head on t_v, and it
    # stays at chance, while the same head is trained on x_v. Hop 2 is preselected by the plain
    # view's difficulty all the same, since x_v needs a selection.
    hidden = plain.hidden
    selections = condense_in_blocks(reader, reader.everyone, hidden, plain.difficulty)
    features = [
        reader.model.fuse(g, condensed_text(reader, selection)[1])
        for g, selection in zip(torch.split(hidden, _NODES_PER_BLOCK), selections, strict=True)
    ]
    operator = reader.graph.operator(reader.model.backbone.operator)
    core = reader.model.condensed_hidden(torch.cat(features), operator)
    return Prediction.of(core, torch.softmax(reader.model.graph_logits(core), dim=1))


@torch.no_grad()
def predict_nodes(
    client: DanceClient,
    nodes: Int64[Tensor, "m"],
    difficulty: Float[Tensor, "n"] | None = None,
) -> dict[str, Float[Tensor, "m C"]]:
    """Return `predict` of these distinct nodes; reads them and their surroundings alone.

    Parameters
    ----------
    difficulty : u_v of all nodes, which preselects evidence at hop 2; None = of this model, at the
        cost of a pass over the graph
    """
    if "core" in client.views:
        return predict(client, nodes)
    # Why remembered (decision 16): with a stored difficulty this is a validation, and those of a
    # run are of the same nodes.
    hidden = embed(client, nodes, again=difficulty is not None)
    # The plain view reads no evidence, so that no difficulty is needed.
    if client.views == ["plain"]:
        return views_of(client, nodes, hidden, hidden.new_empty(0))
    if difficulty is None:
        difficulty = trained_prediction(client, plain_pass_in_blocks(client)).difficulty
    return views_of(client, nodes, hidden, difficulty)


@dataclass(frozen=True)
class ValidationEvidence:
    """What is read of a selection in predictions, whatever the model.

    Attributes
    ----------
    nodes : [m] int64
    text : [m, d] mix * t~_v + (1 - mix) * c_v
    labels : [m, 2 C] label evidence
    """

    nodes: Int64[Tensor, "m"]
    text: Float[Tensor, "m d"]
    labels: Float[Tensor, "m C2"]

    @classmethod
    def of(cls, reader: Reader, selection: Selection) -> Self:
        """Read the selected texts and labels."""
        labels = neighbour_labels(selection, reader.data.label_table)
        return cls(selection.nodes, condensed_text(reader, selection)[1], labels)

    def arrays(self) -> Arrays:
        """Return the arrays that a file stores, one per field."""
        return {name: tensor.numpy() for name, tensor in moved(vars(self), HOST).items()}

    @classmethod
    def from_arrays(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild the object from its `arrays`, as tensors; a KeyError names a missing one."""
        return cls(tensors["nodes"], tensors["text"], tensors["labels"])


@torch.no_grad()
def predict_selected(
    client: DanceClient, evidence: ValidationEvidence
) -> dict[str, Float[Tensor, "m C"]]:
    """Return `predict_nodes` of nodes whose evidence was selected before.

    Views "plain" and "fused" alone: "core" reads the x_v of every node.
    """
    # Why g_v anew and the evidence not (decision 16): g_v is that of the model that is validated,
    # the evidence that of the last condensation.
    model, hidden = client.model, embed(client, evidence.nodes, again=True)
    features = model.fuse(hidden, evidence.text)
    logits = {
        "plain": model.graph_logits(hidden),
        "fused": model.fused_logits(features, evidence.labels),
    }
    return with_mean({name: logits[name] for name in client.views}, client.views)


@torch.no_grad()
def select_for_validation(
    client: DanceClient, nodes: Int64[Tensor, "m"], plain: Prediction, difficulty: Tensor
) -> ValidationEvidence | None:
    """Select the evidence of `nodes`, for `predict_selected` until the next condensation.

    None if no view can reuse it: nothing for "core", which reads x_v of every node, nor in
    inductive mode, where a validation reads another graph.

    Parameters
    ----------
    plain, difficulty : g_v and u_v of all nodes, of the model that condenses
    """
    views, graph = client.views, client.data.graph
    if client.data.inductive or "fused" not in views or "core" in views or not nodes.numel():
        return None
    # Predictions are made on the whole graph.
    whole = DanceClient(client.model, client.data, client.settings, graph)
    blocks = condense_in_blocks(whole, nodes, rows_at(plain.hidden, nodes), difficulty)
    read = [ValidationEvidence.of(whole, block) for block in blocks]
    text, labels = (
        torch.cat([getattr(part, name) for part in read]) for name in ("text", "labels")
    )
    return ValidationEvidence(nodes, text, labels)


def views_of(
    reader: Reader,
    nodes: Int64[Tensor, "m"],
    hidden: Float[Tensor, "m h"],
    difficulty: Float[Tensor, "n"],
) -> dict[str, Float[Tensor, "m C"]]:
    """Return the deployed views of `nodes` and their mean; "core" needs every node.

    Parameters
    ----------
    hidden : [m, h] g_v; difficulty : [n] u_v, which preselects evidence at hop 2
    """
    model, views, logits = reader.model, reader.views, {}
    if "plain" in views:
        logits["plain"] = model.graph_logits(hidden)
    if views != ["plain"]:
        features, fused = fused_view(reader, nodes, hidden, difficulty)
        if "fused" in views:
            logits["fused"] = fused
        if "core" in views:
            operator = reader.graph.operator(model.backbone.operator)
            logits["core"] = model.graph_logits(model.condensed_hidden(features, operator))
    return with_mean(logits, views)


def with_mean(
    logits: Mapping[str, Float[Tensor, "m C"]], views: Sequence[str]
) -> dict[str, Float[Tensor, "m C"]]:
    """Return the probabilities of the deployed views, and "deployed"."""
    probs = {name: torch.softmax(values, dim=1) for name, values in logits.items()}
    return probs | {DEPLOYED: mean_of(probs, views)}


def mean_of(
    probs: Mapping[str, Float[Tensor, "m C"]], views: Sequence[str]
) -> Float[Tensor, "m C"]:
    """Return what is deployed: the mean of the named views.

    Examples
    --------
    >>> probs = {"plain": torch.tensor([[1.0, 0.0]]), "fused": torch.tensor([[0.5, 0.5]])}
    >>> mean_of(probs, ["plain", "fused"])
    tensor([[0.7500, 0.2500]])
    """
    return torch.stack([probs[name] for name in views]).mean(0)


@torch.no_grad()
def fused_view(
    reader: Reader,
    nodes: Int64[Tensor, "m"],
    hidden: Float[Tensor, "m h"],
    difficulty: Float[Tensor, "n"],
) -> tuple[Float[Tensor, "m w"], Float[Tensor, "m C"]]:
    """Return x_v, [m, w], and O = Dec(x_v), [m, C], of these nodes from their evidence."""
    features, logits = [], []
    selections = condense_in_blocks(reader, nodes, hidden, difficulty)
    for g, selection in zip(torch.split(hidden, _NODES_PER_BLOCK), selections, strict=True):
        # eq:fused_embed, then O = Dec(x_v), with label evidence if the model has a head for it.
        features.append(reader.model.fuse(g, condensed_text(reader, selection)[1]))
        labels = label_evidence(reader, selection)
        logits.append(reader.model.fused_logits(features[-1], labels))
    return torch.cat(features), torch.cat(logits)


def label_evidence(reader: Reader, selection: Selection) -> Tensor | None:
    """Return `neighbour_labels` if the model reads label evidence, else None."""
    if reader.model.head_labels is None:
        return None
    return neighbour_labels(selection, reader.data.label_table)


def neighbour_labels(
    selection: Selection, label_table: Float[Tensor, "n C"]
) -> Float[Tensor, "m 2*C"]:
    """[y_1 || y_2], y_l = sum_u alpha^(l)_{v,u} onehot(y_u) over selected neighbours; [m, 2C].

    Only neighbours with a training label count, and never the node itself, so a training node is
    treated like any other.

    Parameters
    ----------
    label_table : [n, C] one-hot training labels, rows of zeros elsewhere
    """
    # Why not hop 0 (decision 7): it is the node itself, whose label would be the answer.
    pairs = zip(selection.hops[1:], selection.gates[1:], strict=True)
    return torch.cat([weighted_rows(gate, hop, label_table) for hop, gate in pairs], dim=1)


def condense_in_blocks(
    reader: Reader,
    nodes: Int64[Tensor, "m"],
    hidden: Float[Tensor, "m h"],
    difficulty: Float[Tensor, "n"],
) -> Iterator[Selection]:
    """Yield `condense_text` of `nodes` in blocks of bounded memory."""
    for rows in torch.split(torch.arange(nodes.numel(), device=nodes.device), _NODES_PER_BLOCK):
        yield condense_text(reader, nodes[rows], rows_at(hidden, rows), difficulty)
