"""What a reader sees of any page: no raw backticks, and numbers agree with their nouns."""

import re
import shutil

import pytest

from dance_flwr.pages.audit import open_run, write_page
from dance_flwr.pages.document import environment
from dance_flwr.pages.run_page import report_run

pytestmark = pytest.mark.xdist_group("browser")
# "1 nodes", "1 earlier rounds"; not "1 is".
_ONE = re.compile(r"(?<![\d.,±-])1 (?:[a-z]+ )?(?!(?:is|was|has|its|this)\b)[a-z]{2,}s\b")


def report(folder, others, out):
    report_run(folder, others, page=out, log=lambda line: None)
    return out


def audit(folder, client, out):
    with open_run(folder, client, None, 0, lambda line: None) as subject:
        return write_page(subject, out, [], 3, lambda line: None)


@pytest.fixture(scope="module")
def paths(dance, run, reference, tmp_path_factory):
    """Every kind of page."""
    out = tmp_path_factory.mktemp("pages")
    single = run(clients=1, partition="random", rounds=1)  # one of all that is counted
    failed = out / "failed"
    shutil.copytree(single.folder, failed)
    (failed / "result.json").unlink()
    (failed / "error.txt").write_text("expected `a < b`, found 1; run `dance-flwr check`\n")
    masked = reference(rounds=1, method="fedavg-full", privacy_secure_aggregation=True)
    others = [reference(method="local-only").folder]
    return [
        report(single.folder, [], out / "single.html"),
        report(dance.folder, others, out / "compared.html"),
        report(masked.folder, [], out / "masked.html"),
        report(failed, [], out / "failed.html"),
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
