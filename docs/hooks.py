"""What the site takes from outside `docs/`, and links between the two, for `mkdocs.yml`."""

import json
import os
import posixpath
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PROJECT = Path(__file__).parents[1]
# Path in the repository -> path in the site; nothing is written twice.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
    "rivals/README.md": "rivals.md",
    "studies/README.md": "studies.md",
}
NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))
OUTSIDE |= {f"notebooks/{path.name}": f"notebooks/{path.stem}.md" for path in NOTEBOOKS}
OUTSIDE |= {
    f"studies/{name}": name
    for path in sorted((PROJECT / "studies").glob("reproduction/**/*.*"))
    if path.suffix != ".pdf" and path.name != "report.md"
    for name in [path.relative_to(PROJECT / "studies").as_posix()]
}
DECISIONS = "decisions/index.md"
_REPOSITORY_PATH = {site: path for path, site in OUTSIDE.items()}
_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the menu: pages without a place, and the decisions after all others."""
    listed = str(config.nav)
    for title, folder in (("Guides", ""), ("Reference", "reference/")):
        pages = next(part[title] for part in config.nav or [] if title in part)
        for path in sorted((PROJECT / "docs" / folder).glob("*.md")):
            pages += [uri] if (uri := f"{folder}{path.name}") not in listed else []
    guides = next(part["Guides"] for part in config.nav or [] if "Guides" in part)
    guides += [OUTSIDE[f"notebooks/{path.name}"] for path in NOTEBOOKS]
    pages = [DECISIONS, *(f"decisions/{path.name}" for path in _decisions())]
    config.nav = [*(config.nav or []), {"Decisions": pages}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside `docs/`, and the list of decisions."""
    for path, site in OUTSIDE.items():
        source: dict[str, str] = {"abs_src_path": str(PROJECT / path)}
        if path.endswith(".ipynb"):
            source = {"content": notebook_page(PROJECT / path)}
        files.append(File.generated(config, site, **source))
    lines = [
        "# Decisions",
        "",
        "Choices where the paper is silent, and why the code is as it is.",
        "",
    ]
    for path in _decisions():
        title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        lines.append(f"- [{title}]({path.name})")
    files.append(File.generated(config, DECISIONS, content="\n".join(lines) + "\n"))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Turn links that hold in the repository into links that hold in the site.

    A link to what is not part of the site stays as it is, and fails the build.
    """
    uri = page.file.src_uri
    here = posixpath.dirname(_REPOSITORY_PATH.get(uri, f"docs/{uri}"))

    def site_link(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups("")
        path = posixpath.normpath(posixpath.join(here, target))
        site = OUTSIDE.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(f"{site}/index.md"):
            site = f"{site}/index.md"
        if not files.get_file_from_path(site):
            return match[0]
        return f"{before}{os.path.relpath(site, posixpath.dirname(uri) or '.')}{anchor}{after}"

    return _LINK.sub(site_link, markdown)


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown, with outputs if $RUN_NOTEBOOKS is set, as `make docs` does."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    # They lie in the repository without outputs, which would be those of an earlier version.
    if os.environ.get("RUN_NOTEBOOKS"):
        import nbformat
        from nbclient import NotebookClient

        notebook = nbformat.read(path, as_version=4)
        with TemporaryDirectory() as home:
            place = {"metadata": {"path": home}}
            NotebookClient(notebook, timeout=600, resources=place).execute()
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":  # bars of progress
                continue
            data = output.get("data", {})
            shown = output.get("text") or data.get("text/plain", "")
            parts.append(data.get("text/html") or f"```text\n{shown.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _decisions() -> list[Path]:
    return sorted((PROJECT / "docs" / "decisions").glob("[0-9]*.md"))
