"""The six backbones: each against a dense twin written from its paper, and on the graphs that break
such things.
"""

import numpy as np
import pytest
import torch
from support.builders import random_csr

from dance_flwr.config.plugins import BACKBONES
from dance_flwr.nn.backbone import dropout
from dance_flwr.nn.propagation import operator

WIDTH, HIDDEN = 12, 8
every_backbone = pytest.mark.parametrize("name", BACKBONES)


def build(name, hidden=HIDDEN, dropout=0.5):
    """A backbone in float64 with no parameter at a special value."""
    torch.manual_seed(11)
    backbone = BACKBONES.get(name)(WIDTH, hidden, dropout).double().eval()
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return backbone


def weighted_graph(seed, n, density):
    """Features [n, WIDTH] and a weight matrix [n, n] that is not symmetric, on a symmetric pattern
    without loops.
    """
    indptr, cols = random_csr(np.random.default_rng(seed), n, density)
    rows = torch.repeat_interleave(torch.arange(n), torch.tensor(indptr).diff())
    draw = torch.Generator().manual_seed(seed)
    features = torch.randn(n, WIDTH, dtype=torch.float64, generator=draw)
    weights = 0.1 + 2 * torch.rand(n, n, dtype=torch.float64, generator=draw)
    pattern = torch.zeros(n, n, dtype=torch.float64)
    pattern[rows, torch.tensor(cols)] = 1
    return features, weights * pattern


def edges(dense):
    """(rows, cols, weights) of a weight matrix."""
    rows, cols = dense.nonzero(as_tuple=True)
    return rows, cols, dense[rows, cols]


def apply(backbone, features, dense):
    """g of a weight matrix whose entry (i, j) carries messages from j to i."""
    return backbone(features, operator(backbone.operator, *edges(dense), len(dense)))


def normalised(dense):
    looped = dense + torch.eye(len(dense))
    scale = looped.sum(1).rsqrt()
    return scale[:, None] * looped * scale


def gat_layer(p, layer, x, dense, heads):
    """Velickovic et al. 2018, one head and one node at a time."""
    loops = [float(row[row > 0].mean()) if (row > 0).any() else 0.0 for row in dense]
    wide = (x @ p[f"{layer}.lin.weight"].T).view(len(x), heads, -1)
    per_weight = p[f"{layer}.lin_edge.weight"].view(heads, -1)
    rows = []
    for i in range(len(x)):
        parts = []
        near = [*dense[i].nonzero().flatten().tolist(), i]
        weight = [*dense[i][dense[i] > 0].tolist(), loops[i]]
        for k in range(heads):
            source, target, edge = (p[f"{layer}.att_{end}"][0, k] for end in ("src", "dst", "edge"))
            scores = [
                source @ wide[j, k] + target @ wide[i, k] + w * (edge @ per_weight[k])
                for j, w in zip(near, weight, strict=True)
            ]
            attention = torch.softmax(
                torch.nn.functional.leaky_relu(torch.stack(scores), 0.2), dim=0
            )
            parts.append(sum(a * wide[j, k] for a, j in zip(attention, near, strict=True)))
        rows.append(torch.cat(parts))
    return torch.stack(rows) + p[f"{layer}.bias"]


def gin_layer(p, layer, x, dense):
    total = dense @ x + (1 + p[f"{layer}.eps"]) * x
    inner = torch.relu(total @ p[f"{layer}.nn.0.weight"].T + p[f"{layer}.nn.0.bias"])
    return inner @ p[f"{layer}.nn.2.weight"].T + p[f"{layer}.nn.2.bias"]


def sage_layer(p, layer, x, dense):
    mean = dense / dense.sum(1, keepdim=True).clamp(min=1e-12)
    near = mean @ x @ p[f"{layer}.lin_rel.weight"].T + p[f"{layer}.lin_rel.bias"]
    return near + x @ p[f"{layer}.lin_root.weight"].T


def twin(name, p, features, dense, heads=8):
    """g by dense matrices, from the parameters `p` of a backbone."""
    centred = features - features.mean(1, keepdim=True)
    x = centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()
    if name == "gat":
        return gat_layer(
            p, "second", torch.nn.functional.elu(gat_layer(p, "first", x, dense, heads)), dense, 1
        )
    if name == "gin":
        return gin_layer(p, "second", torch.relu(gin_layer(p, "first", x, dense)), dense)
    if name == "sage":
        return sage_layer(p, "second", torch.relu(sage_layer(p, "first", x, dense)), dense)
    spread = normalised(dense)
    if name == "gcn":
        inner = torch.relu(spread @ x @ p["first.lin.weight"].T + p["first.bias"])
        return spread @ inner @ p["second.lin.weight"].T + p["second.bias"]
    if name == "sgc":
        return spread @ spread @ x @ p["layer.lin.weight"].T + p["layer.lin.bias"]
    start = (
        torch.relu(x @ p["first.weight"].T + p["first.bias"]) @ p["second.weight"].T
        + p["second.bias"]
    )
    found = start
    for _ in range(10):
        found = 0.9 * spread @ found + 0.1 * start
    return found


@pytest.mark.parametrize("name", BACKBONES.builtin)
@pytest.mark.parametrize("density", [0.0, 0.15, 0.5])
def test_a_backbone_is_its_dense_twin(name, density):
    backbone = build(name)
    features, dense = weighted_graph(3, 11, density)
    torch.testing.assert_close(
        apply(backbone, features, dense), twin(name, backbone.state_dict(), features, dense)
    )


@pytest.mark.parametrize(("hidden", "heads"), [(12, 4), (5, 1), (1, 1)])
def test_heads_of_gat_divide_any_width(hidden, heads):
    backbone = build("gat", hidden)
    features, dense = weighted_graph(3, 7, 0.4)
    expected = twin("gat", backbone.state_dict(), features, dense, heads)
    torch.testing.assert_close(apply(backbone, features, dense), expected)


@every_backbone
@pytest.mark.parametrize(
    "kind", ["isolated nodes", "no edges", "one node", "tiny weights", "zero weights"]
)
def test_output_and_gradients_are_finite(name, kind):
    backbone = BACKBONES.get(name)(WIDTH, HIDDEN, 0.5)
    features, dense = weighted_graph(
        6, 1 if kind == "one node" else 9, 0.0 if kind == "no edges" else 0.5
    )
    rows, cols, weights = edges(dense)
    weights = weights.float()
    if kind == "isolated nodes":
        kept = (rows < 5) & (cols < 5)
        rows, cols, weights = rows[kept], cols[kept], weights[kept]
        assert rows.numel()
    weights = weights * {"tiny weights": 1e-30, "zero weights": 0.0}.get(kind, 1.0)
    found = backbone(features.float(), operator(backbone.operator, rows, cols, weights, len(dense)))
    assert found.shape == (len(dense), HIDDEN) and torch.isfinite(found).all()
    found.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in backbone.parameters())


@every_backbone
def test_reach_is_how_far_a_feature_is_seen(name):
    backbone, n = build(name), 15
    path = torch.diag(torch.ones(n - 1, dtype=torch.float64), 1)
    features, dense = weighted_graph(9, n, 0.0)[0], path + path.T
    before = apply(backbone, features, dense)
    features[0] = -features[0]
    changed = (apply(backbone, features, dense) - before).abs().amax(1) > 1e-12
    assert changed.tolist() == [node <= backbone.reach for node in range(n)]


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9, 0.999])
def test_dropout_keeps_each_entry_with_its_probability_and_the_mean(rate):
    """By place within a draw as well: some generators fill 63 of 64 bits."""
    torch.manual_seed(5)
    dropped = dropout(torch.ones(200_000, 8), rate, training=True)
    kept = (dropped > 0).float().mean(0)
    spread = (rate * (1 - rate) / 200_000) ** 0.5
    assert ((kept - (1 - rate)).abs() < 5 * spread + 1 / 256).all()
    assert len(dropped.unique()) == 2 and abs(dropped.mean() - 1) < 0.05
    assert dropout(torch.ones(3, 3), 0.0, training=True).equal(torch.ones(3, 3))


@every_backbone
def test_dropout_acts_in_training_only(name):
    features, dense = weighted_graph(10, 9, 0.4)
    dropping, keeping = build(name), build(name, dropout=0.0)
    torch.testing.assert_close(
        apply(dropping, features, dense), apply(keeping.train(), features, dense)
    )
    assert not torch.allclose(
        apply(dropping.train(), features, dense), apply(keeping, features, dense)
    )
