"""Faithfulness: re-prediction against the whole client run again, controls of equal size, measures
by hand.
"""

import json
from dataclasses import replace
from math import exp, sqrt
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from dance_flwr_studies.engine.cells import Request
from dance_flwr_studies.metrics.controls import (
    CONTROLS,
    EVIDENCE,
    Pool,
    control_weights,
    dense_attention,
    rankings,
)
from dance_flwr_studies.metrics.faithfulness import measures, node_values, outcomes
from dance_flwr_studies.protocols.faithfulness.estimates import estimates
from dance_flwr_studies.protocols.faithfulness.protocol import EXPERIMENT, faithfulness
from oracles import interventions as oracle
from study_support.masks import quick_masks
from support.builders import ATTENTION_DIM, CPU, SHAPE, lists, ragged, random_csr, rows_of

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.client_data.text_table import TextTable
from dance_flwr.config.plugins import BACKBONES
from dance_flwr.config.sections import ReadingConfig
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import plain_pass, predict
from dance_flwr.dance.model import DanceModel, PaperModel
from dance_flwr.dance.passes import Reader
from dance_flwr.data.graphs.graph import csr_from_pairs
from dance_flwr.errors import UserError
from dance_flwr.evidence import interventions
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.interventions import repredict
from dance_flwr.nn.model import ModelShape
from dance_flwr.nn.ragged import budgeted_rows

SETTINGS = DanceConfig(hop1_budget=2, hop2_budget=1, hop2_pool=2, chunk_budget=4)


class MemorySite(ClientData):
    """A client without a folder."""

    def __init__(self, **parts):
        self.__dict__.update(parts, _inputs={}, _cached={}, _stored=None, _reading=ReadingConfig())


def make_site(graph, chunks, sizes):
    """What prediction and explanation read of a client."""
    n, total = len(sizes), int(sum(sizes))
    table = TextTable.from_chunks(chunks, torch.tensor(np.cumsum([0, *sizes])))
    return MemorySite(
        device=CPU,
        table=table,
        label_table=torch.eye(SHAPE.classes)[torch.arange(n) % SHAPE.classes]
        * (torch.arange(n) % 3 > 0)[:, None],
        train_labels=torch.where(torch.arange(n) % 3 > 0, torch.arange(n) % SHAPE.classes, -1),
        graph=LocalGraph(rows_of(graph), torch.ones(n, dtype=torch.bool)),
        bank=SimpleNamespace(tokens=np.arange(total) + 1, spans=np.zeros((total, 2), np.int32)),
        chunk_sha256=np.zeros((total, 32), np.uint8),
        card=SimpleNamespace(num_nodes=n, class_names=tuple("abcd")),
    )


def random_site(seed, n=24, density=0.08):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 5, n)  # nodes without text among them
    draw = torch.Generator().manual_seed(seed)
    chunks = torch.nn.functional.normalize(torch.randn(int(sizes.sum()), 12, generator=draw), dim=1)
    path = csr_from_pairs(
        np.arange(n - 1), np.arange(1, n), n
    )  # nodes farther than any copy reaches
    return make_site(random_csr(rng, n, density) if density else path, chunks, sizes)


def random_model(seed, backbone="gcn"):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        kind = PaperModel if seed % 3 == 0 else DanceModel
        model = kind(
            SHAPE, backbone, 0.5, attention_dim=ATTENTION_DIM, label_evidence=seed % 2 == 0
        ).eval()
        for parameter in model.parameters():
            parameter.data += 0.5 * torch.randn_like(parameter)
    return model


def by_hand():
    """Node 0 holds chunks 0 (along axis 0) and 1 (axis 1), its neighbour chunk 2 (axis 2); every
    g_v is (1, 0).

    Chunk scores are 5, 0, 0, so the pack of node 0 is chunk 0 alone. x = LN(t~ / 2) and the logits
    are (2 x_0, x_1): a lone chunk along axis i gives x_i = sqrt(3) and -1/sqrt(3) elsewhere, so
    chunk 0 alone decides for class 0.
    """
    shape = ModelShape(text_dim=4, hidden_dim=2, classes=2)
    model = PaperModel(shape, "gcn", 0.0, attention_dim=2).eval()
    for parameter in model.parameters():
        parameter.data.zero_()
    model.backbone.second.bias.data[0] = 1
    model.chunk_query.weight.data[0, 0] = 10
    model.fuse_text.weight.data = torch.eye(4)
    model.norm.weight.data.fill_(1)
    model.head_fused.weight.data[0, 0], model.head_fused.weight.data[1, 1] = 2, 1
    data = make_site(csr_from_pairs(np.array([0]), np.array([1]), 2), torch.eye(4)[:3], [2, 1])
    return model, data, DanceConfig(chunk_budget=2, mix=1, views="fused", anchor_temperature=0)


def at(model, data, settings=SETTINGS):
    return Explainer(model, data, settings)


def sigmoid(value):
    return 1 / (1 + exp(-value))


WITH_FIRST, ONLY_SECOND = sigmoid(2 * sqrt(3) + 1 / sqrt(3)), sigmoid(-2 / sqrt(3) - sqrt(3))
SECOND_AND_THIRD = sigmoid(-2 - 1)  # equal scores: t~ = (0, 1, 1, 0) / 2, x = (-1, 1, 1, -1)


@pytest.mark.parametrize(
    ("left", "probability"),
    [
        ([0, 1, 2], WITH_FIRST),
        ([0], WITH_FIRST),
        ([0, 2], WITH_FIRST),
        ([1], ONLY_SECOND),
        ([1, 2], SECOND_AND_THIRD),
        ([], 0.5),
    ],
)
def test_one_chunk_decides_a_class_by_hand(left, probability):
    model, data, settings = by_hand()
    probs = repredict(at(model, data, settings), torch.tensor([0]), ragged([left]))
    assert probs[0, 0].item() == pytest.approx(probability, abs=1e-4)


def test_measures_of_the_case_by_hand():
    model, data, settings = by_hand()
    seen = outcomes(
        at(model, data, settings), torch.tensor([0]), 2, torch.Generator().manual_seed(0)
    )
    assert seen.packs.chunks.tolist() == [0] and seen.budgets == (1, 2) and seen.gap == 0
    assert seen.pool_chunks.tolist() == [3] and seen.pool_tokens.tolist() == [1 + 2 + 3]
    for label, right in ((0, 1), (1, 0)):
        found = measures(node_values(seen, torch.tensor([label])))
        pack = {name.split("/")[1]: v for name, v in found.items() if name.startswith(EVIDENCE)}
        assert pack["comprehensiveness"] == pytest.approx(WITH_FIRST - SECOND_AND_THIRD, abs=1e-4)
        assert pack["deletion"][0].tolist() == pytest.approx(
            [WITH_FIRST, SECOND_AND_THIRD, SECOND_AND_THIRD], abs=1e-4
        )
        assert pack["sufficiency"] == pytest.approx(0, abs=1e-5)
        assert (pack["correct-removed"], pack["correct-kept"]) == (1 - right, right)
        assert found["predicted/correct"] == right


@pytest.mark.parametrize("trained", ["plain", "core"])
@pytest.mark.parametrize("density", [0.0, 0.12])
@pytest.mark.parametrize(("seed", "backbone"), list(enumerate(BACKBONES)))
def test_replicas_predict_what_the_whole_client_predicts(seed, backbone, density, trained):
    data, model = random_site(seed, density=density), random_model(seed, backbone)
    views = ["plain+core+fused", "core", "fused", "plain"][(seed + (trained == "core")) % 4]
    settings = replace(SETTINGS, views=views, plain_weight=float(trained == "plain"))
    # Not every node, as the oracle predicts a whole client for each; others in each case.
    first = int(trained == "core")
    targets = torch.tensor([*range(first, data.num_nodes, 4), first, first])
    rng = np.random.default_rng(seed)
    kept = [[c for c in sorted(oracle.pool(data, int(v))) if rng.random() < 0.6] for v in targets]
    found = repredict(at(model, data, settings), targets, ragged(kept))
    wanted = [
        oracle.repredict(model, data, settings, int(v), left)
        for v, left in zip(targets, kept, strict=True)
    ]
    torch.testing.assert_close(found, torch.stack(wanted), atol=2e-5, rtol=0)
    assert (
        found - predict(Reader(model, data, settings, data.graph))["deployed"][targets]
    ).abs().max() > 0.01


def pooled_by_loops(data, left, contexts):
    """t_u of each node from these chunks around these contexts; 0 without chunks. [n, d]"""
    rows = []
    for u, numbers in enumerate(left):
        own = data.table.chunks[torch.tensor(numbers, dtype=torch.int64)]
        scores = own @ contexts[u] / data.reading.text_temperature
        ptr = torch.tensor([0, len(numbers)])
        weights = budgeted_rows(scores, ptr, data.reading.pooled_chunks)
        rows.append((weights[:, None] * own).sum(0))
    return torch.stack(rows)


def agreeing_site(seed):
    """A client whose texts are pooled by agreement, and c_u of the last pass; by loops."""
    data = random_site(seed, density=0.12)
    data.inductive, data._rows = False, data.graph.rows
    data._reading = ReadingConfig(text_pooling="agreement", text_temperature=0.5, pooled_chunks=2)
    own, texts = lists(data.table.chunks_of), data.table.nodes
    for _ in range(3):
        length = texts.norm(dim=1, keepdim=True).clamp(min=1e-12)
        total = torch.stack([(texts / length)[near].sum(0) for near in lists(data.graph.rows)])
        total = torch.where(total.norm(dim=1, keepdim=True) == 0, texts, total)
        contexts = torch.nn.functional.normalize(total, dim=1)
        texts = pooled_by_loops(data, own, contexts)
    data.table = replace(data.table, nodes=texts)
    return data, contexts


@pytest.mark.parametrize("seed", range(4))
def test_texts_pooled_by_agreement_are_pooled_again_around_the_same_contexts(seed):
    (data, contexts), model = agreeing_site(seed), random_model(seed)
    targets, rng = torch.arange(seed, data.num_nodes, 4), np.random.default_rng(seed)
    kept = [[c for c in sorted(oracle.pool(data, int(v))) if rng.random() < 0.6] for v in targets]
    found = repredict(at(model, data), targets, ragged(kept))
    for row, (v, chosen) in enumerate(zip(targets.tolist(), kept, strict=True)):
        gone = oracle.pool(data, v) - set(chosen)
        left = [[c for c in row if c not in gone] for row in lists(data.table.chunks_of)]
        nodes = pooled_by_loops(data, left, contexts)
        client = SimpleNamespace(
            num_nodes=data.num_nodes,
            device=CPU,
            table=TextTable(data.table.chunks, ragged(left), nodes),
            graph=data.graph,
            label_table=data.label_table,
        )
        wanted = predict(Reader(model, client, SETTINGS, client.graph))["deployed"][v]
        torch.testing.assert_close(found[row], wanted, atol=2e-5, rtol=0)
    assert (
        found - predict(Reader(model, data, SETTINGS, data.graph))["deployed"][targets]
    ).abs().max() > 0.01


@pytest.mark.parametrize("most", [1, 60, 8192])
def test_nothing_changes_when_everything_is_kept_however_cases_are_batched(most, monkeypatch):
    monkeypatch.setattr(interventions, "_NODES_PER_PASS", most)
    data, model = random_site(7), random_model(7)
    nodes = torch.tensor([5, 2, 2, 23, 0])
    pool = Pool.of(data.graph.hops(), data.table, nodes)
    found = repredict(at(model, data), nodes, pool.chunks)
    torch.testing.assert_close(
        found,
        predict(Reader(model, data, SETTINGS, data.graph))["deployed"][nodes],
        atol=1e-6,
        rtol=0,
    )


def sources(seed, draws=3):
    data, model = random_site(seed), random_model(seed)
    nodes = torch.arange(data.num_nodes)
    pool = Pool.of(data.graph.hops(), data.table, nodes)
    explainer = at(model, data)
    weights = control_weights(explainer, pool, draws, torch.Generator().manual_seed(seed))
    ranked = rankings(explainer.explain(nodes), pool, weights)
    return data, model, nodes, pool, ranked


@pytest.mark.parametrize("seed", range(3))
def test_every_control_takes_as_many_chunks_of_the_pool_as_the_pack(seed):
    data, _, nodes, pool, ranked = sources(seed)
    packs = lists(ranked[EVIDENCE][0])
    assert {name: len(rows) for name, rows in ranked.items()} == {EVIDENCE: 1} | dict(
        zip(CONTROLS, (1, 1, 3, 3), strict=True)
    )
    hop = [
        dict(zip(row, marks, strict=True))
        for row, marks in zip(*map(lists, _with_hops(pool)), strict=True)
    ]
    for name, draws in ranked.items():
        for rows in map(lists, draws):
            for v in nodes.tolist():
                assert len(rows[v]) == len(set(rows[v])) == len(packs[v])
                assert set(rows[v]) <= oracle.pool(data, v)
                if name.endswith("-by-hop"):
                    assert sorted(hop[v][c] for c in rows[v]) == sorted(hop[v][c] for c in packs[v])
    assert lists(ranked["random"][0]) != lists(ranked["random"][1])


def _with_hops(pool):
    return pool.chunks, type(pool.chunks)(pool.chunks.ptr, pool.hop)


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_dense_attention_is_gates_times_chunk_weights_with_softmax(temperature):
    data, model, nodes, pool, _ = sources(4)
    settings = replace(SETTINGS, anchor_temperature=temperature)
    found = torch.split(
        dense_attention(at(model, data, settings), pool), pool.chunks.ptr.diff().tolist()
    )

    def direction(text):
        return text / text.norm().clamp(min=1e-12) / temperature if temperature else 0 * text

    hidden = plain_pass(Reader(model, data, SETTINGS, data.graph)).hidden
    gamma, hops = model.hop_logits.softmax(0), data.graph.hops()
    nearest, best = model.neighbour_queries(hidden), model.chunk_queries(hidden)
    for v in nodes.tolist():
        around = [hops.zero, hops.one, hops.two]
        wanted, members_chunks, context = [], [], torch.zeros(12)
        for hop, neighbours in enumerate(around):
            members = neighbours(torch.tensor([v])).index
            query = nearest[v] + direction(data.table.nodes[v])
            gate = (data.table.nodes[members] @ query).softmax(0)
            for u, weight in zip(members.tolist(), gate, strict=True):
                context = context + gamma[hop] * weight * data.table.nodes[u]
                for chunk in data.table.chunks_of.take(torch.tensor([u])).index:
                    wanted.append(gamma[hop] * weight)
                    members_chunks.append(data.table.chunks[chunk])
        scores = [chunk @ (best[v] + direction(context)) for chunk in members_chunks]
        if wanted:
            torch.testing.assert_close(
                found[v], torch.stack(wanted) * torch.stack(scores).softmax(0)
            )


def test_curves_start_at_the_full_text_and_the_empty_pool_and_end_at_the_pack():
    data, model = random_site(2), random_model(2)
    nodes = torch.tensor([1, 4, 9, 16])
    seen = outcomes(at(model, data), nodes, 2, torch.Generator().manual_seed(0))
    pool = Pool.of(data.graph.hops(), data.table, nodes)
    pack = ragged([at(model, data).explain(nodes[[i]]).chunks.tolist() for i in range(4)])
    rest = pool.chunks.keep(~pool.contains(pack))
    assert seen.budgets == (1, 2, 4)
    torch.testing.assert_close(
        seen.full, predict(Reader(model, data, SETTINGS, data.graph))["deployed"][nodes]
    )
    torch.testing.assert_close(
        seen.removed[EVIDENCE][0, -1], repredict(at(model, data), nodes, rest)
    )
    torch.testing.assert_close(
        seen.retained[EVIDENCE][0, -1], repredict(at(model, data), nodes, pack)
    )
    torch.testing.assert_close(seen.bare, repredict(at(model, data), nodes, ragged([[]] * 4)))
    assert seen.gap < 1e-6
    for name, draws in zip((EVIDENCE, *CONTROLS), (1, 1, 1, 2, 2), strict=True):
        assert seen.removed[name].shape == seen.retained[name].shape == (draws, 3, 4, 4)


@pytest.fixture(scope="module", autouse=True)
def masks():
    with quick_masks():
        yield


@pytest.fixture(scope="module")
def analysed(dance):
    return faithfulness(dance.folder, dance.config, dance.partition, draws=2)


def test_analysis_of_a_run_is_of_its_deployed_predictor(dance, analysed):
    assert analysed == json.loads(json.dumps(analysed)) and len(json.dumps(analysed)) < 20_000
    assert analysed["nodes"] == sum(row["test_nodes"] for row in dance.result["clients"])
    assert analysed["largest_gap_to_plain_rerun"] < 1e-5
    assert analysed["budgets"] == [0, 1, 2, 4, 8]
    seen = {name: estimate.mean for name, estimate in estimates([analysed]).items()}
    right = pytest.approx(dance.result["test_accuracy"], abs=1e-4)
    assert seen["predicted/correct"] == right
    lost = seen["predicted/confidence"] - seen[f"{EVIDENCE}/comprehensiveness"]
    assert seen[f"{EVIDENCE}/deletion"][-1] == pytest.approx(lost, abs=1e-4)
    paired = seen[f"{EVIDENCE}/comprehensiveness"] - seen["random/comprehensiveness"]
    assert seen["evidence minus random/comprehensiveness"] == pytest.approx(paired)


def test_analysis_draws_as_many_nodes_as_asked_and_the_same_ones_again(dance):
    first, second = (
        faithfulness(dance.folder, dance.config, dance.partition, nodes=2, draws=1)
        for _ in range(2)
    )
    assert first["nodes"] == 2 and first == second


def test_analysis_wants_a_method_with_evidence(dance, tmp_path):
    for ask in (
        lambda: faithfulness(
            tmp_path, replace(dance.config, method="fedavg-full"), dance.partition
        ),
        lambda: EXPERIMENT.cells(Request(("cora",), ("dance", "fedavg-full"))),
    ):
        with pytest.raises(UserError, match="expected method 'dance', found 'fedavg-full'"):
            ask()
