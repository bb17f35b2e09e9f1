"""A browser for the tests of pages, opened once, and pages to look at."""

from types import SimpleNamespace

import pytest
from support import browser as browsers
from support.hostile import SINGLE, hostile_graph


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
    with open_run(finished.folder, client, None, 0, said.append) as subject:
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
