"""The benchmark of self-expression prints what the scale of features does."""

from support.builders import clustered
from support.project import PROJECT

from dance_flwr.dance.config import DanceConfig


def test_it_prints_what_the_scale_does(monkeypatch):
    """One row at the scale of a layer norm and one of unit norm, of 40 nodes."""
    monkeypatch.syspath_prepend(str(PROJECT / "studies" / "benchmarks"))
    import topology as benchmark

    core = benchmark.Core(*clustered(6, 40), DanceConfig())
    head, rule, *rows = benchmark.table([core], [4.0], [3.0])
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (head, *rows)]
    assert rule.count("---") == len(cells[0]) == len(cells[1]) == len(cells[2])
    before, now = (dict(zip(cells[0], row, strict=True)) for row in cells[1:])
    assert (before["rows"], now["rows"]) == ("plain", "unit") and before["steps"] == "20"
    for column in ("non-zero %", "above minimum %"):
        assert float(before[column]) > float(now[column]) >= 0
    for column in ("Jaccard", "S mean %", "beta x2 %"):
        assert float(now[column]) > float(before[column])
