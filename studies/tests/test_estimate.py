"""The hours of a grid: from finished runs of the study, else from committed rows."""

import pytest
from dance_flwr_studies.engine import estimate
from dance_flwr_studies.engine.folder import Study
from dance_flwr_studies.engine.rows import export_rows
from study_support.rows import cells_of, result_of

from dance_flwr.disk import write_json

ASKED = {"datasets": ("cora",), "methods": ("gcond",), "ratios": (0.08,)}


def finish(study, *seconds):
    """Write finished runs of 8 rounds that took so many seconds each."""
    cells = cells_of("main-table", **ASKED, seeds=tuple(range(len(seconds))))
    for cell, total in zip(cells, seconds, strict=True):
        result = result_of(cell.config, 0.5) | {"seconds_total": total}
        write_json(study.run_folder(cell.config) / "result.json", result)
    study.remember("main-table", "a command", cells)


@pytest.mark.parametrize(("own", "hours"), [((), 0.2), ((80.0, 16.0, 8.0), 0.1)])
def test_an_experiment_says_its_hours_before_it_runs(cli, tmp_path, monkeypatch, own, hours):
    """2 runs x 60 rounds x 6 s by committed rows, or x 2 s, the median of the study's own runs."""
    made, rows = Study(tmp_path / "made"), tmp_path / "rows.jsonl"
    finish(made, 48.0)
    export_rows(made.root, rows)
    monkeypatch.setattr(estimate, "COMMITTED", rows)
    monkeypatch.chdir(tmp_path)
    if own:
        finish(Study(tmp_path / "study"), *own)
    words = ("main-table", "--datasets", "cora", "--methods", "gcond", "fedgta", "--ratios", "0.08")
    done = cli("experiment", *words, "--seeds", "10", "11", "--dry-run", "--jobs", "2")
    assert done.code == 0 and "4 runs, 2 at a time" in done.out, done.err
    assert f"{hours:.1f} hours of one core, 2 runs at a time" in done.out
    assert "2 runs like which none has been timed" in done.out
