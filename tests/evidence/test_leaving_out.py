"""Effects of single chunks: against one prediction at a time, controls by hand, and the budget."""

import numpy as np
import pytest
import torch
from oracles import interventions as oracle
from support.builders import ragged

from dance_flwr.evidence.interventions import repredict
from dance_flwr.evidence.leave_out import _other_chunks, leave_out
from dance_flwr.evidence.pack import Packs
from dance_flwr.nn.ragged import Ragged
from dance_flwr.runs.evidence import FinishedRun
from dance_flwr.seeding import generator


@pytest.fixture(scope="module")
def opened(dance):
    """A run's model at a client, and the packs of five of its nodes."""
    finished = FinishedRun.open(dance.folder)
    explainer = finished.explainer(finished.client(finished.data(0)))
    size = explainer.data.num_nodes
    return explainer, explainer.explain(torch.arange(size)[:: max(size // 5, 1)][:5])


def left(opened, draws=2, most=10**9):
    explainer, packs = opened
    return leave_out(explainer, packs, draws, generator(0, "page"), most)


def predicted_without(explainer, node, left_out):
    """Probabilities of a node and of the same node without some chunks, one at a time."""
    everything = sorted(oracle.pool(explainer.data, node))
    rest = [chunk for chunk in everything if chunk not in left_out]
    nodes = torch.tensor([node, node])
    return repredict(explainer, nodes, ragged([everything, rest])).double()


def odds(probs, packs, row):
    return float(torch.log(probs[packs.predicted[row]]) - torch.log(probs[packs.rival[row]]))


def test_effects_are_those_of_one_prediction_at_a_time(opened):
    explainer, packs = opened
    effects = left(opened)
    assert effects.done.all() and len(effects.chunks) == len(packs.chunks) > 0
    for row, node in enumerate(packs.nodes.tolist()):
        own = packs.chunks_of(row)
        for at, chunk in zip(range(own.start, own.stop), packs.chunks[own].tolist(), strict=True):
            full, rest = predicted_without(explainer, node, {chunk})
            fall = odds(full, packs, row) - odds(rest, packs, row)
            assert effects.chunks[at] == pytest.approx(fall, abs=1e-4)
        full, rest = predicted_without(explainer, node, set(packs.chunks[own].tolist()))
        best = packs.predicted[row]
        assert effects.before[row] == pytest.approx(float(full[best]), abs=1e-5)
        assert effects.before[row] == pytest.approx(packs.confidence[row], abs=1e-5)
        assert effects.without[row] == pytest.approx(float(rest[best]), abs=1e-5)


def test_controls_are_as_many_other_chunks_of_the_same_hops(opened):
    explainer, packs = opened
    data, nodes = explainer.data, torch.as_tensor(packs.nodes)
    chunks = Ragged(torch.as_tensor(packs.chunk_ptr), torch.as_tensor(packs.chunks))
    controls = _other_chunks(explainer, nodes, chunks, 2, generator(0, "page"))
    owner, expected = data.table.node_of_chunk.numpy(), []
    for row, node in enumerate(packs.nodes.tolist()):
        pool, selected = oracle.pool(data, node), set(packs.chunks[packs.chunks_of(row)].tolist())
        near = [oracle.ball(data, node, radius) for radius in (0, 1, 2)]
        hop_of = {c: min(h for h in (0, 1, 2) if owner[c] in near[h]) for c in pool}
        for drawn in controls:
            others = set(drawn.index[drawn.ptr[row] : drawn.ptr[row + 1]].tolist())
            assert not others & selected and others <= pool
            assert len(others) == min(len(selected), len(pool - selected))
            for hop in (0, 1, 2):
                wanted = sum(hop_of[c] == hop for c in selected)
                free = sum(hop_of[c] == hop for c in pool - selected)
                assert sum(hop_of[c] == hop for c in others) >= min(wanted, free)
        probs = [
            predicted_without(explainer, node, set(d.index[d.ptr[row] : d.ptr[row + 1]].tolist()))
            for d in controls
        ]
        best = packs.predicted[row]
        enough = len(pool) >= 2 * len(selected)
        expected.append(np.mean([float(rest[best]) for _, rest in probs]) if enough else np.nan)
    np.testing.assert_allclose(left(opened).control, expected, atol=1e-5)


def test_a_budget_leaves_the_last_ones_out_and_never_the_first(opened):
    few, whole = left(opened, most=0), left(opened)
    assert few.done.tolist() == [True, False, False, False, False]
    first = opened[1].chunks_of(0)
    np.testing.assert_allclose(few.chunks[first], whole.chunks[first], atol=1e-6)
    assert np.isnan(few.chunks[first.stop :]).all() and np.isnan(few.without[1:]).all()


def test_packs_are_taken_and_joined_row_by_row(opened, tmp_path):
    packs = opened[1]
    mixed = packs.take(np.array([3, 0, 3]))
    again = packs.take(np.array([3, 0])).followed_by(packs.take(np.array([3])))
    mixed.save(tmp_path / "a.npz")
    again.save(tmp_path / "b.npz")  # a file has a digest of every array
    one, other = (Packs.load(tmp_path / f"{name}.npz") for name in "ab")
    assert one.nodes.tolist() == packs.nodes[[3, 0, 3]].tolist()
    for name in ("chunk_ptr", "chunk_spans", "neighbour_ptr", "neighbour_label_logits", "probs"):
        assert (getattr(one, name) == getattr(other, name)).all()
    for row, source in enumerate((3, 0, 3)):
        for ptr, names in (
            ("chunk_ptr", ("chunks", "chunk_weights", "chunk_sha256")),
            ("neighbour_ptr", ("neighbours", "neighbour_weights")),
        ):
            here = slice(*getattr(one, ptr)[row : row + 2])
            there = slice(*getattr(packs, ptr)[source : source + 2])
            for name in names:
                assert (getattr(one, name)[here] == getattr(packs, name)[there]).all()
    assert (one.probs == packs.probs[:, [3, 0, 3]]).all()
