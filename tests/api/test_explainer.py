"""DANCE as an explainer of torch-geometric: its masks are the gates; other models are refused."""

import pytest
import torch
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.metric import fidelity
from torch_geometric.nn import GCN

from dance_flwr.api import DanceExplainer, UserError

SETTINGS = {
    "explanation_type": "model",
    "node_mask_type": "object",
    "edge_mask_type": "object",
    "model_config": {
        "mode": "multiclass_classification",
        "task_level": "node",
        "return_type": "log_probs",
    },
}


@pytest.fixture(scope="module", params=["deployed", "plain"])
def view(request, model, graph):
    return model.at(graph, view=request.param)


def masks_by_hand(node, ids, edge_index):
    """Masks from the evidence that the API gives of a node, edge by edge."""
    place = {name: row for row, name in enumerate(ids)}
    v = place[node.id]
    pairs = edge_index.T.tolist()
    nodes, edges = torch.zeros(len(ids)), torch.zeros(len(pairs))
    nodes[v] = 1
    into = {u for u, to in pairs if to == v}
    for near in node.neighbours:
        u = place[near.id]
        if near.hop:
            nodes[u] = max(nodes[u], torch.tensor(near.gate))
        for at, (start, end) in enumerate(pairs):
            on_path = near.hop == 1 and (start, end) == (u, v)
            if near.hop == 2:
                between = {m for m in into if [u, m] in pairs}
                on_path = (start == u and end in between) or (start in between and end == v)
            if on_path:
                edges[at] = max(edges[at], torch.tensor(near.gate))
    return nodes, edges


def test_masks_are_the_gates_of_the_evidence(model, graph, view):
    explainer = Explainer(view, DanceExplainer(), **SETTINGS)
    for place, node in enumerate(model.explain(graph, range(graph.num_nodes))):
        found = explainer(view.x, view.edge_index, index=place)
        nodes, edges = masks_by_hand(node, view.ids, view.edge_index)
        assert torch.allclose(found.node_mask[:, 0], nodes, atol=1e-5)
        assert torch.allclose(found.edge_mask, edges, atol=1e-5)
        assert found.validate_masks()


def test_several_nodes_have_the_largest_gates(view):
    explainer = Explainer(view, DanceExplainer(), **SETTINGS)
    x, edges = view.x, view.edge_index
    apart = [explainer(x, edges, index=v) for v in (0, 1, 2)]
    together = explainer(x, edges, index=torch.tensor([0, 1, 2]))
    for name in ("node_mask", "edge_mask"):
        largest = torch.stack([found[name] for found in apart]).amax(0)
        assert torch.allclose(together[name], largest, atol=1e-6)
    everyone = explainer(x, edges)
    assert (everyone.node_mask == 1).all()


def test_the_model_at_a_graph_is_the_model(model, graph, view):
    from dance_flwr.api.predicting import bundle_explainer, open_data

    every = torch.arange(graph.num_nodes)
    with open_data(model.bundle, graph, lambda line: None) as client:
        packs = bundle_explainer(model.bundle, client).explain(every)
    expected = torch.tensor(packs.probs[packs.stages.index(view.view)])
    assert torch.allclose(view(view.x, view.edge_index).exp(), expected, atol=1e-5)
    shuffled = view.edge_index[:, torch.randperm(view.edge_index.size(1))]
    assert torch.allclose(view(view.x, shuffled).exp(), expected, atol=1e-5)
    view.train()  # what torch-geometric calls; dropout stays off
    assert torch.allclose(view(view.x, view.edge_index).exp(), expected, atol=1e-5)
    assert view.data.validate() and not any(p.requires_grad for p in view.parameters())


def test_texts_and_edges_that_are_masked_are_gone(view, graph):
    """Nothing is left of a graph without texts and edges, and a mask of 1 changes nothing."""
    x, edges = view.x, view.edge_index
    bare = view(torch.zeros_like(x), edges[:, :0])
    assert torch.isfinite(bare).all() and torch.allclose(bare, bare[:1].expand_as(bare), atol=1e-5)
    explainer = Explainer(view, DanceExplainer(), **SETTINGS)
    none = explainer.get_masked_prediction(
        x, edges, torch.zeros(len(x), 1), torch.zeros(edges.size(1))
    )
    whole = explainer.get_masked_prediction(
        x, edges, torch.ones(len(x), 1), torch.ones(edges.size(1))
    )
    assert torch.allclose(whole, view(x, edges), atol=1e-5)
    assert not torch.allclose(none, whole, atol=1e-3)
    one_edge = torch.ones(edges.size(1))
    one_edge[0] = 0
    changed = explainer.get_masked_prediction(x, edges, None, one_edge)
    assert not torch.equal(changed, whole)


def test_metrics_of_torch_geometric_read_its_explanations(view):
    explainer = Explainer(view, DanceExplainer(), **SETTINGS)
    explanation = explainer(view.x, view.edge_index, index=3)
    assert all(0 <= value <= 1 for value in fidelity(explainer, explanation))
    part = explanation.get_explanation_subgraph()
    assert part.num_nodes <= explanation.num_nodes


def test_other_explainers_explain_the_plain_view(model, graph):
    plain = model.at(graph, view="plain")
    found = Explainer(plain, GNNExplainer(epochs=5), **SETTINGS)(plain.x, plain.edge_index, index=3)
    assert found.node_mask.sum() > 0 and found.edge_mask.max() <= 1


def test_another_model_is_refused(view):
    other = GCN(4, 4, 2, out_channels=3)
    explainer = Explainer(other, DanceExplainer(), **SETTINGS)
    with pytest.raises(UserError, match="found GCN: it has no gates; GNNExplainer"):
        explainer(torch.zeros(3, 4), torch.tensor([[0, 1], [1, 0]]), index=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"explanation_type": "phenomenon"}, "explanation_type = 'model', found 'phenomenon'"),
        ({"node_mask_type": "attributes"}, "node_mask_type = 'object', found 'attributes'"),
        ({"model_config": SETTINGS["model_config"] | {"task_level": "graph"}}, "task_level"),
        ({"model_config": {"mode": "regression", "task_level": "node"}}, "mode"),
    ],
)
def test_other_settings_are_refused_with_a_reason(view, change, message, caplog):
    with pytest.raises(ValueError, match="does not support"):
        Explainer(view, DanceExplainer(), **SETTINGS | change)
    assert message in caplog.text


@pytest.mark.parametrize("kept", ["node_mask_type", "edge_mask_type"])
def test_one_kind_of_mask_alone(view, kept):
    settings = SETTINGS | dict.fromkeys(("node_mask_type", "edge_mask_type")) | {kept: "object"}
    found = Explainer(view, DanceExplainer(), **settings)(view.x, view.edge_index, index=0)
    assert found.available_explanations == [kept.removesuffix("_type")]


def test_a_backbone_of_attention_is_refused(run, graph, tmp_path):
    from dance_flwr.api import Predictor
    from dance_flwr.api.bundle import export

    folder = run(backbone="gat", rounds=1).folder
    with pytest.raises(UserError, match="found one of attention"):
        Predictor(export(folder, tmp_path / "gat")).at(graph)
