"""GNNExplainer as a source of chunks: what it optimises, and equal terms with the other sources."""

import pytest
import torch
from dance_flwr_studies.engine.cells import Row
from dance_flwr_studies.metrics.controls import CONTROLS, EVIDENCE, Pool, control_weights, rankings
from dance_flwr_studies.metrics.faithfulness import EXPLAINER, OTHERS, SOURCES, measures
from dance_flwr_studies.protocols.faithfulness.estimates import pack, unpack
from dance_flwr_studies.protocols.faithfulness.gnn_explainer import (
    _Around,
    masked_chunks,
    node_mask,
)
from dance_flwr_studies.protocols.faithfulness.protocol import EXPERIMENT, faithfulness
from dance_flwr_studies.protocols.faithfulness.tables import NAMES
from study_support.masks import quick_masks

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.passes import Reader, plain_pass
from dance_flwr.evidence.explain import Explainer
from dance_flwr.federation.client.client import open_client
from dance_flwr.nn.backbone import normalise
from dance_flwr.nn.ragged import prefix
from dance_flwr.runs.result import load_model


@pytest.fixture(scope="module")
def client(dance):
    """A client of a finished run with its model."""
    opened = open_client(dance.partition / "client-0", dance.settled)
    opened.load(load_model(dance.folder))
    opened.model.eval()
    return opened


def test_the_view_around_a_node_is_the_plain_view(client):
    data, model = client.data, client.model
    reader = Reader(model, data, DanceConfig(), data.graph)
    whole = torch.softmax(model.graph_logits(plain_pass(reader).hidden), dim=1)
    for node in range(0, data.num_nodes, 5):
        asked = torch.tensor([node])
        ball = data.graph.around(model.backbone.operator, asked, model.backbone.reach)
        found = _Around(model, ball.operators)(normalise(data.table.nodes[ball.nodes]), asked)
        assert torch.allclose(found.exp(), whole[asked], atol=1e-5)


def test_a_mask_is_of_what_the_view_reads_and_leaves_the_model_alone(client):
    before = {name: value.clone() for name, value in client.model.state_dict().items()}
    nodes, mask = node_mask(client.model, client.data, torch.tensor(3), steps=5)
    assert nodes[0] == 3 and len(nodes) == len(mask)
    assert ((mask >= 0) & (mask <= 1)).all() and mask.max() > 0
    after = client.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_every_source_has_as_many_chunks_of_the_same_pool(client):
    data, model, settings = client.data, client.model, DanceConfig.of(client.config)
    nodes = torch.tensor([1, 4, 6])
    explainer = Explainer(model, data, settings)
    packs = explainer.explain(nodes)
    pool = Pool.of(data.graph.hops(settings.fan_out), data.table, nodes)

    def weigh(pool):
        return masked_chunks(explainer, 0, pool, steps=5)

    draws = torch.Generator().manual_seed(0)
    ranked = rankings(packs, pool, control_weights(explainer, pool, 1, draws, {EXPLAINER: weigh}))
    assert set(ranked) == set(SOURCES) == {EVIDENCE, *OTHERS} == set(NAMES)
    assert {*CONTROLS} < {*OTHERS}
    sizes = ranked[EVIDENCE][0].ptr.diff()
    for rows in ranked.values():
        for chosen in rows:
            assert torch.equal(chosen.ptr.diff(), sizes) and pool.contains(chosen).sum() == sum(
                sizes
            )
    weights = weigh(pool)
    assert torch.equal(weights, weigh(pool)) and ((weights >= 0) & (weights <= 1)).all()
    # The heaviest chunk of each row is the first.
    first = prefix(ranked[EXPLAINER][0], torch.ones_like(sizes))
    for row in range(len(nodes)):
        own = pool.chunks.rows() == row
        best = pool.chunks.index[own][weights[own].argmax()]
        assert first.index[first.rows() == row].tolist() == [best.item()]


def test_the_analysis_of_a_run_has_the_explainer(dance):
    with quick_masks():
        found = faithfulness(dance.folder, dance.config, dance.partition, nodes=4, draws=1)
    assert {name.split("/")[0] for name in measures(unpack(found["node_values"]))} >= {*SOURCES}
    report = rendered([found])
    assert "| GNNExplainer |" in report and "| GNNExplainer, same hops |" in report
    # A row of before shows what it has, and both together what both have.
    values = unpack(found["node_values"])
    before = {name: value for name, value in values.items() if not name.startswith(EXPLAINER)}
    older = found | {"node_values": pack(before)}
    for analyses in ([older], [found, older]):
        report = rendered(analyses)
        assert "| dense attention |" in report and "| GNNExplainer |" not in report


def rendered(analyses):
    """The text of the report of these analyses."""
    rows = [
        Row(
            experiment="faithfulness",
            labels={"dataset": "tiny", "method": "dance", "seed": seed},
            config={},
            analysis=analysis,
        )
        for seed, analysis in enumerate(analyses)
    ]
    return "\n".join(part for part in EXPERIMENT.render(rows).parts if isinstance(part, str))
