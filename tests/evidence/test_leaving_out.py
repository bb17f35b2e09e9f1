"""Effects of single chunks: against one prediction at a time, controls by hand, and the budget."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from oracles import interventions as oracle
from support.builders import ragged

from dance_flwr.client_data import inputs as derived
from dance_flwr.evidence.metrics.interventions import repredict
from dance_flwr.evidence.metrics.leave_out import leave_out
from dance_flwr.evidence.pack import Packs
from dance_flwr.runs.finished_run import FinishedRun
from dance_flwr.seeding import generator


@pytest.fixture(scope="module")
def opened(dance):
    """A run's model at a client, and the packs of five of its nodes."""
    finished = FinishedRun.open(dance.folder)
    explainer = finished.explainer(finished.data(0))
    size = explainer.data.num_nodes
    return explainer, explainer.explain(torch.arange(size)[:: max(size // 5, 1)][:5])


def left(opened, draws=2, most=10**9):
    explainer, packs = opened
    return leave_out(explainer, packs, draws, generator(0, "page"), most)


def test_effects_are_those_of_one_prediction_at_a_time(opened):
    explainer, packs = opened
    data, found = explainer.data, left(opened)
    assert found.done.all()
    assert found.selected.sum() == len(packs.chunks)
    for case, row in enumerate(found.row):
        node = int(packs.nodes[row])
        everything = sorted(oracle.pool(data, node))
        probs = repredict(
            explainer,
            torch.tensor([node, node]),
            ragged([everything, [c for c in everything if c != found.chunk[case]]]),
        )
        best = int(probs[0].argmax())
        assert found.effect[case] == pytest.approx(float(probs[0, best] - probs[1, best]), abs=1e-5)
        assert found.turned[case] == (int(probs[1].argmax()) != best)


def test_a_client_read_from_disk_has_the_same_effects(opened, dance, monkeypatch):
    """Texts stay in memory-mapped float16 where a client has many chunks."""
    explainer, packs = opened
    wanted = left(opened)
    monkeypatch.setattr(derived, "RESIDENT_BYTES", 0)
    mapped = dance.data(0)
    assert mapped.table.nodes.dtype == torch.float16
    found = left((replace(explainer, data=mapped), packs))
    np.testing.assert_array_equal(found.chunk, wanted.chunk)
    np.testing.assert_allclose(found.effect, wanted.effect, atol=5e-3)


def test_cases_are_the_pack_in_its_order_then_unselected_chunks_of_its_hops(opened):
    explainer, packs = opened
    data, found = explainer.data, left(opened)
    owner = data.table.node_of_chunk.numpy()
    for row in range(len(packs.nodes)):
        cases, node = found.of(row), int(packs.nodes[row])
        own = packs.chunks[packs.chunk_ptr[row] : packs.chunk_ptr[row + 1]]
        chosen = cases[found.selected[cases]]
        assert found.chunk[chosen].tolist() == own.tolist()
        assert cases.tolist()[: len(own)] == chosen.tolist()
        near = [oracle.ball(data, node, radius) for radius in (0, 1, 2)]
        hops = [min(h for h in (0, 1, 2) if owner[c] in near[h]) for c in found.chunk[cases]]
        assert found.hop[cases].tolist() == hops
        controls = found.chunk[cases[~found.selected[cases]]]
        assert not set(controls) & set(own) and len(set(controls)) == len(controls)
        asked = set(found.hop[chosen].tolist())
        for hop in asked:
            free = [
                c
                for c in oracle.pool(data, node) - set(own.tolist())
                if owner[c] in near[hop] and not (hop and owner[c] in near[hop - 1])
            ]
            drawn = (found.hop[cases] == hop) & ~found.selected[cases]
            assert drawn.sum() == min(2, len(free))
        assert set(found.hop[cases].tolist()) == asked


def test_a_budget_leaves_the_last_ones_out_and_never_the_first(opened):
    few = left(opened, most=0)
    assert few.done.tolist() == [True, False, False, False, False]
    assert set(few.row.tolist()) == {0}
    whole = left(opened)
    first = whole.of(0)
    assert np.allclose(few.effect, whole.effect[first], atol=1e-6)


def test_no_packs_have_no_effects(opened):
    explainer, packs = opened
    none = packs.take(np.zeros(0, np.int64))
    found = leave_out(explainer, none, 2, generator(0, "page"), 100)
    assert len(found.done) == len(found.effect) == 0


def test_packs_are_taken_and_joined_row_by_row(opened, tmp_path):
    packs = opened[1]
    mixed = packs.take(np.array([3, 0, 3]))
    again = packs.take(np.array([3, 0])).followed_by(packs.take(np.array([3])))
    mixed.save(tmp_path / "a.npz")
    again.save(tmp_path / "b.npz")  # a file has a digest of every array
    one, other = (Packs.load(tmp_path / f"{name}.npz") for name in "ab")
    assert one.nodes.tolist() == packs.nodes[[3, 0, 3]].tolist()
    for name in ("chunk_ptr", "chunk_spans", "neighbour_ptr", "neighbour_effects", "probs"):
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
