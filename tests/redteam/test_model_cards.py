"""Names of strangers in a model card: text for whoever renders it, never an element or a link."""

import re
from types import SimpleNamespace

import pytest
from markdown_it import MarkdownIt

from dance_flwr.api.bundle import card_text
from dance_flwr.nn.calibration import Calibration

NAMES = {
    "HTML": "<script>alert(1)</script>",
    "attribute": '"><img src=x onerror=alert(1)>',
    "comment": "<!-- the rest of the card",
    "picture": "![seen](https://tracker.example/pixel.png)",
    "link": "[log in](javascript:alert(1))",
    "reference": "[x]: https://evil.example",
    "autolink": "<https://evil.example>",
    "bare link": "https://evil.example and www.evil.example",
    "cell": "a | accuracy | 0.99",
    "code": "`a` ``b``",
    "emphasis": "**verified** ~~never~~ __by us__",
    "entity": "&lt;b&gt; &#60;",
    "escape": "\\<b\\> \\|",
    "mathematics": "$\\href{javascript:alert(1)}{x}$",
    "heading": "a\n# Verified\n\n---\n",
    "plain": "Größe, naïve café's 数据 - a.b (c)",
}


def card(name):
    """The card of a run with two classes and an encoder of this name."""
    facts = {
        "method": "dance",
        "config": {"clients": 3, "rounds": 5},
        "privacy": {"dp": "none", "secure_aggregation": False},
        "dance_flwr": "0.1.0",
        "best_round": 4,
        "validated": True,
        "test_accuracy": 0.5,
        "test_nodes": 10,
        "test_macro_f1": 0.25,
        "model_fingerprint": "0" * 16,
        "provenance": name,
    }
    agreement = SimpleNamespace(class_names=("Other", name), encoder=name, encoder_sha256="a" * 64)
    return card_text(facts, agreement, Calibration())


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_name_is_text_in_its_cell(name):
    body = card(name).split("\n---\n", 1)[1]
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(body)
    honest = MarkdownIt("commonmark").enable("table").render(card("A").split("\n---\n", 1)[1])
    assert re.findall(r"</?\w+", html) == re.findall(r"</?\w+", honest)
    shown = " ".join(name.split())
    assert f"<td>Other, {plain_html(shown)}</td>" in html
    assert f"<td>{plain_html(shown)}, weights aaaaaaaaaaaa</td>" in html
    assert f"<td>{plain_html(shown)}</td>" in html
    # Renderers of GitHub and of the hub also make links of bare addresses.
    assert "https:" not in body and "www." not in body


def plain_html(text):
    return MarkdownIt("zero").renderInline(text)
