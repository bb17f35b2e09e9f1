"""A small graph whose texts, ids and neighbours try to be more than text."""

from dataclasses import replace

import numpy as np

from support.graphs import WORDS, sentences, text_graph

SCRIPT = "<script>alert('text')</script><img src=x onerror=alert(1)><b id=hostile>bold</b>"
COMMENT = "--> ]]> </textarea></style></script><!-- <!--> "
RIGHT_TO_LEFT = "\u05e9\u05dc\u05d5\u05dd \u202e\u2067 gnorw siht daeR \u05e2\u05d5\u05dc\u05dd "
EMOJI = (
    "\U0001f600 one \U0001f469\u200d\U0001f52c two e\u0301 \U00010348 three \U0001f1e9\U0001f1ea. "
)
CONTROLS = "bell \x07 escape \x1b[31m null-ish \x01\x7f return \r\n line \u2028 next \x85 end. "
TEMPLATE = "{{ 7 * 7 }} {% raw %} ${7*7} &lt;&amp;&#x41; \\u0041 %00 "
SINGLE = (
    "\ud83d\ude00 low first \ude00\ud83d and \ud800 alone \udfff. "  # no file format keeps these
)


def hostile_graph():
    """A graph of 36 nodes; every fourth text is hostile, one of them about 1 MB long."""
    rng = np.random.default_rng(11)
    labels = np.arange(36) % 3
    texts = [
        sentences(rng, WORDS[sorted(WORDS)[label]], 2 + i % 3) for i, label in enumerate(labels)
    ]
    bad = [SCRIPT, COMMENT, RIGHT_TO_LEFT, EMOJI, CONTROLS, TEMPLATE, SCRIPT + COMMENT]
    for place, text in zip(range(1, 36, 4), bad, strict=False):
        own = texts[place]
        texts[place] = f"{text}{own} {text}{own}"
    texts[33] = EMOJI + " ".join(texts[33:34] * 10_000) + COMMENT
    ids = [f"n{i}" for i in range(36)]
    ids[1], ids[5], ids[9] = "<script>alert('id')</script>", "a,b --> \u05d0\u202e", "\"'><b>"
    chance = np.where(labels[:, None] == labels[None, :], 0.3, 0.05)
    pairs = np.argwhere(np.triu(rng.random((36, 36)) < chance, 1))
    graph = text_graph("hostile", ids, texts, labels, pairs)
    return replace(graph, class_names=("<i>astronomy</i>", "cooking --> \u202e", "sailing"))
