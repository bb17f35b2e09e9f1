"""What a pack says of a prediction: stages are what the client deploys, and parts add up."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.builders import SHAPE, make_client

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import neighbour_labels
from dance_flwr.dance.model import DanceModel, PaperModel
from dance_flwr.disk import write_npz
from dance_flwr.errors import DataError
from dance_flwr.evidence.account import account, log_odds
from dance_flwr.evidence.attribution import FusedLogits, label_logits
from dance_flwr.evidence.pack import FORMAT, PARTS, Packs
from dance_flwr.evidence.render import render
from dance_flwr.federation.client.client import load_at, open_client
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.nn.calibration import Calibration
from dance_flwr.nn.model import ModelShape
from dance_flwr.runs.result import load_model


def random_model(seed, kind=DanceModel, label_evidence=True):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = kind(SHAPE, "gcn", 0.5, attention_dim=5, label_evidence=label_evidence)
        for parameter in model.parameters():
            parameter.data = torch.randn_like(parameter)
    return model.double().eval().requires_grad_(False)


@given(st.integers(0, 10_000), st.integers(0, 9), st.sampled_from([DanceModel, PaperModel]))
def test_the_parts_add_up_to_the_logits(seed, size, kind):
    model, draw = random_model(seed, kind), torch.Generator().manual_seed(seed)
    g, t, y = (
        torch.randn(size, width, generator=draw, dtype=torch.float64)
        for width in (SHAPE.hidden_dim, SHAPE.text_dim, 2 * SHAPE.classes)
    )
    for labels, prior in ((y, None), (None, torch.tensor([0.0, -1, -2, 3]).double())):
        model.prior = prior
        parts = FusedLogits(model, g, t).parts(labels)
        assert parts.shape == (len(PARTS), size, SHAPE.classes)
        torch.testing.assert_close(parts.sum(0), model.fused_logits(model.fuse(g, t), labels))
        assert labels is not None or not parts[PARTS.index("labels")].any()
        assert prior is None or (parts[PARTS.index("prior")] == prior).all()


def test_the_parts_of_a_case_by_hand():
    """W_g g = (2, 0), gated text (0, 0): s = (2, 0) has mean 1 and sigma 1, so N W_g g = (1, -1).

    With gated text (0, 1) instead, s = (2, 1), sigma 1/2: the graph gives (2, -2), the text
    (-1, 1), which is (1, -1) together.
    """
    model = PaperModel(ModelShape(2, 1, 2), "gcn", 0.0, attention_dim=1, label_evidence=True).eval()
    for parameter in model.parameters():
        parameter.data.zero_()
    model.fuse_graph.weight.data = torch.tensor([[2.0], [0.0]])
    model.fuse_text.weight.data = torch.eye(2)
    model.norm.weight.data.fill_(1)
    model.norm.bias.data = torch.tensor([0.5, 0.0])
    model.head_fused.weight.data = torch.eye(2)
    model.head_fused.bias.data = torch.tensor([0.0, 7.0])
    model.head_labels.weight.data[1, 3] = 3.0
    model.prior = torch.tensor([0.0, -4.0])
    text, labels = torch.tensor([[0.0, 0.0], [0.0, 2.0]]), torch.tensor([[0, 0, 0, 0.5]] * 2)
    with torch.no_grad():
        parts = FusedLogits(model, torch.ones(2, 1), text).parts(labels)
    wanted = [
        [[0.5, 7]] * 2,
        [[0, -4]] * 2,
        [[1, -1], [2, -2]],
        [[0, 0], [-1, 1]],
        [[0, 1.5]] * 2,
    ]
    torch.testing.assert_close(parts, torch.tensor(wanted), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("keys", "in_rounds", "at_the_end"),
    [
        ({"dance_views": "plain"}, ["plain", "fused", "deployed"], []),
        ({"dance_views": "core"}, ["fused"], ["core", "deployed"]),
        (
            {"dance_views": "plain+core+fused", "smoothing": "correct-and-smooth"},
            ["plain", "fused"],
            ["core", "deployed", "smoothed"],
        ),
    ],
    ids=str,
)
def test_stages_of_final_packs_are_what_the_client_deploys(run, keys, in_rounds, at_the_end):
    finished = run(rounds=1, **keys)
    store, views = finished.store(0), tuple(keys.get("dance_views", "plain+fused").split("+"))
    early, final = Packs.load(store.round_path(1)), Packs.load(store.final_path)
    order = ["plain", "core", "fused", "deployed", "smoothed"]
    assert early.views == final.views == views and list(early.stages) == in_rounds
    assert list(final.stages) == sorted([*in_rounds, *at_the_end], key=order.index)
    client = open_client(finished.partition / "client-0", finished.settled)
    load_at(client.data, client.model, load_model(finished.folder), finished.settled)
    info = RoundInfo(finished.result["run"], 1, "", final=True)
    scored = client.predict(info, torch.as_tensor(final.nodes))
    raw = client.method.predict(
        client.model, client.data, finished.config, info, torch.as_tensor(final.nodes)
    )
    found = dict(zip(final.stages, final.probs, strict=True))
    np.testing.assert_allclose(final.decisive, scored["deployed"], atol=1e-5)
    for name, probs in raw.items():
        np.testing.assert_allclose(found[name], probs, atol=1e-5)
    assert (final.predicted == scored["deployed"].argmax(1).numpy()).all()
    if "smoothed" in found:
        assert np.abs(found["smoothed"] - found["deployed"]).max() > 0.01
    for packs in (early, final, final.calibrated(Calibration(temperature=2.5))):
        assert_adds_up(packs)


def assert_adds_up(packs):
    """The account of every pack, for every pair of classes, is that of its last stage."""
    for row, probs in enumerate(packs.decisive.astype(float)):
        steps = account(packs, row)
        assert [step.node for step in steps if step.node >= 0] == list(
            packs.neighbours[packs.neighbours_of(row)]
        )
        for other in range(len(probs)):
            odds = sum(log_odds(steps, int(packs.predicted[row]), other))
            best = probs[packs.predicted[row]]
            assert 1 / (1 + np.exp(-odds)) == pytest.approx(best / (best + probs[other]), abs=1e-5)
            assert odds >= 0


# [5, C]: against the last class, which has 0, the first has these.
PARTS_BY_HAND = np.outer(np.float32([0.25, 0, -1, 2, 0]), np.float32([1, 0, 0]))


def rendered(dance, **changes):
    packs = Packs.load(dance.store(0).final_path)
    names, m = dance.data(0).card.class_names, len(packs.nodes)
    assert len(names) == 3
    rows = {name: np.tile(np.float32(row), (m, 1)) for name, row in changes["stages"].items()}
    of_text = np.zeros_like(packs.neighbour_text_logits)
    of_text[packs.neighbours_of(0).start] = PARTS_BY_HAND[3]  # the node's own text
    changed = replace(
        packs,
        views=changes["views"],
        stages=tuple(rows),
        probs=np.stack([*rows.values()]),
        parts=np.tile(PARTS_BY_HAND, (m, 1, 1)),
        neighbour_text_logits=of_text,
        chunk_logits=np.zeros_like(packs.chunk_logits),
    )
    text = render(dance.data(0), changed, 0).partition("summary ")[0]
    for number, name in enumerate(names):
        text = text.replace(name, f"class{number}")
    return changed, text.splitlines()[2:]


@pytest.mark.parametrize(
    ("views", "stages", "expected"),
    [
        (
            ("plain", "fused"),
            {
                "plain": [0.31, 0.08, 0.61],
                "fused": [0.9, 0.06, 0.04],
                "deployed": [0.605, 0.07, 0.325],
            },
            """\
answer      class0 (0.605)
reading     all texts and edges, none marked: class2 (0.610)
reading     the marked text and the neighbours: class0 (0.900)
            the readings disagree
account     class0 against class2: +0.62, the sum of
             +0.25  class sizes
             +2.00  its own text
             -1.00  texts around it, unmarked
             -0.63  the unmarked readings""",
        ),
        (
            ("fused",),
            {"fused": [0.5, 0.3, 0.2], "deployed": [0.5, 0.3, 0.2], "smoothed": [0.7, 0.2, 0.1]},
            """\
answer      class0 (0.700), smoothed over neighbours
            class0 (0.500) before smoothing
reading     the marked text and the neighbours: class0 (0.500)""",
        ),
        (
            ("core",),
            {"fused": [0.5, 0.3, 0.2]},
            """\
answer      class0 (0.500) by the evidence alone
            the deployed one is known at the end of the run
reading     the marked text and the neighbours: class0 (0.500), not part of the answer""",
        ),
    ],
    ids=["readings", "smoothed", "of a round"],
)
def test_the_answer_comes_first_then_the_readings(dance, views, stages, expected):
    packs, lines = rendered(dance, views=views, stages=stages)
    assert "\n".join(lines).startswith(expected)
    assert packs.disagree.any() == ("plain" in views) and not packs.predicted.any()


def test_without_label_evidence_no_label_is_named(run):
    for path in run(rounds=1, dance_label_evidence=False).store(0).all_packs():
        packs = Packs.load(path)
        assert (packs.neighbour_labels == -1).all() and not packs.neighbour_label_logits.any()
        assert not packs.parts[:, PARTS.index("labels")].any()


@pytest.mark.parametrize("personal", ["mix", "tune"])
def test_the_account_of_a_personal_answer_has_a_step_of_the_own_model(run, personal):
    finished = run(rounds=2, personal=personal)
    packs = [Packs.load(finished.store(client).final_path) for client in (0, 1)]
    for each in packs:
        assert_adds_up(each)
    assert {step.kind for each in packs for step in account(each, 0)} >= {"personal"}


def test_packs_of_the_former_format_are_refused(dance, tmp_path):
    with np.load(dance.store(0).final_path) as file:
        arrays = dict(file)
    assert int(arrays.pop("format")) == FORMAT == 4
    write_npz(tmp_path / "old.npz", arrays)
    with pytest.raises(DataError, match="expected evidence packs of format 4, found format 1; "):
        Packs.load(tmp_path / "old.npz")


@pytest.mark.parametrize("seed", range(4))
def test_effects_of_labels_are_those_of_the_loops_and_add_up(seed):
    client = make_client(seed, 20, 0.25, 3.0, DanceConfig())
    selection, model = client.select(), random_model(seed)
    labels = torch.tensor([v % 4 if v % 3 else -1 for v in range(20)])
    table = torch.eye(4, dtype=torch.float64)[labels.clamp(min=0)] * (labels >= 0)[:, None]
    near = neighbour_labels(selection, table)
    fused = FusedLogits(model, client.hidden[client.nodes], client.texts(selection)[1])
    wanted = fused.parts(near)[PARTS.index("labels")]
    rows = torch.cat([ragged.rows() for ragged in selection.hops])
    nodes = torch.cat([ragged.index for ragged in selection.hops])
    hops = torch.cat([torch.full_like(r.index, hop) for hop, r in enumerate(selection.hops)])
    gates, weight = torch.cat(selection.gates), model.head_labels.weight
    logits = label_logits(weight, hops, labels[nodes], gates, 4)
    total = torch.zeros_like(wanted)
    entries = zip(rows.tolist(), nodes.tolist(), hops.tolist(), strict=True)
    for entry, (row, node, hop) in enumerate(entries):
        one = torch.zeros(4).double()
        if hop and labels[node] >= 0:
            one = gates[entry] * weight[:, 4 * (hop - 1) + int(labels[node])]
        torch.testing.assert_close(logits[entry], one)
        total[row] += one
    assert total.any()
    torch.testing.assert_close(total, wanted)
