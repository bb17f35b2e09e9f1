"""`explain`: the evidence of predictions."""

import torch

from dance_flwr.api.inputs import GraphLike, ModelLike, Nodes, bundle_of, rows_of, source_of
from dance_flwr.api.node_evidence import Evidence
from dance_flwr.api.prediction.bundle import Bundle
from dance_flwr.api.prediction.predicting import explainer_of, open_data
from dance_flwr.errors import UserError
from dance_flwr.methods import get_spec


def explain(model: ModelLike, graph: GraphLike, nodes: Nodes) -> Evidence:
    """Return the evidence of nodes: neighbours with gates, and spans of their texts with weights.

    Equal to what `dance-flwr predict --evidence` writes of the same data.

    Parameters
    ----------
    model : what `load` or `federate` return, or the folder of a bundle
    graph : a graph, its name or its folder, whose labels are not read; or the folder of a client,
        whose training labels count as in the run
    nodes : ids, places from 0, or one bool per node

    Raises
    ------
    UserError : the model keeps no evidence, a node is unknown, or the data do not fit the model
    """
    bundle, data = bundle_of(model), source_of(graph)
    check_evidence(bundle)
    with open_data(bundle, data, lambda line: None) as client:
        ids = client.data.ids()
        rows = torch.as_tensor(rows_of(nodes, ids))
        packs = explainer_of(bundle, client).explain(rows)
        return Evidence(packs, ids, client.data.texts(), client.data.card.class_names)


def check_evidence(bundle: Bundle) -> None:
    """Check that a bundle's method keeps evidence.

    Raises
    ------
    UserError : it does not
    """
    method = bundle.config.method
    if not get_spec(method).keeps_evidence:
        raise UserError(
            f"model: expected one of a method that keeps evidence (dance), found {method!r}"
        )
