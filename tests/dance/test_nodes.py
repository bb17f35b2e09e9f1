"""Sec. 3.2: pseudo-labels, quotas, prototype scores and the core, against the loops of Alg. 2."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import nodes as oracle
from support.builders import lists

from dance_flwr.dance import nodes as module
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.nodes import (
    Pool,
    Prediction,
    class_quotas,
    condense_nodes,
    core_budget,
    rounds_per_condensation,
)
from dance_flwr.dance.queue import Queue
from dance_flwr.nn.ragged import Ragged

CLASSES = 4


def quarters(rng: np.random.Generator, n: int) -> np.ndarray:
    """[n, 4] probabilities in steps of 1/4, so that ties and values on the threshold occur and are
    exact.
    """
    return np.array(
        [np.bincount(rng.integers(0, CLASSES, 4), minlength=CLASSES) / 4 for _ in range(n)]
    )


def draw_labels(rng: np.random.Generator, n: int, known: float, present: int) -> np.ndarray:
    """Labels of the first `present` classes; -1 where unknown."""
    return np.where(rng.random(n) < known, rng.integers(0, present, n), -1)


worlds = {
    "seed": st.integers(0, 2**20),
    "n": st.integers(1, 25),
    "known": st.sampled_from([0.0, 0.3, 1.0]),
    "present": st.integers(1, CLASSES),
    "tau": st.sampled_from([0.0, 0.5, 0.75, 1.0]),
}


def pool(labels, times=None):
    """Visible nodes with these labels; none was in a core unless `times` says so."""
    visible = torch.ones(len(labels), dtype=torch.bool)
    return Pool(labels, torch.zeros_like(labels) if times is None else times, visible)


@given(seed=st.integers(0, 2**20), n=st.integers(1, 25))
def test_difficulty_is_the_entropy(seed, n):
    probs = quarters(np.random.default_rng(seed), n)
    prediction = Prediction.of(torch.zeros(n, 1), torch.tensor(probs))
    assert prediction.difficulty.tolist() == pytest.approx(oracle.difficulty(probs), abs=1e-12)
    assert prediction.confidence.tolist() == probs.max(axis=1).tolist()


@given(
    **worlds,
    ratio=st.sampled_from([0.08, 0.3, 0.5, 1.0]),
    penalty=st.sampled_from([0.0, 0.25, 2.0]),
    labelled_first=st.booleans(),
    floor=st.booleans(),
)
def test_the_core_is_that_of_the_loops(
    seed, n, known, present, tau, ratio, penalty, labelled_first, floor
):
    """Both are given the same prototypes; class c has min(P, |V_c|) of them, NaN rows fill up to P
    = 3.
    """
    rng = np.random.default_rng(seed)
    probs, labels = quarters(rng, n), draw_labels(rng, n, known, present)
    hidden, times = rng.standard_normal((n, 6)), rng.integers(0, 3, n)
    drawn = rng.standard_normal((CLASSES, 3, 6))
    counts = rng.integers(1, 4, CLASSES)
    padded = drawn.copy()
    for c in range(CLASSES):
        padded[c, counts[c] :] = np.nan
    config = DanceConfig(
        core_rule="label-aware",
        confidence=tau,
        prototypes=3,
        coverage_penalty=penalty,
        labelled_first=labelled_first,
        labelled_floor=floor,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "cluster_by_class", lambda *_: torch.tensor(padded))
        prediction = Prediction.of(torch.tensor(hidden), torch.tensor(probs))
        core = condense_nodes(
            prediction,
            pool(torch.tensor(labels), torch.tensor(times)),
            config,
            ratio,
            torch.Generator().manual_seed(0),
        ).core(0)
    expected = oracle.core(
        hidden,
        probs,
        labels,
        times,
        [drawn[c, : counts[c]] for c in range(CLASSES)],
        tau=tau,
        ratio=ratio,
        penalty=penalty,
        labelled_first=labelled_first,
        at_least=floor,
    )
    assert core.tolist() == expected


def queue_of(sizes, quotas):
    """A queue with so many nodes of each class, in an order that is not ascending."""
    nodes = torch.randperm(sum(sizes), generator=torch.Generator().manual_seed(5))
    return Queue(nodes, torch.tensor([0, *sizes]).cumsum(0), torch.tensor(quotas))


@st.composite
def queues(draw):
    sizes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))
    return queue_of(sizes, [draw(st.integers(0, size)) for size in sizes])


@given(queue=queues(), turns=st.integers(0, 12))
def test_cores_of_a_queue_are_those_of_the_loops(queue, turns):
    parts, quotas = lists(Ragged(queue.ptr, queue.nodes)), queue.quotas.tolist()
    cores = [queue.core(turn).tolist() for turn in range(turns)]
    assert cores == [oracle.turn(parts, quotas, turn) for turn in range(turns)]
    counted = [sum(node in core for core in cores) for node in queue.nodes.tolist()]
    assert queue.times(turns).tolist() == counted


@pytest.mark.parametrize("rule", ["label-aware", "random"])
def test_cores_move_under_the_coverage_penalty_alone(rule):
    """Six nodes of one class, two per core: three cores take every node once. Without the penalty
    they never move, nor where nodes are condensed once and for all.
    """
    hidden = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    prediction, none = Prediction.of(hidden, torch.ones(6, 1)), torch.zeros(6, dtype=torch.int64)
    for penalty, every, distinct in ((2.0, 10, 6), (0.0, 10, 2), (2.0, 0, 2)):
        config = DanceConfig(
            prototypes=1, coverage_penalty=penalty, core_rule=rule, core_refresh_every=every
        )
        queue = condense_nodes(prediction, pool(none), config, 1 / 3, torch.Generator())
        cores = [queue.core(turn) for turn in range(3)]
        assert torch.cat(cores).unique().numel() == distinct
        assert all(core.numel() == 2 for core in cores)
        # What later condensations do about it: those that were in cores come last.
        times = none.clone()
        times[queue.nodes] += queue.times(1)
        again = condense_nodes(prediction, pool(none, times), config, 1 / 3, torch.Generator())
        if rule == "label-aware":
            assert torch.isin(again.core(0), cores[0]).any() == (penalty == 0)


@given(**worlds, ratio=st.sampled_from([0.3, 0.5]), most=st.integers(0, 6))
def test_a_batch_is_at_most_as_large_as_asked(seed, n, known, present, tau, ratio, most):
    rng = np.random.default_rng(seed)
    probs, labels = quarters(rng, n), draw_labels(rng, n, known, present)
    hidden = torch.tensor(rng.standard_normal((n, 6)), dtype=torch.float32)
    prediction = Prediction.of(hidden, torch.tensor(probs))
    config = DanceConfig(confidence=tau, prototypes=2, batch_nodes=most)
    nodes = pool(torch.tensor(labels))
    queue = condense_nodes(prediction, nodes, config, ratio, torch.Generator())
    full = oracle.node_budget(n, ratio)
    budget = min(full, most) if most else full
    assert core_budget(n, ratio, most) == budget
    counted = sum(label >= 0 for label in oracle.pseudo_labels(probs, labels, tau)) or n
    for turn in range(3):
        core = queue.core(turn).tolist()
        assert core == sorted(set(core)) and len(core) == min(budget, counted)


@pytest.mark.parametrize("rule", ["label-aware", "random"])
@pytest.mark.parametrize("stays", [{"coverage_penalty": 0.0}, {"core_refresh_every": 0}])
def test_a_core_that_stays_is_trained_through_in_batches(rule, stays):
    """40 nodes, K = 20, K_b = 6: four rounds train on the 20 nodes of one core and on no other."""
    hidden = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    prediction, none = Prediction.of(hidden, torch.ones(40, 1)), torch.zeros(40, dtype=torch.int64)
    config = DanceConfig(prototypes=1, core_rule=rule, batch_nodes=6, **stays)
    queue = condense_nodes(prediction, pool(none), config, 0.5, torch.Generator().manual_seed(3))
    cores = [queue.core(turn) for turn in range(12)]
    assert all(core.numel() == 6 for core in cores)
    assert torch.cat(cores[:4]).unique().numel() == torch.cat(cores).unique().numel() == 20


@pytest.mark.parametrize(
    ("nodes", "ratio", "most", "every", "expected"),
    [
        (1000, 0.08, 0, 10, 10),
        (1000, 0.08, 80, 10, 10),
        (1000, 0.08, 512, 10, 10),
        (100_000, 0.08, 512, 10, 16),
        (1_000_000, 0.08, 512, 10, 157),
        (1_000_000, 0.08, 512, 0, 0),
        (1_000_000, 0.08, 512, 1000, 1000),
    ],
)
def test_a_large_core_is_condensed_once_it_was_trained_through(nodes, ratio, most, every, expected):
    """8000 nodes in batches of 512 are 15.6 rounds, 80,000 are 156.25; never stays never."""
    assert rounds_per_condensation(nodes, ratio, most, every) == expected


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    budget=st.integers(0, 30),
    wanted=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_every_class_of_the_floor_has_a_node_where_there_are_enough(sizes, budget, wanted):
    floor = [want and size > 0 for want, size in zip(wanted, sizes, strict=False)]
    quota = class_quotas(torch.tensor(sizes), budget, torch.tensor(floor)).tolist()
    assert quota == oracle.quotas(sizes, budget, [c for c, least in enumerate(floor) if least])
    assert sum(quota) == min(budget, sum(sizes))
    assert all(0 <= part <= size for part, size in zip(quota, sizes, strict=True))
    held = sum(part > 0 for part, least in zip(quota, floor, strict=True) if least)
    assert held == min(sum(floor), budget)
