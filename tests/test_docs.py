"""`make docs`: the site builds strictly, shows what the repository says, and fetches nothing."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec

import pytest
from support.project import PROJECT

pytestmark = pytest.mark.skipif(
    not (find_spec("material") and find_spec("mkdocstrings")),
    reason="no mkdocs here: pip install 'dance-flwr[docs]'",
)
# Elements that a browser fetches by itself, and the attribute with the address.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}


class Page(HTMLParser):
    """What a page fetches, and what it is anchored by."""

    def __init__(self, path):
        super().__init__()
        self.fetched, self.ids = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids.add(values.get("id"))
        if tag in FETCHED and FETCHED[tag] in values:
            self.fetched.append(values[FETCHED[tag]])
        elif tag == "link" and values.get("rel") not in ("canonical", "prev", "next"):
            self.fetched.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, in which no link between pages leads nowhere."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site):
    return {path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html")}


def test_a_page_fetches_from_its_own_folder_only(site, pages):
    for name, page in pages.items():
        for address in page.fetched:
            assert not re.match(r"[a-z]+:|//", address), f"{name}: {address}"
            if name != "404.html":  # which a server shows at any depth
                target = (site / name).parent / address.partition("?")[0]
                assert target.is_file(), f"{name}: {address}"
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"@import|url\(\s*[\"']?(?:https?:)?//", text), path
    # The theme loads a renderer of diagrams and the state of a repository for such elements alone.
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert 'class="mermaid"' not in text and 'data-md-component="source"' not in text, path


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("python", ["dance_flwr.data.graphs.graph.TextGraph.subgraph"]),
        ("dance", ["dance_flwr.dance.nodes.condense_nodes", "dance_flwr.evidence.pack.Packs"]),
        ("methods", ["dance_flwr.methods.contract.MethodSpec"]),
        ("prediction", ["dance_flwr.api.bundle.export"]),
    ],
)
def test_the_reference_has_the_docstrings_of_the_code(pages, site, page, names):
    assert set(names) <= pages[f"reference/{page}.html"].ids
    text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
    assert "<strong>Raises</strong>" in text or "<strong>Attributes</strong>" in text
    assert "-------" not in text
