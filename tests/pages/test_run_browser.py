"""The page of a run in a real browser."""

import pytest

from dance_flwr.pages.run_page import run_page
from dance_flwr.runs.facts import read_facts

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def path(hostile, tmp_path_factory):
    """The page of a run on a graph whose classes have hostile names."""
    out = tmp_path_factory.mktemp("pages") / "run.html"
    run_page(read_facts(hostile.folder)).write(out)
    return out


@pytest.fixture(scope="module")
def live(hostile, tmp_path_factory):
    """The same page as if the run went on, written again every second."""
    out = tmp_path_factory.mktemp("pages") / "live.html"
    run_page(read_facts(hostile.folder), 1.0).write(out)
    return out


def test_no_request_no_word_on_the_console_no_violation(watched, path):
    seen = watched(viewport={"width": 1200, "height": 900})
    page = seen.open(path)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.locator("svg").count() >= 7
    assert page.locator("i, b, img").count() == 0
    assert page.locator("text=<i>astronomy</i>").count() > 0
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert seen.violations() == [], scheme
    assert seen.requests == [path.as_uri()] and seen.console == []


def test_at_200_percent_nothing_scrolls_the_page_sideways(watched, path):
    page = watched(viewport={"width": 640, "height": 450}).open(path)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 640


@pytest.mark.parametrize(("wide", "high"), [(1440, 900), (768, 1024), (375, 800)])
def test_clients_and_classes_come_first_and_tables_are_folded(watched, path, wide, high):
    page = watched(viewport={"width": wide, "height": high}).open(path)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        check_places(page, wide, high)


def check_places(page, wide, high):
    """Compare places of headings, charts and tables with those of a window of this size."""
    page.evaluate("document.getElementById('clients').scrollIntoView(false)")
    bottoms = {
        name: page.locator(name).first.bounding_box()["y"] + page.evaluate("scrollY")
        for name in ("h1", "progress", "#clients h2", "#classes h2", "#rounds h2", "#left h2")
    }
    assert [*bottoms.values()] == sorted(bottoms.values())
    assert bottoms["#clients h2"] < high
    if wide == 1440:
        assert bottoms["#classes h2"] == bottoms["#clients h2"]  # side by side
        boxes = [chart.bounding_box() for chart in page.locator("#rounds svg").all()]
        assert len(boxes) == 3 and max(b["x"] for b in boxes) > boxes[0]["x"] + boxes[0]["width"]
        assert page.evaluate("document.documentElement.scrollHeight") <= 3 * high
    assert not any(table.is_visible() for table in page.locator("table").all())
    assert page.evaluate("document.documentElement.scrollWidth") <= wide


@pytest.mark.parametrize("wide", [375, 768])
def test_a_chart_of_lines_is_whole_on_a_telephone(watched, path, wide):
    page = watched(viewport={"width": wide, "height": 800}).open(path)
    charts = page.locator("svg[aria-labelledby^='accuracy'], svg[aria-labelledby^='loss']")
    assert charts.count() == 2
    for chart in charts.all():
        box = chart.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= wide
        # No word is cut off or smaller than eleven pixels.
        inside = chart.evaluate(
            "(svg) => [...svg.querySelectorAll('text')].every((text) => {"
            " const [a, b] = [text.getBoundingClientRect(), svg.getBoundingClientRect()];"
            " return a.left >= b.left - 1 && a.right <= b.right + 1; })"
        )
        scale = box["width"] / float(chart.get_attribute("width"))
        size = float(chart.evaluate("(svg) => getComputedStyle(svg).fontSize").removesuffix("px"))
        assert inside and size * scale >= 11


def test_a_live_page_loads_itself_again_unless_it_is_paused(alone, live):
    seen = alone()
    page = seen.open(live)
    fold = page.locator("details").first
    fold.locator("summary").click()
    with page.expect_event("load"):
        pass
    assert page.locator("details").first.get_attribute("open") is not None
    page.locator("#pause").click()
    loads = len(seen.requests)
    page.wait_for_timeout(2500)
    assert len(seen.requests) == loads and set(seen.requests) == {live.as_uri()}
    assert seen.violations() == [] and seen.console == []


def test_a_live_page_that_nobody_writes_says_so(alone, live):
    page = alone().page
    page.clock.install(time="2100-01-01")
    page.goto(live.as_uri())
    page.wait_for_function(
        "() => document.getElementById('live-text').textContent.startsWith('Nobody writes')"
    )


def test_without_scripts_the_page_is_whole_and_loads_itself_again(alone, live):
    seen = alone(java_script_enabled=False)
    page = seen.open(live)
    with page.expect_event("load"):
        pass
    assert page.locator("svg").count() >= 7 and page.locator("#pause").is_hidden()
