"""Sec. 3.4 as a whole: what beta, the prior, the scale of x_v and the stopping rule change."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.topology import (
    candidate_support,
    connect,
    self_express,
    support_in_class,
    synthesise_adjacency,
)


def clustered(seed: int, size: int = 200) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features, evidence and classes like those of a trained model: five classes of three groups.

    Cosines within a class are about 0.5, within a group about 0.8; evidence agrees a little less
    with the groups. Layer-normalised features of width 64 have squared norm 64.
    """
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 5, size)
    groups = 3 * classes + rng.integers(0, 3, size)

    def vectors(width: int, noise: float) -> torch.Tensor:
        parts = [rng.standard_normal((5, width))[classes], rng.standard_normal((15, width))[groups]]
        return torch.tensor(parts[0] + 0.8 * parts[1] + noise * rng.standard_normal((size, width)))

    x = functional.layer_norm(vectors(64, 0.6), (64,)).float()
    t = 0.8 * functional.normalize(vectors(64, 1.0), dim=1).float()
    return x, t, torch.tensor(classes)


def edges_of(x, t, classes, **keys) -> set[tuple[int, int]]:
    """The edges of Alg. 4, of fused features that are given."""
    rows, cols, _ = connect(x, t, classes, DanceConfig(**keys))
    return set(zip(rows.tolist(), cols.tolist(), strict=True))


def changed(one: set, other: set) -> float:
    """Share of the edges of either that are not in both."""
    return 1 - len(one & other) / len(one | other)


def edges_for(x, prior, near) -> set[tuple[int, int]]:
    """The edges of these features as they are, with another prior but the same candidates."""
    rows, cols, _ = synthesise_adjacency(self_express(x, prior, near, DanceConfig()), 5)
    return set(zip(rows.tolist(), cols.tolist(), strict=True))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_beta_and_the_prior_change_the_edges(seed):
    """About half of the edges change with twice the beta, a third if the prior is that of others;
    of layer-normalised features, most coefficients stay and the prior changes next to nothing.
    """
    x, t, classes = clustered(seed)
    unit = functional.normalize(x, dim=1)
    edges, near = edges_of(x, t, classes), support_in_class(unit, t, classes, 10)[0]
    others = t[torch.tensor(np.random.default_rng(seed).permutation(len(x)))]
    assert len(edges) > len(x) and edges == edges_for(unit, t, near)
    assert changed(edges, edges_of(x, t, classes, beta=6.0)) > 0.3
    assert changed(edges, edges_for(unit, others, near)) > 0.25
    assert changed(edges_for(x, t, near), edges_for(x, others, near)) < 0.05
    shares = [
        float((self_express(part, t, near, DanceConfig()).values != 0).sum() / (near >= 0).sum())
        for part in (unit, x)
    ]
    assert 0.2 < shares[0] < 0.5 and shares[1] > 0.75


def test_the_edges_do_not_depend_on_the_scale_of_the_features():
    x, t, classes = clustered(3)
    edges = edges_of(x, t, classes)
    assert edges_of(100 * x, t, classes) == edges
    assert edges_of(x * torch.linspace(0.1, 9, len(x))[:, None], t, classes) == edges


def test_nodes_that_are_the_same_and_nodes_without_features():
    """Nodes 0 to 2 are the same and 5 has no features. Node 0 takes 2 alpha z = 2 alpha - (beta + 1
    - S) from the others together: with S = 0, z = (8 - 4) / 8. Zero features explain nothing and
    need nothing.
    """
    x = torch.eye(6, dtype=torch.float64)
    x[1] = x[2] = x[0]
    x[5] = 0
    t = torch.zeros(6, 2, dtype=torch.float64)
    support = candidate_support(x, t, 5)
    for config in (DanceConfig(), DanceConfig(inner_iterations=4000, inner_tolerance=0.0)):
        values = self_express(x, t, support, config).values
        assert values[:3].sum(1).tolist() == pytest.approx([0.5, 0.5, 0.5], abs=1e-2)
        assert not values[3:].any() and not values[:3][support[:3] >= 3].any()
    edges = edges_of(x, t, torch.zeros(6, dtype=torch.int64))
    assert edges == {(i, j) for i in range(3) for j in range(3) if i != j}
