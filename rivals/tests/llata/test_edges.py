"""Moves of leaves and sampled edges, against loops and their stated chances."""

import math

import numpy as np
import pytest
import torch
from dance_flwr_rivals.llata import edges
from dance_flwr_rivals.llata.edges import dropped_edges, gains, reallocated, sampled_pairs
from dance_flwr_rivals.llata.tree import communities_of
from hypothesis import given
from hypothesis import strategies as st
from rival_support import oracle_llata as oracle
from rival_support.local_nodes import pairs_of

TRIANGLES = [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5), (2, 3)]


def random_case(seed, nodes=14, density=0.25):
    rng = np.random.default_rng(seed)
    edges = np.argwhere(np.triu(rng.random((nodes, nodes)) < density, 1)).tolist()
    return pairs_of(edges), torch.tensor(rng.dirichlet(np.ones(3) / 2, nodes))


def draws(seed=0):
    return torch.Generator().manual_seed(seed)


@given(st.integers(0, 10**6))
def test_gains_are_those_of_the_loops(seed):
    pairs, labels = random_case(seed)
    community = communities_of(pairs, 14)
    gain, target = gains(community, labels)
    for node in range(14):
        best, where = oracle.gain(labels.tolist(), community.tolist(), node)
        assert float(gain[node]) == pytest.approx(best, abs=1e-9)
        if math.isfinite(best):
            assert int(target[node]) == where


@given(st.integers(0, 10**6), st.floats(0, 1), st.sampled_from([0.0, 0.05, 0.5]))
def test_few_leaves_move_and_the_entropy_stays_below_that_of_one_level(seed, ratio, threshold):
    pairs, labels = random_case(seed)
    community = communities_of(pairs, 14)
    moved = reallocated(community, labels, ratio, threshold)
    changed = torch.nonzero(moved != community).flatten()
    gain, target = gains(community, labels)
    assert len(changed) <= int(ratio * 14) and bool((gain[changed] > threshold).all())
    assert moved[changed].equal(target[changed])
    entropies = [oracle.entropy(pairs.tolist(), 14, [g]) for g in (moved.tolist(), range(14))]
    assert entropies[0] <= entropies[1] + 1e-12


@given(st.integers(0, 10**6), st.integers(0, 60))
def test_sampled_edges_are_new_inside_communities_and_within_the_count(seed, count):
    pairs, labels = random_case(seed)
    community = communities_of(pairs, 14)
    new = sampled_pairs(community, pairs, labels, count, 0.1, draws(seed))
    rows = [tuple(row) for row in new.tolist()]
    assert len(rows) == len(set(rows)) <= count
    assert not set(rows) & {tuple(row) for row in pairs.tolist()}
    assert all(a < b and community[a] == community[b] for a, b in rows)
    assert new.equal(sampled_pairs(community, pairs, labels, count, 0.1, draws(seed)))


def test_the_chances_are_those_of_the_two_steps(monkeypatch):
    """Of 2000 first draws: the community in proportion to its entropy, then the softmax."""
    monkeypatch.setattr(edges, "_PASSES", 1)
    pairs = pairs_of([(0, 1), (1, 2), (3, 4), (4, 5), (5, 6), (3, 6)])
    community = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    labels = torch.tensor(
        [[1, 0], [0.2, 0.8], [0.8, 0.2], [1, 0], [0.5, 0.5], [0.9, 0.1], [0, 1.0]]
    ).double()
    degree = [1, 2, 1, 2, 2, 2, 2]
    inside = [
        -sum(degree[v] / 12 * math.log2(degree[v] / volume) for v in members)
        for members, volume in (((0, 1, 2), 4), ((3, 4, 5, 6), 8))
    ]
    tau, counts, repeats = 0.5, {}, 2000
    generator = draws(3)
    for _ in range(repeats):
        drawn = sampled_pairs(community, pairs, labels, 1, tau, generator).tolist()
        ((a, b),) = drawn or [(-1, -1)]
        counts[a, b] = counts.get((a, b), 0) + 1
    for a, b, where, members in (
        (0, 2, 0, (0, 1, 2)),
        (3, 5, 1, (3, 4, 5, 6)),
        (4, 6, 1, (3, 4, 5, 6)),
    ):
        chance = 0.0
        for u, v in ((a, b), (b, a)):
            weight = {
                w: math.exp(oracle.cosine(labels[u].tolist(), labels[w].tolist()) / tau)
                for w in members
                if w != u
            }
            chance += weight[v] / sum(weight.values()) / len(members)
        chance *= inside[where] / sum(inside)
        assert counts[a, b] / repeats == pytest.approx(chance, abs=4 * math.sqrt(chance / repeats))


def test_only_edges_between_communities_with_the_least_cosine_are_dropped():
    community = torch.tensor([0, 0, 0, 1, 1, 1])
    pairs = pairs_of([*TRIANGLES, (0, 5), (1, 4)])
    labels = torch.eye(2, dtype=torch.float64)[[0, 1, 0, 0, 0, 1]]
    gone = {
        count: [*map(tuple, pairs[dropped_edges(community, pairs, labels, count)].tolist())]
        for count in (0, 1, 2, 9)
    }
    assert gone == {
        0: [],
        1: [(0, 5)],
        2: [(0, 5), (1, 4)],
        9: [(0, 5), (1, 4), (2, 3)],
    }
