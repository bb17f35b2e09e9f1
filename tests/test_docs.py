"""`make docs`: the site builds strictly, shows what the repository says, and fetches nothing."""

import os
import re
import shutil
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
    """What a page fetches, links to and is anchored by."""

    def __init__(self, path):
        super().__init__()
        self.fetched, self.links, self.ids = [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids.add(values.get("id"))
        if tag in FETCHED and FETCHED[tag] in values:
            self.fetched.append(values[FETCHED[tag]])
        elif tag == "link" and values.get("rel") not in ("canonical", "prev", "next"):
            self.fetched.append(values["href"])
        elif tag == "a" and values.get("href"):
            self.links.append(values["href"])


def build(project, out):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    done = build(PROJECT, out)
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


def test_every_link_between_pages_leads_somewhere(site, pages):
    seen = 0
    for name, page in pages.items():
        for link in page.links:
            if name == "404.html" or re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = ((site / name).parent / path).resolve() if path else site / name
            assert target.is_file(), f"{name}: {link}"
            if anchor and target.suffix == ".html":
                other = pages[target.relative_to(site.resolve()).as_posix() if path else name]
                assert anchor in other.ids, f"{name}: {link}"
            seen += 1
    assert seen > 1000


def test_the_readme_is_the_first_page_and_tables_are_tables(pages, site):
    """Python-Markdown reads the same files as GitHub, by other rules."""
    text = (site / "index.html").read_text(encoding="utf-8")
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    tables = len(re.findall(r"^\|[ :|-]+\|$", readme, re.MULTILINE))
    assert text.count("<table") == tables > 0
    assert not [path for path in site.rglob("*") if path.suffix in (".py", ".pyc")]
    assert "condensation-ratio" in text and "<h1" in text and "docs/llm.md" not in text
    assert {"contributing.html", "changelog.html", "decisions/index.html"} <= set(pages)
    for path in (PROJECT / "docs" / "decisions").glob("*.md"):
        assert f"decisions/{path.stem}.html" in pages


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


def test_the_search_works_in_a_page_that_was_opened_as_a_file(site, tmp_path):
    """In a real browser without a network, whose console stays empty."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if not browser:
        pytest.skip("no browser here: install chromium")
    page = f"{(site / 'index.html').as_uri()}?q=bundle"
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    options += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000"]
    command = [browser, *options, "--enable-logging=stderr", "--dump-dom", page]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert re.search(r"md-search-result__meta\">\d+ matching documents<", done.stdout)
    assert ":CONSOLE" not in done.stderr


LINKS = [
    ("README.md", "[gone](docs/gone.md)", "docs/gone.md"),
    ("README.md", "[gone](docs/llm.md#no-such-heading)", "no-such-heading"),
    ("docs/llm.md", "[code](../dance_flwr/disk.py)", "dance_flwr/disk.py"),
    ("docs/decisions/orphan.md", "# A page that no menu names", "orphan.md"),
]


def test_what_leads_nowhere_fails_the_build(tmp_path):
    """A copy of the documents without figures and reference."""
    project = tmp_path / "project"
    shutil.copytree(PROJECT / "docs", project / "docs", ignore=shutil.ignore_patterns("*.png"))
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "mkdocs.yml"):
        shutil.copy(PROJECT / name, project)
    for name in ("rivals", "studies"):
        (project / name).mkdir()
        shutil.copy(PROJECT / name / "README.md", project / name)
    shutil.copytree(PROJECT / "notebooks", project / "notebooks")
    for page in (project / "docs" / "reference").glob("*.md"):
        page.write_text("# Reference\n", encoding="utf-8")
    (project / "docs" / "reproduction.md").write_text("# Gone\n", encoding="utf-8")
    for file, text, _ in LINKS:
        with (project / file).open("a", encoding="utf-8") as page:
            page.write(f"\n{text}\n")
    done = build(project, tmp_path / "site")
    assert done.returncode == 1
    for _, _, complaint in LINKS:
        assert complaint in done.stderr
