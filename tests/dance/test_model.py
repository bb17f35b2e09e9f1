"""omega: texts read by the backbone's own map, or by the paper's matrices."""

from math import sqrt

import pytest
import torch
from support.builders import random_csr, rows_of

from dance_flwr.config.plugins import BACKBONES
from dance_flwr.dance.model import DanceModel, PaperModel
from dance_flwr.methods.dance.client import Dance
from dance_flwr.nn.model import ModelShape
from dance_flwr.nn.propagation import operator

D, H, C = 12, 8, 3
SHAPE = ModelShape(D, H, C)


def build(kind, name="gcn", dropout=0.0):
    torch.manual_seed(2)
    return kind(SHAPE, name, dropout, attention_dim=5, label_evidence=True).double().eval()


def unit(text):
    """LN(t) without parameters."""
    centred = text - text.mean(1, keepdim=True)
    return centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()


@pytest.mark.parametrize("name", BACKBONES)
def test_texts_are_read_through_the_backbones_own_map(name):
    """<M g, t> is the product of A g with U^T t over sqrt(w); the weight is the backbone's, so a
    gradient from the text reaches it.
    """
    model = build(DanceModel, name)
    weight = model.backbone.text_weight()
    width = weight.size(0)
    g, t = torch.randn(4, H).double(), torch.randn(4, D).double()
    for queries, query in (
        (model.neighbour_queries(g), model.query.weight),
        (model.chunk_queries(g), model.chunk_query.weight),
    ):
        wanted = ((g @ query.T) * (t @ weight.T)).sum(1) / sqrt(width)
        torch.testing.assert_close((queries * t).sum(1), wanted)
    torch.testing.assert_close(model.read(t), unit(t) @ weight.T)
    torch.testing.assert_close(model.text_logits(model.read(t)), model.head_text(model.read(t)))
    model.text_logits(model.read(t)).square().sum().backward()
    first = next(p for p in model.backbone.parameters() if p.dim() == 2 and p.size(1) == D)
    assert bool((first.grad != 0).any())


@pytest.mark.parametrize("name", BACKBONES)
def test_the_condensed_graph_starts_after_the_map(name):
    """Fused features equal to read texts give what the backbone gives of these texts."""
    model, rows = build(DanceModel, name), rows_of(random_csr(*_graph()))
    texts = torch.randn(14, D).double()
    ones = torch.ones(rows.index.numel()).double()
    step = operator(model.backbone.operator, rows.rows(), rows.index, ones, 14)
    torch.testing.assert_close(
        model.condensed_hidden(model.read(texts), step), model.backbone(texts, step)
    )
    paper = build(PaperModel, name)
    torch.testing.assert_close(paper.condensed_hidden(texts, step), paper.backbone(texts, step))


def _graph():
    import numpy as np

    return np.random.default_rng(1), 14, 0.3


@pytest.mark.parametrize(
    ("keys", "kind"),
    [({}, DanceModel), ({"dance_paper_rules": True}, PaperModel), ({"paper": True}, PaperModel)],
    ids=str,
)
def test_the_key_chooses_the_matrices(run_config, keys, kind):
    assert type(Dance().build(SHAPE, run_config(**keys))) is kind
