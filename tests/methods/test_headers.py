"""The header of every method states the paper's accuracy and that of the committed rows."""

from importlib import import_module

import pytest
from support.project import PROJECT

from dance_flwr.config.plugins import METHODS
from dance_flwr.methods import get_spec
from dance_flwr.study.engine.rows import load_rows
from dance_flwr.study.reports.paper_values import main_number, main_ratios
from dance_flwr.study.reports.tables import groups

NAMES = {"cora": "Cora", "citeseer": "CiteSeer"}


@pytest.fixture(scope="module")
def ours():
    """Return (dataset, method, ratio or "full") -> mean test accuracy in %."""
    rows = load_rows(PROJECT / "docs" / "reproduction" / "results.jsonl").by_experiment[
        "main-table"
    ]
    return {
        (group.labels["dataset"], group.labels["method"], group.labels["ratio"]): 100
        * accuracy.mean
        for group in groups(rows)
        if "variant" not in group.labels
        and (accuracy := group.stat("test_accuracy")).mean is not None
    }


def sentence(dataset, method, ours):
    ratios = main_ratios(dataset) if get_spec(method).card.by_ratio else ("full",)
    measured = [ours.get((dataset, method, ratio)) for ratio in ratios]
    here = " / ".join("-" if mean is None else f"{mean:.2f}" for mean in measured)
    printed = [main_number(dataset, method, None if ratio == "full" else ratio) for ratio in ratios]
    theirs = " / ".join(f"{value[0]:.2f}" for value in printed if value)
    at = " at r = 8 / 4 / 2 %" if len(ratios) > 1 else ""
    paper = f"{theirs} % in the DANCE paper, " if theirs else ""
    start = f"Test accuracy of `{method}` on {NAMES[dataset]}{at}: {paper}"
    return start + (f"{here} % here." if any(measured) else "not measured yet.")


@pytest.mark.parametrize("dataset", NAMES)
@pytest.mark.parametrize("method", METHODS)
def test_a_header_states_the_papers_number_and_ours(dataset, method, ours):
    header = import_module(METHODS.builtin[method].partition(":")[0]).__doc__
    assert sentence(dataset, method, ours) in " ".join(header.split())
