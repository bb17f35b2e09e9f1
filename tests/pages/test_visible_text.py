"""What a reader sees of a page: no raw backticks, and numbers agree with their nouns."""

import re

import pytest

from dance_flwr.deploy.certificates import make_key
from dance_flwr.federation.wire.keys import UP
from dance_flwr.pages.audit import open_run, write_page
from dance_flwr.pages.document import environment
from dance_flwr.pages.statement import Statement

pytestmark = pytest.mark.xdist_group("browser")
# "1 nodes", "1 earlier rounds"; not "1 is".
_ONE = re.compile(r"(?<![\d.,±-])1 (?:[a-z]+ )?(?!(?:is|was|has|its|this)\b)[a-z]{2,}s\b")


def audit(folder, client, out):
    with open_run(folder, client, None, lambda line: None) as subject:
        return write_page(subject, out, [], 3, lambda line: None)


@pytest.fixture(scope="module")
def paths(dance, run, tmp_path_factory):
    """Pages of several nodes, and of one of all that is counted."""
    out, single = tmp_path_factory.mktemp("pages"), run(clients=1, partition="random", rounds=1)
    return [
        audit(single.folder, 0, out / "audit.html"),
        audit(dance.folder, 1, out / "rounds.html"),
    ]


def test_no_backtick_and_no_plural_of_one(watched, paths):
    for path in paths:
        page = watched().open(path)
        page.wait_for_function("() => !document.getElementById('pack')?.matches(':empty')")
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        text = page.evaluate("document.body.innerText")
        assert len(text) > 300, path.name
        assert "`" not in text, path.name
        assert [match[0] for match in _ONE.finditer(text)] == [], path.name
        assert "neighbour of a neighbours" not in text


def test_prose_marks_code_and_lets_no_markup_in():
    shown = environment().from_string("{{ text | prose }}").render(text="`a <b>` or <i> `c")
    assert shown == "<code>a &lt;b&gt;</code> or &lt;i&gt; `c"


@pytest.mark.parametrize(("wide", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_page_of_what_left_is_accessible_and_no_word_is_broken(
    watched, dance, tmp_path, wide, scheme
):
    lines = [
        row | {"at": "2026-01-01T00:00:00Z", "run": "x", "round": 1, "dp": "none"}
        for row in dance.result["messages"]
        if row["way"] == UP
    ]
    key = make_key(tmp_path / "node.key").read_text()
    page = Statement("north", "hospitals", "x", lines).page(key, "00")
    page.write(path := tmp_path / "left.html")
    seen = watched(viewport={"width": wide, "height": 900})
    page = seen.open(path)
    page.emulate_media(color_scheme=scheme)
    assert seen.violations() == [] and seen.console == []
    assert seen.requests == [path.as_uri()]
    assert (
        page.evaluate("document.documentElement.scrollWidth") <= wide
    )  # tables scroll by themselves
    widths = [
        box["width"] for cell in page.locator("td.break").all() if (box := cell.bounding_box())
    ]
    assert min(widths) >= 140
