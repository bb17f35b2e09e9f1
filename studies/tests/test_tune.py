"""The search: equal budgets, validation alone, the base configuration first, and a file that can be
used.
"""

from dataclasses import replace

import numpy as np
import pytest
from support.graphs import SMALL

pytest.importorskip("optuna")

from dance_flwr_studies.engine import cells, tune
from dance_flwr_studies.engine.cells import Request
from dance_flwr_studies.engine.folder import Study, read_json
from dance_flwr_studies.engine.tune import COMMON, Search, search, write_tuned
from dance_flwr_studies.protocols import settings

from dance_flwr.config.plugins import METHODS
from dance_flwr.config.text import read_config
from dance_flwr.config.tree import parse
from dance_flwr.dance.config import DanceConfig
from dance_flwr.data.graphs.folder import read_folder, write_folder
from dance_flwr.data.graphs.graph import TEST, TRAIN
from dance_flwr.errors import UserError
from dance_flwr.methods import get_spec


def plan(**changes):
    settings = {
        "dataset": "cora",
        "method": "dance",
        "trials": 6,
        "rounds": 3,
        "seeds": (0, 1),
        "overrides": {},
    }
    return Search(**settings | changes)


@pytest.fixture
def scored(monkeypatch):
    """A search without runs: a trial's validation accuracy is a function of its values."""
    asked = []

    def grid(study, cells, jobs, again, log):
        asked.append(list(cells))

    def score(study, cells):
        config = cells[0].config
        if config.dropout == 0.3:
            return None
        return 0.5 + config.learning_rate + (0.1 if config.hidden_dim == 128 else 0)

    monkeypatch.setattr(tune, "run_grid", grid)
    monkeypatch.setattr(tune, "_score", score)
    monkeypatch.setattr(tune, "_check_validation", lambda plan: None)
    return asked


def test_the_best_trial_is_the_best_on_validation(scored, tmp_path):
    best = search(plan(trials=12), Study(tmp_path), 1, lambda line: None)
    trials = read_json(tmp_path / "tune" / "cora-dance.json")["trials"]
    assert len(trials) == 12 and [trial["trial"] for trial in trials] == list(range(12))
    assert best["val_accuracy"] == max(
        trial["val_accuracy"] for trial in trials if trial["val_accuracy"] is not None
    )
    assert all(
        trial["values"]["dropout"] == 0.3 for trial in trials if trial["val_accuracy"] is None
    )


def test_a_search_repeats_and_starts_from_the_base_configuration(scored, tmp_path):
    for name in ("a", "b"):
        search(plan(), Study(tmp_path / name), 1, lambda line: None)
    first, second = (read_json(tmp_path / name / "tune" / "cora-dance.json") for name in ("a", "b"))
    assert first == second
    base = {
        "hidden-dim": 64,
        "learning-rate": 0.01,
        "weight-decay": 5e-4,
        "dropout": 0.5,
        "dance.mix": 0.6,
    }
    assert base.items() <= first["trials"][0]["values"].items()


def test_the_rules_of_the_paper_are_searched_by_themselves(scored, tmp_path):
    """What `paper = true` fixes is not searched, and the file is not that of the method."""
    paper = plan(overrides={"paper": True})
    best = search(paper, Study(tmp_path), 1, lambda line: None)
    assert "dance.plain-weight" not in paper.space and "dance.alpha" in paper.space
    assert all(cell.config.paper for cells in scored for cell in cells)
    assert write_tuned(paper, best, tmp_path).name == "cora-dance-paper.toml"
    assert "--set paper=true" in (tmp_path / "cora-dance-paper.toml").read_text()
    assert not (tmp_path / "cora-dance.toml").exists()


def test_an_experiment_reads_the_search_of_its_rules(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "TUNED", tmp_path)
    (tmp_path / "cora-dance.toml").write_text("dropout = 0.1")
    (tmp_path / "cora-dance-paper.toml").write_text("dropout = 0.3")
    found = {
        cell.labels["variant"]: cell.config.dropout
        for cell in settings.EXPERIMENT.cells(Request(("cora",), (), (5,)))
    }
    assert found.pop("default") == 0.1 and set(found.values()) == {0.3}


def test_every_choice_is_a_value_that_the_configuration_accepts():
    for method in METHODS:
        for key, values in {**COMMON, **get_spec(method).search}.items():
            for value in values:
                parse({key: value})


def test_what_a_search_found_is_written_with_the_command_that_found_it(tmp_path):
    best = {"trial": 3, "values": {"hidden-dim": 128, "dance.mix": 0.4}, "val_accuracy": 0.8871}
    path = write_tuned(plan(overrides={"ema-decay": 0.9}), best, tmp_path)
    assert path.name == "cora-dance.toml"
    text = path.read_text()
    assert "88.71 %" in text and "--seeds 0 1 --set ema-decay=0.9" in text
    config = read_config([path], [], {})
    assert (config.hidden_dim, DanceConfig.of(config).mix) == (128, 0.4)
    assert list(tmp_path.iterdir()) == [path]


def test_a_search_in_which_every_trial_fails_says_where_to_look(scored, tmp_path):
    with pytest.raises(UserError, match="6 that failed"):
        search(plan(overrides={"dropout": 0.3}), Study(tmp_path), 1, lambda line: None)


def test_a_real_search_on_a_small_graph(tiny, cli, tmp_path):
    words = [
        "tune",
        "--dataset",
        tiny,
        "--method",
        "fedavg-full",
        "--trials",
        2,
        "--rounds",
        2,
        "--seeds",
        0,
    ]
    done = cli(
        *words, "--set", "clients=2", "--set", "hidden-dim=8", "--jobs", 1, "--out", tmp_path
    )
    assert done.code == 0, done.err
    trials = read_json(tmp_path / "tune" / "tiny-fedavg-full.json")["trials"]
    assert len(trials) == 2 and all(0 < trial["val_accuracy"] <= 1 for trial in trials)
    assert f"{max(trial['val_accuracy'] for trial in trials):.4f} on validation" in done.out


# Nothing to choose by


@pytest.fixture
def unvalidated(tiny, tmp_path, monkeypatch):
    """A search on a graph whose own split has no validation nodes; a run of it is an error."""
    graph = read_folder(tiny)
    split = np.where(np.arange(graph.num_nodes) % 2, TRAIN, TEST).astype(np.uint8)
    write_folder(replace(graph, split=split), tmp_path / "unvalidated")
    monkeypatch.setattr(tune, "run_grid", lambda *_: 1 / 0)
    small = {**SMALL, "data-root": str(tmp_path / "root")}
    return plan(
        dataset=str(tmp_path / "unvalidated"), method="fedavg-full", rounds=1, overrides=small
    )


NOTHING_TO_CHOOSE_BY = (
    "tune: expected validation nodes, by which it chooses settings, found none in .* with seed 0"
)


def test_a_search_without_validation_nodes_is_refused_before_a_run(unvalidated, tmp_path):
    with pytest.raises(UserError, match=NOTHING_TO_CHOOSE_BY):
        search(unvalidated, Study(tmp_path / "study"), 1, lambda line: None)
    assert not (tmp_path / "study").exists()
