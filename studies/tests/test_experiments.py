"""Grids of runs: what is run, reused, shared, failed and stopped."""

import json
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import pytest
from dance_flwr_studies import EXPERIMENTS, get_experiment
from dance_flwr_studies.engine import folder as study
from dance_flwr_studies.engine import runner
from dance_flwr_studies.engine import worker as work
from dance_flwr_studies.engine.cells import Cell, Request, dataset_name
from dance_flwr_studies.engine.folder import Study, run_name, settings_of
from dance_flwr_studies.engine.runner import check_labels, run_grid
from dance_flwr_studies.protocols import primary, settings
from study_support.inline import Inline
from study_support.rows import cells_of
from support.graphs import SMALL

from dance_flwr.config.tree import RunConfig, flatten, parse
from dance_flwr.dance.config import DanceConfig
from dance_flwr.errors import DataError, UserError
from dance_flwr.fingerprint import provenance
from dance_flwr.runs.result import read_result, write_result

ONE, TWO = ["variant=full"], ["variant=full", "variant=w/o NC"]  # of the seven of the ablation


def results(folder):
    return {
        path.parent.name: path.read_bytes()
        for path in sorted(folder.glob("study/runs/*/result.json"))
    }


def test_the_address_ignores_paths_but_not_settings(tiny):
    config = parse({"data": str(tiny), **SMALL})
    for other in (
        replace(config, out="elsewhere", data_root="elsewhere", device="auto", torch_threads=3),
        replace(config, data="/another/place/tiny"),
        replace(config, data="tiny"),
        replace(config, out="elsewhere", resume=True),
    ):
        assert run_name(other) == run_name(config)
    keys = {"seed": 1, "rounds": 4, "method": "fedavg-full", "dance.mix": 0.5, "ema-decay": 0.5}
    changed = [{key: value} for key, value in (keys | {"data": "other"}).items()]
    names = {run_name(parse({"data": str(tiny), **SMALL, **change})) for change in changed}
    assert len(names | {run_name(config)}) == len(changed) + 1
    assert run_name(config).startswith("tiny-dance-seed0-")


def test_a_key_that_a_later_version_adds_moves_no_run(monkeypatch, tiny):
    config = parse({"data": str(tiny), **SMALL})
    name = run_name(config)
    monkeypatch.setattr(study, "flatten", lambda c: flatten(c) | {"later.key": 1})
    assert run_name(config) == name


def test_a_default_that_has_changed_is_no_result_of_today(go, tmp_path):
    assert go("ablation", labels=ONE) == 0
    (path,) = sorted(tmp_path.glob("study/runs/*/result.json"))
    result = read_result(path.parent)
    write_result(path.parent, result | {"config": result["config"] | {"ema-decay": 0.5}})
    config = parse(result["config"])
    made = Study(tmp_path / "study")
    assert made.run_folder(config) == path.parent and not made.has_run(config)
    write_result(path.parent, result | {"config": result["config"] | {"fedgta.epsilon": 0.9}})
    assert made.has_run(config), "no key of this method"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_protocol_has_cells_that_parse_and_are_unique(name):
    experiment = get_experiment(name)
    assert experiment.title and experiment.question
    request = Request(("cora", "citeseer"), experiment.methods, experiment.seeds[:2])
    cells = experiment.cells(request)
    assert cells
    check_labels(cells)
    for cell in cells:
        if cell.measure:
            continue
        assert (
            cell.labels["dataset"] == dataset_name(cell.config.data)
            and cell.labels["seed"] == cell.config.seed
        )
        if cell.config.method == "dance":
            assert DanceConfig.of(cell.config).evidence_keep == "final"
        else:
            assert not [key for key in settings_of(cell.config) if key.startswith("dance.")]


CORE, READING = {"dance.core-rule"}, {"text-pooling", "edge-gates", "class-prior"}
FIRST, MOVES = {"dance.labelled-first"}, {"dance.coverage-penalty"}


@pytest.mark.parametrize(
    ("name", "where", "base", "keys"),
    [
        (
            *("ablation", {}, "full"),
            {
                "w/o TGR": {"dance.topology-rule", "edge-gates"},
                "w/o TC": {"dance.text-rule", "text-pooling"},
                "w/o labels": {"dance.label-evidence", "class-prior"},
                **dict.fromkeys(("w/o NC", "random labelled core", "covering core"), CORE),
            },
        ),
        ("primary", {"regime": primary.CLEAN}, primary.DANCE, {primary.RANDOM: CORE}),
        ("primary", {"regime": primary.CLEAN}, primary.FULL, {primary.READS: READING}),
        ("primary", {"regime": primary.CLEAN}, primary.DRAWN, {primary.COVER: CORE}),
        (
            *("settings", {"rounds": 60}, settings.PUBLISHED),
            {
                "labelled nodes first": FIRST,
                "a core that moves": MOVES,
                settings.BOTH: FIRST | MOVES,
            },
        ),
    ],
)
def test_a_variant_changes_what_it_is_named_for(name, where, base, keys):
    cells = [c for c in cells_of(name, seeds=(5,)) if c.labels.items() >= where.items()]
    of = {cell.labels["variant"]: settings_of(cell.config) for cell in cells}
    for variant, wanted in keys.items():
        assert {key for key, value in of[base].items() if of[variant][key] != value} == wanted


def test_overrides_win_over_files_but_cannot_make_labels_wrong():
    request = Request(("cora",), (), (0,), 7, {"max-chunks": 3, "dance.mix": 0.25})
    config = request.config("cora", "dance", 2, {"dance.alpha": 8.0, "rounds": 9})
    assert (config.rounds, config.max_chunks, DanceConfig.of(config).mix, config.seed) == (
        7,
        3,
        0.25,
        2,
    )
    with pytest.raises(
        UserError, match=r"--set dance.mix: expected a key that this experiment does not set"
    ):
        request.config("cora", "dance", 2, {"dance.mix": 0.75})
    assert Request(("cora",), ()).config("cora", "dance", 0).max_chunks == 16, (
        "from configs/cora.toml"
    )


def test_a_killed_grid_continues_and_keeps_finished_runs(go, inline, tmp_path, capsys):
    asked = {"seeds": (0, 1), "labels": TWO}
    inline.stop_before = 1
    assert go("ablation", **asked) == 130
    first = results(tmp_path)
    assert len(first) == 1 and "repeat the command to continue" in capsys.readouterr().out
    inline.stop_before, before = None, list(inline.done)
    assert go("ablation", **asked) == 0
    every = results(tmp_path)
    assert len(every) == 4 and every.items() >= first.items()
    assert len(inline.done) == 4 and not {name for _, name in before} & {
        name for _, name in inline.done[1:]
    }
    assert go("ablation", **asked) == 0
    assert len(inline.done) == 4 and results(tmp_path) == every


def test_a_run_leaves_facts_and_nothing_at_the_clients(go, tmp_path):
    assert go("main-table", methods=["fedavg-full", "dance"]) == 0
    folders = sorted((tmp_path / "study" / "runs").iterdir())
    assert len(folders) == 4, "three ratios, and one without condensation"
    for folder in folders:
        names = {path.name for path in folder.iterdir()}
        assert names == {"result.json", "model.safetensors", "history.jsonl", "facts.json"}
        result, facts = (
            json.loads((folder / name).read_text()) for name in ("result.json", "facts.json")
        )
        core = [
            None if client is None else sum(client.values()) for client in facts["core_per_class"]
        ]
        if result["method"] == "dance":
            assert sum(core) == result["per_condensed_node"]["nodes_per_round"]
        else:
            assert core == [None] * 3
        assert sum(sum(client.values()) for client in facts["train_per_class"]) > 0
        assert facts["cpu_seconds"] > 0
        assert not list(Path(result["partition_dir"]).glob("client-*/runs/study-*"))
    assert not [path for path in folders if path.name.startswith(".")]


def test_protocols_share_runs(go, inline):
    both = ["dance", "fedavg-full"]
    assert go("main-table", methods=both) == 0
    assert len(inline.done) == 4
    assert go("convergence", methods=both) == 0 and go("tokens", methods=both) == 0
    assert len(inline.done) == 4
    assert go("ablation") == 0
    assert len(inline.done) == 4 + 6, "all but the full method"


def test_a_failing_cell_is_reported_and_the_others_finish(go, tmp_path, monkeypatch, capsys, tiny):
    from dance_flwr.runs.simulation import in_process as runtime

    real = runtime.run_in_process

    def sometimes(config, *rest):
        if config.condensation_ratio == 0.04:
            raise ValueError("a reason\nof two lines")
        return real(config, *rest)

    monkeypatch.setattr(runtime, "run_in_process", sometimes)
    assert go("main-table", methods=["dance"], datasets=["nowhere", str(tiny)]) == 2
    out = capsys.readouterr().out
    failed = [line for line in out.splitlines() if line.startswith("failed")]
    assert len(failed) == 4 and sum("found 'nowhere'" in line for line in failed) == 3
    assert sum("ValueError: a reason of two lines" in line for line in failed) == 1
    assert "2 made, 0 found, 4 failed" in out and len(results(tmp_path)) == 2
    (note,) = (tmp_path / "study" / "failed").iterdir()
    assert "Traceback" in note.read_text()
    monkeypatch.setattr(runtime, "run_in_process", real)
    assert go("main-table", methods=["dance"]) == 0 and not list(
        (tmp_path / "study" / "failed").iterdir()
    )


@pytest.mark.parametrize("pair", ["variant=w/o", "variant", "colour=red"])
def test_labels_that_no_cell_carries_are_refused(go, pair):
    with pytest.raises(UserError, match="--where: expected a"):
        go("ablation", labels=[pair])


def test_a_dry_run_runs_nothing(go, inline, tmp_path, capsys):
    assert go("ablation", seeds=(0, 1), dry_run=True, jobs=2) == 0
    out = capsys.readouterr().out
    assert (
        "14 runs, 2 at a time" in out
        and "variant=w/o NC" in out
        and "14 runs like which none has been timed" in out
        and "hours of one core, 2 runs at a time" in out
    )
    assert not inline.done and not (tmp_path / "study").exists()
    assert go("ablation", labels=TWO) == 0
    assert go("ablation", seeds=(0, 1), labels=TWO, dry_run=True) == 0
    out = capsys.readouterr().out
    assert "2 runs" in out and "1 of 2" in out and "none has been timed" not in out


@pytest.mark.parametrize("data", ["corra", "./cora", "/nowhere/graph"])
def test_a_dry_run_refuses_data_that_do_not_exist(go, inline, tmp_path, data):
    with pytest.raises(DataError, match=r"expected one of .*cora"):
        go("ablation", datasets=(data,), dry_run=True)
    # Not fetched yet: what a grid costs is asked before its data are.
    assert go("ablation", datasets=("cora",), dry_run=True) == 0


def test_again_repeats_runs_and_other_code_is_counted(go, inline, tmp_path, capsys):
    assert go("ablation", labels=TWO) == 0
    for path in tmp_path.glob("study/runs/*/result.json"):
        write_result(path.parent, read_result(path.parent) | {"provenance": "0" * 16})
    capsys.readouterr()
    assert go("ablation", labels=TWO) == 0
    assert "other code made 2 of their 2 runs" in capsys.readouterr().out and len(inline.done) == 2
    assert go("ablation", labels=TWO, again=True) == 0
    assert len(inline.done) == 4
    assert all(
        json.loads(text)["provenance"] == provenance() for text in results(tmp_path).values()
    )


def look(run_folder, config, partition_folder):
    """An analysis."""
    files = [(run_folder / name).is_file() for name in ("result.json", "model.safetensors")]
    return {
        "files": all(files),
        "clients": len(list(partition_folder.glob("client-*"))),
        "seed": config.seed,
    }


def count_labels(labels):
    """A measurement."""
    return {"count": len(labels)}


def test_analyses_and_measurements_are_made_once(inline, run_config, tmp_path):
    study, config = (
        Study(tmp_path),
        run_config(rounds=1, local_epochs=1, dance_evidence_keep="final"),
    )
    cells = [
        Cell({"dataset": "tiny", "seed": 0}, config, analysis=f"{__name__}:look"),
        Cell({"size": 3, "of": "labels"}, measure=f"{__name__}:count_labels"),
    ]
    outcome = run_grid(study, cells, 1, False, print)
    assert (outcome.done, outcome.failed) == (2, {}) and all(study.has(cell) for cell in cells)
    assert json.loads(study.product(cells[0]).read_text()) == {
        "files": True,
        "clients": 3,
        "seed": 0,
    }
    measured = json.loads(study.product(cells[1]).read_text())
    assert measured["count"] == 2 and measured["labels"] == {"size": 3, "of": "labels"}
    assert study.product(cells[1]).parent == study.measures
    assert run_grid(study, cells, 1, False, print).reused == 2 and len(inline.done) == 2
    study.product(cells[0]).unlink()
    result = study.run_folder(config) / "result.json"
    made = result.stat().st_mtime_ns
    run_grid(study, cells, 1, False, print)
    assert [kind for kind, _ in inline.done] == ["run", "measure", "run"]
    assert study.product(cells[0]).is_file() and result.stat().st_mtime_ns == made


def test_results_on_another_graph_of_the_same_name_are_refused(go, tiny, tmp_path):
    import shutil

    import pyarrow.parquet as pq

    assert go("main-table", methods=["fedavg-full"]) == 0
    other = tmp_path / "other" / "tiny"
    shutil.copytree(tiny, other)
    assert go("main-table", methods=["fedavg-full"], datasets=[str(other)]) == 0, (
        "the same graph elsewhere"
    )
    pq.write_table(pq.read_table(other / "edges.parquet").slice(1), other / "edges.parquet")
    with pytest.raises(UserError, match="choose another --out"):
        go("main-table", methods=["fedavg-full"], datasets=[str(other)])


def test_a_worker_that_dies_costs_its_own_task_only(go, inline, monkeypatch, capsys):
    real, died = Inline.submit, []

    def submit(self, function, task):
        if died or task.cell.labels["variant"] == "w/o TC":
            died.append(task.name)
            future = Future()
            future.set_exception(BrokenProcessPool())  # as for every task that had no answer yet
            return future
        return real(self, function, task)

    class Pool(Inline):
        def __init__(self, jobs, *_, **__):
            died.clear()

    Pool.submit = submit
    monkeypatch.setattr(runner, "ProcessPoolExecutor", Pool)
    assert go("ablation", labels=[*TWO, "variant=w/o TC"]) == 2
    out = capsys.readouterr().out
    assert "2 made, 0 found, 1 failed" in out and "its worker process died" in out


def test_two_cells_with_the_same_labels_are_refused():
    with pytest.raises(UserError, match="distinct labels"):
        check_labels([Cell({"seed": 0}), Cell({"seed": 0}, RunConfig(rounds=3))])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "experiment: expected one of main-table"),
        (["main-table", "--methods", "nothing"], "method: expected one of dance"),
        (["main-table", "--set", "x"], "--set: expected KEY=VALUE"),
        (["main-table", "--set", "round=3"], "did you mean 'rounds'?"),
    ],
)
def test_mistakes_are_one_line(cli, words, message, tmp_path):
    done = cli("experiment", *words, "--out", tmp_path / "study")
    assert done.code == 2 and len(done.err) == 1 and message in done.err[0]
    assert not (tmp_path / "study").exists()


def test_end_to_end_with_two_workers(cli, tiny, tmp_path, monkeypatch, pairs):
    """Real worker processes, two at a time, then the report."""
    monkeypatch.chdir(tmp_path)
    small = [word for pair in pairs for word in ("--set", pair)]
    words = ["main-table", "--datasets", tiny, "--methods", "fedavg-full", "dance"]
    words += ["--seeds", "0", "--jobs", "2"]
    done = cli("experiment", *words, *small)
    assert done.code == 0 and "4 made, 0 found, 0 failed" in done.out, done.err
    assert cli("experiment", *words, *small).out.count("0 made, 4 found") == 1
    assert cli("tables").code == 0
    text = (tmp_path / "study" / "report" / "main-table.md").read_text()
    assert (
        "| fedavg-full | full |" in text
        and "| dance | 0.02 |" in text
        and "w/o labels" not in text
        and "dance-flwr experiment main-table" in text
    )


def test_a_remembered_command_names_rows_and_no_place():
    from dance_flwr_studies.commands import portable_words

    words = (
        "experiment hyper --datasets cora /a/citeseer --out /some/where --jobs 2 --seeds 0 --again"
    )
    words += " --set encoder=/b/mpnet"
    assert (
        " ".join(portable_words(words.split()))
        == "experiment hyper --datasets cora citeseer --seeds 0 --set encoder=mpnet"
    )
    words = ["experiment", "hyper", "--out=/some/where", "--jobs=2", "--dry-run"]
    assert portable_words(words) == ["experiment", "hyper"]


def test_a_run_that_lost_a_client_is_no_result_of_a_study():
    complete = {"round": 1, "absent": {}}
    work._refuse_absences({"history": [complete]})
    with pytest.raises(UserError, match="found none of client 3 in round 2: out of luck"):
        work._refuse_absences({"history": [complete, {"round": 2, "absent": {"3": "out of luck"}}]})
