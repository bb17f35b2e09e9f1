"""The notebooks run from the first cell to the last, offline, and lie in the repository without
outputs.
"""

import os

import nbformat
import pytest
from nbclient import NotebookClient
from support.project import PROJECT

NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))


def printed(notebook):
    """All that the cells of an executed notebook printed or returned, as text."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    texts = [output.get("text", "") for output in outputs]
    return "\n".join(texts + [output.get("data", {}).get("text/plain", "") for output in outputs])


WORDS = {
    "condense_a_graph": ("Core(21 of 209 nodes", "ratio_of_tokens", "trained on 21 nodes: "),
    "audit_a_prediction": (
        *("Result(dance, 5 clients", "unaltered: True", "round 10: loss"),
        "without the selected passages",
    ),
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_twice(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    # Twice, as readers do: what the first pass has left is no obstacle.
    notebook.cells += nbformat.from_dict(notebook.cells)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=os.environ | {"PYTHONPATH": str(PROJECT)})
    text = printed(notebook)
    for word in WORDS[path.stem]:
        assert word in text, text
    assert "unaltered: False" not in text and "Traceback" not in text
    shown = [
        output.data["text/html"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]
    assert any("⟦[1]" in each for each in (text, *shown))
    assert not any("<script" in html for html in shown)
