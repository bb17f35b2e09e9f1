"""A browser for the tests of pages, opened once, and pages to look at."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support import browser as browsers
from support.graphs import WORDS, sentences, text_graph

# Texts, ids and neighbours that try to be more than text.
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


@pytest.fixture(scope="session")
def chromium():
    if reason := browsers.why_not():
        pytest.skip(reason)
    with browsers.browser() as opened:
        yield opened


@pytest.fixture
def alone(chromium):
    """A function that opens a `Watched` page in a context of its own, with playwright's options."""
    contexts = []

    def start(**options):
        contexts.append(chromium.new_context(**options))
        return browsers.Watched(contexts[-1])

    yield start
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def watched(chromium):
    """A function that makes one page new, with options of `renew`: contexts take 0.3 s each."""
    return browsers.Watched(chromium.new_context()).renew


def audited(finished, client, out, texts=None, **options):
    """Write the page of a client of a run; return what it should show.

    `texts` replace those of the client, which then are not those that the packs are about.
    """
    from dance_flwr.pages.audit import NodeSigns, _packs, open_run, write_page

    said = []
    with open_run(finished.folder, client, None, said.append) as subject:
        if texts is not None:
            subject.__dict__["texts"] = texts(subject.texts)
        order = NodeSigns.of(subject.views, subject.labels).order()
        wanted = order[: options.get("most", 200)]
        write_page(subject, out, [], options.get("most", 200), said.append)
        return SimpleNamespace(
            path=out,
            said=said,
            packs=_packs(subject, wanted)[0],
            ids=subject.ids,
            texts=subject.texts,
            names=subject.client.data.card.class_names,
            labels=subject.labels,
            views=subject.views,
            split=subject.client.data.split.numpy(),
        )


@pytest.fixture(scope="session")
def hostile(run, tmp_path_factory):
    """A finished run of one client on the hostile graph."""
    from dance_flwr.data.graphs.folder import write_folder

    folder = tmp_path_factory.mktemp("graphs") / "hostile"
    write_folder(hostile_graph(), folder)
    return run(data=str(folder), clients=1, partition="random", rounds=3)


@pytest.fixture(scope="session")
def audit(hostile, tmp_path_factory):
    """The page of the client of that run, with the evidence of all its nodes."""
    return audited(hostile, 0, tmp_path_factory.mktemp("pages") / "audit.html")


@pytest.fixture(scope="session")
def replaced(hostile, tmp_path_factory):
    """The same page over texts that no file format could keep."""

    def other(texts):
        return [SINGLE * 20 + text + SINGLE for text in texts]

    out = tmp_path_factory.mktemp("pages") / "replaced.html"
    return audited(hostile, 0, out, other)
