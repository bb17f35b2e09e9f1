"""The study of cores, on made-up rows."""

from collections import Counter

from dance_flwr_studies.protocols.cores import FOREIGN, MOVING, ONCE
from study_support.rows import cells_of


def test_a_rule_is_run_where_it_moves_and_where_it_lasts():
    cells = cells_of("cores", datasets=("cora", "debian"), seeds=tuple(range(7)))
    count = Counter((c.labels["dataset"], c.labels["core"]) for c in cells)
    # Three rules; two ratios and all seeds on clean text, three and five with foreign text.
    assert count == {
        ("cora", ONCE): 42,
        ("cora", MOVING): 42,
        ("cora", FOREIGN): 45,
        ("debian", FOREIGN): 45,
    }
    for cell in cells:
        flat = cell.config
        assert flat.foreign_text_ratio == 0.75 * (cell.labels["core"] == FOREIGN)
        assert flat.condensation_ratio == cell.labels["ratio"]
