"""`dance.core-rule` = coverage and random-labelled: facility location, masses, tiers and cores."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import coverage as oracle
from support.builders import lists

from dance_flwr.config.tree import parse
from dance_flwr.dance import coverage as module
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.coverage import cover, facility_location, masses
from dance_flwr.dance.nodes import Pool, Prediction, condense_nodes
from dance_flwr.dance.passes import DanceClient, TwoSteps, pool_of
from dance_flwr.dance.queue import Candidates
from dance_flwr.nn.backbone import normalise
from dance_flwr.nn.ragged import Ragged

small = {
    "seed": st.integers(0, 2**20),
    "rows": st.integers(1, 9),
    "columns": st.integers(1, 7),
    "levels": st.sampled_from([2, 5, 1000]),  # few levels, so that gains tie
}


def matrix(seed, rows, columns, levels):
    return np.random.default_rng(seed).integers(0, levels, (rows, columns))


def tensor(similar):
    return torch.tensor(similar, dtype=torch.int32)


@given(**small, tiers=st.integers(1, 3), data=st.data())
def test_lazy_greedy_is_the_greedy_of_the_loops(seed, rows, columns, levels, tiers, data):
    similar = matrix(seed, rows, columns, levels)
    precedence = np.random.default_rng(seed + 1).integers(0, tiers, rows)
    waiting = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, unique=True))
    count = data.draw(st.integers(1, len(waiting)))
    mask = torch.zeros(rows, dtype=torch.bool)
    mask[waiting] = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BATCH", data.draw(st.sampled_from([1, 3, 64])))
        chosen = facility_location(tensor(similar), torch.tensor(precedence), mask, count)
    expected = oracle.greedy(similar.tolist(), precedence.tolist(), sorted(waiting), count)
    assert chosen.tolist() == expected


@given(**small)
def test_masses_count_the_nearest_node_of_a_core(seed, rows, columns, levels):
    similar = matrix(seed, rows, columns, levels)
    shares = masses(tensor(similar)).tolist()
    assert shares == oracle.masses(similar.tolist()) and sum(shares) == columns


classes = st.lists(st.integers(0, 12), min_size=1, max_size=4)


@given(sizes=classes, seed=st.integers(0, 2**20), limit=st.sampled_from([3, 2048]), data=st.data())
def test_ranks_are_permutations_and_masses_add_up(sizes, seed, limit, data):
    """Also in classes without a node, with one, with equal texts and larger than the limit."""
    rng = np.random.default_rng(seed)
    count = sum(sizes)
    table = torch.tensor(rng.integers(-1, 2, (count, 2)), dtype=torch.float32)
    quotas = torch.tensor([data.draw(st.integers(0, size)) for size in sizes])
    parts = [
        data.draw(st.integers(quota, size))
        for size, quota in zip(sizes, quotas.tolist(), strict=True)
    ]
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    candidates = Candidates(Ragged(ptr, torch.arange(count)), quotas, torch.tensor(parts))
    tiers = torch.tensor(rng.integers(0, 2, count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_POINTS", limit)
        rank, mass = cover(table, candidates, tiers, torch.Generator().manual_seed(seed))
    queue = candidates.queue(rank, mass)
    for number, size in enumerate(sizes):
        row = slice(int(ptr[number]), int(ptr[number + 1]))
        assert sorted(rank[row].tolist()) == list(range(size))
        quota, part = int(quotas[number]), parts[number]
        by_rank = rank[row].argsort()
        ahead = tiers[row][by_rank].tolist()
        if quota:
            assert ahead[:part] == sorted(ahead[:part])  # lower tiers first
        # The first core's masses are those of all nodes; a node whose equal is in the core before
        # it stands for itself alone.
        shares = mass[row][by_rank][:quota]
        assert (shares >= 1).all()
        if quota and size <= limit:
            assert size <= float(shares.sum()) < size + quota
    assert queue.nodes.unique().numel() == queue.nodes.numel() == sum(parts)
    assert queue.quotas.equal(quotas) and queue.ptr.diff().tolist() == parts


def prediction_of(labels):
    """A model that is sure of class v % 3 for every node."""
    return Prediction.of(torch.zeros(len(labels), 2), torch.eye(3)[torch.arange(len(labels)) % 3])


def pool(labels, times=None, *, table=None):
    if table is None:
        table = torch.randn(len(labels), 5, generator=torch.Generator().manual_seed(4))
    times = torch.zeros_like(labels) if times is None else times
    return Pool(labels, times, torch.ones(len(labels), dtype=torch.bool), table)


def core_of(rule, labels, ratio, seed=0, **settings):
    config = DanceConfig(core_rule=rule, **settings)
    draw = torch.Generator().manual_seed(seed)
    return condense_nodes(prediction_of(labels), pool(labels), config, ratio, draw)


@pytest.mark.parametrize("rule", ["coverage", "random-labelled"])
@pytest.mark.parametrize("stays", [{}, {"coverage_penalty": 0.0}, {"core_refresh_every": 0}])
@pytest.mark.parametrize("labelled", [0, 1, 6, 60])
def test_quotas_and_priority_are_those_of_the_score(rule, stays, labelled):
    """No labelled node, one, fewer than a core and enough: under every rule as many nodes of each
    class, and as many labelled ones.
    """
    labels = torch.full((60,), -1)
    labels[:labelled] = torch.arange(labelled) % 3
    queue, paper = (core_of(name, labels, 0.2, **stays) for name in (rule, "label-aware"))
    assert queue.quotas.equal(paper.quotas) and queue.ptr.equal(paper.ptr)
    for left, right in zip(lists_of(queue), lists_of(paper), strict=True):
        assert [node < labelled for node in left] == [node < labelled for node in right]
        assert len(set(left)) == len(left)
    assert (queue.mass is not None) == (rule == "coverage")


@pytest.mark.parametrize(
    ("settings", "same_as"),
    [
        ({}, "label-aware"),
        ({"core_refresh_every": 0}, "coverage"),
        ({"coverage_penalty": 0.0}, "coverage"),
    ],
)
def test_by_default_a_core_that_stays_covers_and_one_that_moves_follows_the_score(
    settings, same_as
):
    labels = torch.arange(60) % 3
    default, named = (core_of(rule, labels, 0.2, **settings) for rule in ("auto", same_as))
    assert default.nodes.equal(named.nodes) and (default.mass is None) == (named.mass is None)
    paper = DanceConfig.of(parse({"paper": True}))
    assert paper.rule == "label-aware" and not paper.core_moves and not paper.labelled_first


def lists_of(queue):
    return lists(Ragged(queue.ptr, queue.nodes))


def test_random_labelled_nodes_are_drawn_and_take_turns():
    labels = torch.arange(60) % 3
    first, again, other = (core_of("random-labelled", labels, 0.2, seed) for seed in (1, 1, 2))
    assert first.nodes.equal(again.nodes) and not first.nodes.equal(other.nodes)
    # Priority of labelled nodes is its meaning, also under the paper's rules.
    labels[::2] = -1
    published = core_of("random-labelled", labels, 0.1, paper_rules=True, coverage_penalty=0.0)
    assert (labels[published.core(0)] >= 0).all()


@pytest.mark.parametrize("rule", ["coverage", "random-labelled"])
def test_nodes_that_were_in_fewer_cores_come_first(rule):
    labels, config = torch.zeros(8, dtype=torch.int64), DanceConfig(core_rule=rule)
    times = torch.tensor([3, 0, 1, 0, 2, 0, 1, 2])
    for seed in range(5):
        draw = torch.Generator().manual_seed(seed)
        queue = condense_nodes(prediction_of(labels), pool(labels, times), config, 0.25, draw)
        (order,) = (row for row in lists_of(queue) if row)
        assert times[order].tolist() == sorted(times.tolist())


def test_the_table_is_two_steps_over_the_texts_and_of_coverage_alone(dance):
    data, settings = dance.data(0), DanceConfig(core_rule="coverage")
    times = torch.zeros(data.num_nodes, dtype=torch.int64)
    client = DanceClient(None, data, settings, data.training_graph)
    step = data.training_graph.operator("gcn").to_dense()
    expected = step @ step @ normalise(data.table.nodes.float())
    torch.testing.assert_close(pool_of(client, times).propagated, expected, atol=1e-5, rtol=1e-5)
    assert TwoSteps(0.5).inputs(expected, step).shape == expected.shape
    plain = DanceClient(None, data, DanceConfig(), data.training_graph)
    assert pool_of(plain, times).propagated is None
