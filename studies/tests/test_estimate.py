"""The hours of a grid: from finished runs, else committed rows, else a default."""

import pytest
from dance_flwr_studies.engine import estimate as module
from dance_flwr_studies.engine.folder import Study
from dance_flwr_studies.engine.rows import export_rows
from study_support.rows import cells_of, result_of

from dance_flwr.disk import write_json


def finish(study, cells, seconds):
    """Write finished runs of 8 rounds that took so many seconds in all."""
    for cell in cells:
        result = result_of(cell.config, 0.5) | {"seconds_total": seconds}
        write_json(study.run_folder(cell.config) / "result.json", result)
    study.remember("main-table", "a command", cells)


def cells(dataset, method, seeds=(0, 1, 2)):
    """Runs of 100 rounds."""
    found = cells_of(
        "main-table",
        datasets=(dataset,),
        methods=(method,),
        seeds=seeds,
        ratios=(0.08,),
        rounds=100,
    )
    plain = [cell for cell in found if "variant" not in cell.labels]
    assert len(plain) == len(seeds)
    return plain


@pytest.fixture
def study(tmp_path):
    return Study(tmp_path / "study")


@pytest.fixture
def committed(tmp_path):
    """Rows of gcond on cora: 4 seconds for 8 rounds."""
    made, file = Study(tmp_path / "made"), tmp_path / "rows.jsonl"
    finish(made, cells("cora", "gcond"), 4.0)
    export_rows(made.root, file)
    return file


def samples_of(study, committed):
    return [*module._of_study(study), *module._of_rows(committed)]


def test_seconds_are_the_median_of_the_same_method_and_data_set(study, committed):
    for seed, seconds in enumerate((80.0, 16.0, 8.0)):
        finish(study, cells("cora", "dance", (seed,)), seconds)
    finish(study, cells("citeseer", "dance"), 800.0)
    samples = samples_of(study, committed)
    assert module.per_round(samples, "cora", "dance") == (2.0, "finished runs")
    assert module.per_round(samples, "cora", "fedgm") == (module.DEFAULT, "default")


def test_rows_of_the_same_data_set_come_before_runs_of_another(study, committed):
    finish(study, cells("citeseer", "gcond"), 800.0)
    samples = samples_of(study, committed)
    assert module.per_round(samples, "cora", "gcond") == (0.5, "committed rows")
    expected = (100.0, "finished runs on other data sets")
    assert module.per_round(samples, "wikics", "gcond") == expected


def test_an_experiment_says_its_hours_before_it_runs(cli, tmp_path, monkeypatch, committed):
    monkeypatch.setattr(module, "COMMITTED", committed)
    monkeypatch.chdir(tmp_path)
    words = ("main-table", "--datasets", "cora", "--methods", "gcond", "--ratios", "0.08")
    done = cli("experiment", *words, "--seeds", "0", "1", "--dry-run", "--jobs", "2")
    # 2 runs x 60 rounds x 0.5 s
    assert done.code == 0 and "2 runs, 2 at a time" in done.out
    assert "about 30 s: 0.0 hours of one core, 2 runs at a time" in done.out
    assert "committed rows" in done.out and not (tmp_path / "study" / "runs").exists()
