"""The audit page in a real browser."""

import json
from hashlib import sha256
from itertools import pairwise

import numpy as np
import pytest

from dance_flwr.pages.audit_pack import pack_digests

pytestmark = pytest.mark.xdist_group("browser")

PACKS = "#rows button.node"


@pytest.fixture
def shown(watched, audit):
    """The page, loaded, with its rows."""
    seen = watched(viewport={"width": 1400, "height": 1000})
    page = seen.open(audit.path)
    page.wait_for_selector(PACKS)
    return seen


def open_pack(page, place):
    """Open the evidence of the node at a place of the table; return when it is there."""
    button = page.locator(PACKS).nth(place)
    row = button.get_attribute("data-row")
    button.click()
    page.wait_for_selector(f'#rows button[data-row="{row}"][aria-current]')
    page.wait_for_function("() => document.activeElement.id === 'evidence'")
    page.evaluate("document.activeElement.blur()")


# Text of every article and mark as JSON, which alone carries half a surrogate pair out of a page.
READ = """() => JSON.stringify([...document.querySelectorAll('#pack article')].map((one) => ({
  text: one.querySelector('.source').textContent,
  marks: [...one.querySelectorAll('mark')].map((mark) =>
    [Number(mark.dataset.rank), mark.dataset.sha256, mark.textContent]),
})))"""


def joined(text):
    """Text as a browser has it: two halves side by side are one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def check_articles(page, audit, row):
    """Compare the articles of the pack of a row with texts and pack."""
    packs, found = audit.packs, json.loads(page.evaluate(READ))
    near = packs.neighbours[packs.neighbour_ptr[row] : packs.neighbour_ptr[row + 1]]
    assert [one["text"] for one in found] == [joined(audit.texts[node]) for node in near]
    marks = sorted(mark for one in found for mark in one["marks"])
    own = range(packs.chunk_ptr[row], packs.chunk_ptr[row + 1])
    assert [mark[0] for mark in marks] == list(range(1, len(own) + 1))
    for (_, digest, text), at in zip(marks, own, strict=True):
        start, end = packs.chunk_spans[at]
        assert text == joined(audit.texts[packs.chunk_nodes[at]][start:end])
        assert digest == packs.chunk_sha256[at].tobytes().hex()
    return marks


def test_every_text_is_the_source_and_nothing_in_it_acts(shown, audit):
    page = shown.page
    elements = page.evaluate("document.querySelectorAll('script, style, img, iframe, i, b').length")
    assert page.locator(PACKS).count() == len(audit.packs.nodes) > 10
    for row in range(len(audit.packs.nodes)):
        open_pack(page, row)
        for _, digest, text in check_articles(page, audit, row):
            assert sha256(text.encode()).hexdigest() == digest
    again = page.evaluate("document.querySelectorAll('script, style, img, iframe, i, b').length")
    assert again == elements == page.locator("script, style").count()
    assert max(map(len, audit.texts)) > 900_000
    assert shown.requests == [audit.path.as_uri()]
    assert shown.console == []


def test_halves_of_surrogate_pairs_stay_what_they_are(watched, replaced):
    seen = watched()
    page = seen.open(replaced.path)
    page.wait_for_selector(PACKS)
    for row in range(3):
        open_pack(page, row)
        check_articles(page, replaced, row)
        assert "is not that of the evidence" in page.inner_text(
            "#pack"
        )  # other texts than were selected
    assert seen.console == []


def test_it_has_no_violations_of_accessibility(shown):
    page = shown.page
    open_pack(page, 0)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert shown.violations() == []


def test_dark_and_narrow_it_has_none_either(watched, audit):
    seen = watched(color_scheme="dark", viewport={"width": 640, "height": 500})
    page = seen.open(audit.path)
    page.wait_for_selector(PACKS)
    open_pack(page, 0)
    # 200 % zoom of 1,280 pixels: the page itself is never wider than the window.
    assert page.evaluate("document.documentElement.scrollWidth") <= 640
    assert seen.violations() == []
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    assert seen.violations() == []


def test_a_walk_by_keyboard_alone(shown, audit):
    page, keys = shown.page, shown.page.keyboard
    focused = "document.activeElement.{}".format
    keys.press("Tab")
    assert page.evaluate(focused("className")) == "skip"
    keys.press("Enter")
    assert page.evaluate(focused("id")) == "main"
    for _ in range(2):  # from the first, which is open
        keys.press("j")
    keys.press("k")
    assert page.evaluate(focused("dataset.row")) == "1"
    keys.press("Enter")
    page.wait_for_function("() => document.activeElement.id === 'evidence'")
    assert page.inner_text("#evidence bdi") == page.locator(PACKS).nth(1).inner_text()
    keys.press("2")
    assert page.is_checked("#verdict-wrong")
    keys.press("n")
    keys.type("jk 1? looks wrong")  # letters in a note are letters
    assert page.input_value("#verdict-note") == "jk 1? looks wrong"
    assert page.is_checked("#verdict-wrong") and not page.locator("#help").is_visible()
    page.evaluate("document.activeElement.blur()")
    keys.press("?")
    assert page.locator("#help").is_visible()
    keys.press("Escape")
    assert not page.locator("#help").is_visible()
    keys.press("l")
    assert page.evaluate(focused("dataset.row")) == "1"
    page.evaluate("document.getElementById('keys-on').checked = false")
    page.evaluate("document.activeElement.blur()")
    keys.press("?")
    assert not page.locator("#help").is_visible()


def test_what_is_folded_opens_by_keyboard(shown, audit):
    page = shown.page
    row = next(
        row
        for row in range(len(audit.packs.nodes))
        for node in [audit.packs.nodes[row]]
        if len(audit.texts[node]) > 100_000
    )
    open_pack(page, row)
    fold = page.locator("#pack button.fold").first
    assert page.locator("#pack .rest").first.is_hidden()
    fold.focus()
    page.keyboard.press("Enter")
    assert page.locator("#pack .rest").first.is_visible()
    assert fold.get_attribute("aria-expanded") == "true"


def test_for_and_against_are_told_apart_without_colour(shown):
    page = shown.page
    page.wait_for_selector("#pack .says")
    page.emulate_media(forced_colors="active")
    look = """([kind, effect]) => {
      const span = { from: 3, to: 7, rank: 1, kind, effect, sha256: "", edge: "" };
      const source = marked("abcdefghij", [span]);
      document.getElementById("pack").append(source);
      const mark = source.querySelector("mark");
      const of = (part) => getComputedStyle(mark, part);
      return [source.textContent, of(null).textDecorationStyle, mark.dataset.sign,
        of("::before").content]; }"""
    for kind, effect, line, sign in (
        ("for", "+0.43", "double", "▲ +0.43"),
        ("against", "\u22120.31", "wavy", "▼ \u22120.31"),
        ("none", "+0.01", "dotted", "● +0.01"),
    ):
        text, style, drawn, before = page.evaluate(look, [kind, effect])
        assert (text, style, drawn) == ("abcdefghij", line, sign)
        # The sign is drawn before the passage; Chromium gives what `content` is made of.
        assert before not in ("none", "normal", "")
    assert page.locator(".legend .sample").all_inner_texts() == ["▲ for", "▼ against", "● none"]


ABOVE = """([selector, high]) => {
  const box = document.querySelector(selector).getBoundingClientRect();
  return box.width > 0 && box.top >= 0 && box.bottom <= high; }"""
ANSWER = (".headline", "#evidence", ".says")
EFFECTS = ("#pack .account select", "#pack .account table", "#pack .advice")
REST = ("#proof summary", "#verdict-right", "#pack mark", "#rows button.node")


@pytest.mark.parametrize(
    ("wide", "high", "parts"),
    [
        (1440, 900, ANSWER + EFFECTS + REST[1:2] + REST[:1] + REST[3:]),
        (768, 1024, ANSWER + EFFECTS + REST[:2]),
        (375, 800, ANSWER),
    ],
)
def test_what_matters_of_the_first_node_is_above_the_fold(watched, audit, wide, high, parts):
    seen = watched(viewport={"width": wide, "height": high})
    page = seen.open(audit.path)
    page.wait_for_selector("#pack .says")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert [part for part in parts if not page.evaluate(ABOVE, [part, high])] == [], scheme
        if wide == 1440:  # the first text begins there, too
            top = page.locator("#pack article .source").first.bounding_box()["y"]
            assert top + 100 < high
        assert page.evaluate("document.documentElement.scrollWidth") <= wide
        assert seen.violations() == [] and seen.console == []
    assert seen.requests == [audit.path.as_uri()]


def test_verdicts_stay_and_leave_as_json(shown, audit, tmp_path):
    page = shown.page
    open_pack(page, 0)
    page.fill("#reviewer", "Anna")
    page.check("#verdict-right")
    page.fill("#verdict-note", "</script> \U0001f600")
    open_pack(page, 1)
    page.select_option("#verdict-class", index=1)
    assert page.is_checked("#verdict-wrong")
    page.reload()
    page.wait_for_selector(PACKS)
    with page.expect_download() as started:
        page.click("#export")
    started.value.save_as(tmp_path / "verdicts.json")
    text = (tmp_path / "verdicts.json").read_text("utf-8")
    content = json.loads(text)
    digests = pack_digests(audit.packs, audit.ids, audit.names)
    found = {one["pack_sha256"]: one for one in content["verdicts"]}
    assert list(found) == digests[:2]
    assert content["reviewer"] == "Anna"
    assert found[digests[0]]["verdict"] == "right" and found[digests[1]]["verdict"] == "wrong"
    index = page.evaluate("unpack('index').then((index) => index.classes)")
    said = audit.packs.predicted[:2]
    assert found[digests[0]]["class"] == index[said[0]]
    assert found[digests[1]]["class"] in set(index) - {index[said[1]]}
    assert found[digests[0]]["note"] == "</script> \U0001f600"
    assert found[digests[1]]["node"] == audit.ids[audit.packs.nodes[1]]
    assert content["source"]["model"] == audit.packs.model_id
    assert not any(source and source[:200] in text for source in audit.texts)
    page.click("#as-text")
    shown_text = json.loads(page.input_value("#export-text"))
    assert shown_text["verdicts"] == content["verdicts"]
    assert shown.console == []
    assert {url.partition(":")[0] for url in shown.requests} <= {"file", "blob"}


def test_the_bars_of_an_account_end_at_the_answer_against_any_class(shown, audit):
    page = shown.page
    open_pack(page, 0)
    options = page.locator("#pack .account option").all_inner_texts()
    assert [name.removesuffix(", the label") for name in options[:1]] == [
        audit.names[audit.packs.rival[0]]
    ]
    for place in range(len(options)):
        page.select_option("#pack .account select", index=place)
        shown_values = page.locator("#pack .account tbody td:last-child").all_inner_texts()
        *adds, total = (float(value.replace("\u2212", "-")) for value in shown_values)
        assert sum(adds) == pytest.approx(total, abs=0.005 * (len(adds) + 4)) and total >= 0
        boxes = [bar.bounding_box() for bar in page.locator("#pack .account .bar").all()]
        ends = [(box["x"], box["x"] + box["width"]) for box in boxes]
        for one, other in pairwise(ends[:-1]):  # each begins where the one before ended
            assert min(abs(x - y) for x in one for y in other) < 6


def test_judged_nodes_are_printed_one_after_the_other(shown, audit, tmp_path):
    page = shown.page
    # Returns nothing, as Playwright calls a function that an expression returns.
    page.evaluate("window.print = () => { window.printed = document.body.innerText; }; undefined")
    page.fill("#reviewer", "Anna")
    for place in range(3):
        open_pack(page, place)
        page.check("#verdict-wrong" if place else "#verdict-right")
        page.fill("#verdict-note", f"note {place}")
    page.evaluate("document.getElementById('judged').style.display = 'block'")
    page.click("#print")
    page.wait_for_function("() => window.printed")
    text = page.evaluate("window.printed")
    digests = pack_digests(audit.packs, audit.ids, audit.names)
    places = [text.index(digest) for digest in digests[:3]]
    assert places == sorted(places) and digests[3] not in text
    # The deliverable says of what it is, and whether that was verified.
    said = text[: places[0]]
    assert "Evidence of client 0, model " in said and "✓ unchanged since training." in said
    assert "▲ for what the model says, ▼ against" in said
    assert "Verdict: right; note 0 (Anna, 20" in text and "Verdict: wrong; note 2 (Anna" in text
    assert page.evaluate("document.querySelectorAll('#judged > *').length") == 0
    assert shown.console == []


def test_rows_are_ordered_by_lead_and_by_signs(shown, audit):
    page = shown.page
    leads = page.locator("#rows td:nth-child(4)")
    before = leads.all_inner_texts()
    page.click("#rows button[data-column=lead]")
    assert [float(x) for x in leads.all_inner_texts()] == sorted(map(float, before))
    page.click("#rows button[data-column=lead]")
    assert leads.all_inner_texts() == before
    page.click("#rows button[data-column=look]")
    signs = [
        text.count(",") + bool(text)
        for text in page.locator("#rows td:nth-child(5)").all_inner_texts()
    ]
    assert signs == sorted(signs, reverse=True)


def test_filters_and_the_matrix_agree_with_the_predictions(shown, audit):
    page = shown.page
    predicted = audit.views["deployed"].argmax(axis=1)
    page.evaluate("for (const one of document.querySelectorAll('#list details')) one.open = true")
    rows = page.locator("#matrix tbody tr")
    counts = np.array([rows.nth(k).locator("td").all_inner_texts() for k in range(3)], int)
    expected = np.zeros((3, 3), int)
    np.add.at(expected, (audit.labels, predicted), 1)
    assert (counts == expected).all()
    label, guess = np.argwhere(expected > 0)[0]
    rows.nth(label).locator("td").nth(guess).locator("button").click()
    names = page.locator("#rows tbody th small bdi").all_inner_texts()
    assert len(names) == expected[label, guess]
    page.click("#filters button[type=reset]")
    # A string that is polled would be evaluated in the page, which its policy forbids.
    page.wait_for_function(
        "(many) => document.querySelectorAll('#rows tbody tr').length === many", arg=len(audit.ids)
    )
    page.check("#f-wrong")
    assert page.locator("#rows tbody tr").count() == int((predicted != audit.labels).sum())
    page.uncheck("#f-wrong")
    page.fill("#f-margin", "0.3")
    margins = [float(text) for text in page.locator("#rows td:nth-child(4)").all_inner_texts()]
    assert margins and max(margins) < 0.3
    page.fill("#f-margin", "")
    page.select_option("#f-split", label="train")
    assert page.locator("#rows tbody tr").count() == int((audit.split == 1).sum())
