"""The README lists the keys of every rival."""

from support.project import PROJECT

from dance_flwr.config.plugins import METHODS, RIVALS
from dance_flwr.config.text import method_tables
from dance_flwr.methods import get_spec


def tables():
    own = {section for name in METHODS.builtin for section in get_spec(name).sections}
    text = method_tables(RIVALS).split("\n\n### ")
    shared = {section.name for section in own}
    kept = [part for part in text if part.lstrip("# ").partition("\n")[0] not in shared]
    return "\n\n### ".join(kept)


def test_the_readme_lists_the_keys():
    text = (PROJECT / "rivals" / "README.md").read_text(encoding="utf-8")
    assert text.partition("<!-- keys -->\n")[2].partition("\n<!-- /keys -->")[0] == tables()
