"""Cluster({z_v}; P_c) of eq:proto_score: mini-batch k-means in every class at once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import MiniBatchKMeans

from dance_flwr.nn import kmeans as module
from dance_flwr.nn.kmeans import cluster_by_class


def cluster(points, classes, num_classes, most, seed=0):
    return cluster_by_class(points, classes, num_classes, most, torch.Generator().manual_seed(seed))


def draw(seed: int, n: int, num_classes: int):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, generator=generator), torch.randint(
        num_classes, (n,), generator=generator
    )


def blobs(seed: int, classes: int, centres: int, size: int):
    """Per class so many blobs of unit variance around centres on a grid of step 20, in random
    order.
    """
    generator = torch.Generator().manual_seed(seed)
    grid = 20.0 * torch.cartesian_prod(torch.arange(5), torch.arange(5))
    middle = torch.stack(
        [grid[torch.randperm(25, generator=generator)[:centres]] for _ in range(classes)]
    )
    points = (
        middle[:, :, None] + torch.randn(classes, centres, size, 2, generator=generator)
    ).reshape(-1, 2)
    owner = torch.arange(classes).repeat_interleave(centres * size)
    order = torch.randperm(len(owner), generator=generator)
    return points[order], owner[order]


def inertia(points, centroids) -> float:
    return float(torch.cdist(points, centroids).min(dim=1).values.square().sum())


@given(
    seed=st.integers(0, 2**20),
    n=st.integers(1, 40),
    num_classes=st.integers(1, 5),
    most=st.integers(1, 6),
)
def test_a_class_has_as_many_prototypes_as_it_can_fill_and_nan_rows_for_the_rest(
    seed, n, num_classes, most
):
    points, classes = draw(seed, n, num_classes)
    centroids = cluster(points, classes, num_classes, most)
    assert centroids.shape == (num_classes, most, 3)
    for c in range(num_classes):
        filled = min(most, int((classes == c).sum()))
        nan = centroids[c].isnan()
        assert not bool(nan[:filled].any())
        assert bool(nan[filled:].all())
        if filled:  # a mean lies in the bounding box of its class
            members, means = points[classes == c], centroids[c, :filled]
            assert bool((means >= members.min(0).values - 1e-5).all())
            assert bool((means <= members.max(0).values + 1e-5).all())


@pytest.mark.parametrize("batch", [4096, 256], ids=["full batch", "mini-batch"])
@pytest.mark.parametrize("seed", range(4))
def test_well_separated_blobs_are_found_as_well_as_by_scikit_learn(seed, batch, monkeypatch):
    monkeypatch.setattr(module, "_BATCH", batch)
    points, classes = blobs(seed, classes=3, centres=4, size=80)
    centroids = cluster(points, classes, 3, 4, seed)
    for c in range(3):
        members = points[classes == c]
        peer = MiniBatchKMeans(4, random_state=seed, n_init=3).fit(members.numpy())
        assert inertia(members, centroids[c]) <= 1.3 * peer.inertia_
