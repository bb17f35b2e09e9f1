"""Rows and tables of runs in which nothing was validated or tested."""

import pytest
from dance_flwr_studies.engine.cells import Row
from dance_flwr_studies.engine.compact_rows import compact
from dance_flwr_studies.reports.tables import NOTHING, Group
from support.edge_cases import Draft

from dance_flwr.data.graphs.graph import TEST, VAL

KEYS = {"partition": "random", "clients": 2, "rounds": 2, "method": "fedavg-full"}


def test_a_table_has_no_accuracy_where_nothing_was_validated(run, crafted):
    result = run(data=crafted("edge", *Draft().without(VAL).parts()), **KEYS).result
    row = compact(result, {}, curve=True)
    assert row["val_accuracy"] is None
    assert row["test_accuracy"] == pytest.approx(result["test_accuracy"], abs=1e-5)
    assert Group({}, [Row("main-table", {}, result=row)]).stat("val_accuracy").percent == NOTHING


def test_a_row_has_no_accuracy_where_nothing_was_measured(run, crafted):
    data = crafted("edge", *Draft().without(VAL, TEST).parts())
    row = compact(run(data=data, **KEYS).result, {}, curve=True)
    assert row["test_accuracy"] is None
