"""The page of a run in a real browser."""

import pytest

from dance_flwr.deploy.certificates import make_key
from dance_flwr.federation.wire.keys import UP
from dance_flwr.pages.run_page import run_page
from dance_flwr.pages.statement import Statement, privacy_page
from dance_flwr.runs.run import read_run

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def path(hostile, tmp_path_factory):
    """The page of a run on a graph whose classes have hostile names."""
    out = tmp_path_factory.mktemp("pages") / "run.html"
    run_page(read_run(hostile.folder)).write(out)
    return out


def test_no_request_no_word_on_the_console_no_violation(watched, path):
    seen = watched(viewport={"width": 1200, "height": 900})
    page = seen.open(path)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.locator("i, b, img").count() == 0
    assert page.locator("text=<i>astronomy</i>").count() > 0
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert seen.violations() == [], scheme
    assert seen.requests == [path.as_uri()] and seen.console == []


@pytest.mark.parametrize("of", ["server", "site"])
@pytest.mark.parametrize(("wide", "scheme"), [(1280, "light"), (390, "dark")])
def test_pages_of_what_left_are_accessible_and_no_word_is_broken(
    watched, dance, tmp_path, of, wide, scheme
):
    lines = [
        row | {"at": "2026-01-01T00:00:00Z", "run": "x", "round": 1, "dp": "none"}
        for row in dance.result["messages"]
        if row["way"] == UP
    ]
    if of == "server":
        left = privacy_page(dance.result)
    else:
        key = make_key(tmp_path / "node.key").read_text()
        left = Statement("north", "hospitals", "x", lines).page(key, "00")
    left.write(path := tmp_path / "left.html")
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


@pytest.fixture(scope="module")
def compared(dance, reference, tmp_path_factory):
    """The page of a run beside another method and each client alone."""
    out = tmp_path_factory.mktemp("pages") / "compared.html"
    folders = [reference(method=m).folder for m in ("fedavg-full", "local-only")]
    others = {folder: read_run(folder) for folder in folders}
    run_page(read_run(dance.folder), others).write(out)
    return out


@pytest.mark.parametrize(("wide", "high"), [(1440, 900), (1280, 800), (768, 1024), (390, 844)])
def test_the_first_screen_is_the_answer(watched, compared, wide, high):
    page = watched(viewport={"width": wide, "height": high}).open(compared)
    table = page.locator("#answer table")
    for place in (page.locator(".score"), table):
        box = place.bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= high
        assert box["x"] >= 0 and box["x"] + box["width"] <= wide
    assert table.locator("tbody tr").count() == 4  # the run, two others, the largest class
    curves = page.locator("#answer .plot").bounding_box()
    if wide >= 1280:  # beside the answer, and so are the facts
        assert curves["y"] + curves["height"] <= high
        assert page.locator(".cards").bounding_box()["y"] < high
        assert page.evaluate("document.documentElement.scrollHeight") <= 3 * high
    visible = [one for one in page.locator("table").all() if one.is_visible()]
    assert len(visible) == 3  # the answer, clients, classes
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
