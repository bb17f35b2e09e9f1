"""`--shard i/n`: shares that are disjoint, complete, equally large, and merge into the whole."""

import json
import re
import shutil
import subprocess
from collections import Counter

import pytest
from dance_flwr_studies import get_experiment
from dance_flwr_studies.engine.cell_filters import Shard, at_work, read_shard
from dance_flwr_studies.engine.cells import Cell, Request
from dance_flwr_studies.engine.folder import run_name
from dance_flwr_studies.engine.rows import load_rows
from dance_flwr_studies.reports.report import export_into, write_report
from study_support.inline import Inline
from support.project import PROJECT

from dance_flwr.errors import UserError


def cells_of(name, seeds=(5, 6, 7, 8, 9), methods=()):
    experiment = get_experiment(name)
    return experiment.cells(Request(experiment.datasets, methods or experiment.methods, seeds))


GRIDS = {
    name: cells_of(name, seeds=(5, 6, 7))
    for name in ("ablation", "main-table", "faithfulness", "attacks")
}


def key(cell):
    return json.dumps(dict(cell.labels), sort_keys=True)


@pytest.mark.parametrize(
    ("name", "shards"),
    [
        ("ablation", 1),
        ("ablation", 7),
        ("ablation", 1000),
        ("attacks", 2),
        ("faithfulness", 5),
        ("main-table", 8),
    ],
)
def test_shards_are_disjoint_complete_and_equally_large(name, shards):
    cells = GRIDS[name]
    numbers = range(1, shards + 1) if shards < 100 else (1, 2, 49, 50, 51, 500, 1000)
    parts = [Shard(number, shards).of(cells) for number in numbers]
    if shards < 100:
        assert sorted(key(cell) for part in parts for cell in part) == sorted(map(key, cells))
    names = [
        {key(cell) if cell.measure else run_name(cell.config) for cell in part} for part in parts
    ]
    assert sum(map(len, names)) == len(set.union(*names)), "no run is in two shares"
    sizes = [len(part) for part in names]
    assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)


def test_cells_of_one_run_stay_together_and_the_order_does_not_matter():
    cells = cells_of("faithfulness")
    twins = [Cell({**cell.labels, "again": 1}, cell.config, cell.analysis) for cell in cells]
    both = [*cells, *twins]
    for number in (1, 2, 3):
        part = Shard(number, 3).of(both)
        assert Counter(run_name(cell.config) for cell in part).most_common()[-1][1] == 2
        assert {key(c) for c in Shard(number, 3).of(both[::-1])} == {key(c) for c in part}


@pytest.mark.parametrize(
    "text", ["", "1", "0/3", "4/3", "-1/3", "1/0", "1/3/5", "a/b", "1.0/3", " 1/3", "1/3\n", "٣/٣"]
)
def test_a_shard_that_is_none_is_one_line(text):
    with pytest.raises(UserError, match=r"--shard: expected i/n with 1 <= i <= n") as error:
        read_shard(text)
    assert "\n" not in str(error.value)


def test_wrong_values_and_experiments_of_times_are_refused(cli, tmp_path):
    out = tmp_path / "study"
    for name, shard in [("ablation", "0/2"), ("ablation", "half"), ("runtime", "1/2")]:
        done = cli("experiment", name, "--shard", shard, "--out", out)
        assert done.code == 2 and len(done.err) == 1 and "--shard: expected" in done.err[0]
    assert not out.exists()


@pytest.fixture
def share(go):
    """A function that runs the ablation, or a share of it, in this process."""

    def call(shard="", **options):
        return go("ablation", shard=shard, **options)

    return call


def report_of(rows, folder):
    write_report(load_rows(rows), folder, lambda line: None)
    text = (folder / "ablation.md").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if "±" in line or line.startswith("| ")]


def scores(rows):
    found = load_rows(rows).by_experiment["ablation"]
    return [(dict(row.labels), row.result.get("test_accuracy")) for row in found]


def test_the_union_of_all_shards_is_the_whole(share, tmp_path, capsys):
    """In one folder; in folders copied into one; and by their exported rows."""
    assert share(out="whole") == 0
    whole = tmp_path / "whole"
    runs = len(Inline.done)
    Inline.done.clear()
    for number in (1, 2, 3):
        assert share(f"{number}/3", out="shared") == 0
    names = [name for _, name in Inline.done]
    assert len(names) == len(set(names)) == runs, "no run twice, none missing"

    for number in (3, 1, 2):  # of three machines, in any order
        assert share(f"{number}/3", out=f"part-{number}") == 0
    assert len(Inline.done) == 2 * runs
    for number in (2, 3, 1):
        shutil.copytree(tmp_path / f"part-{number}", tmp_path / "copied", dirs_exist_ok=True)
        export_into(
            tmp_path / f"part-{number}", tmp_path / "rows.jsonl", lambda line: None, update=True
        )
    want, report = scores(whole), report_of(whole, tmp_path / "report")
    assert len(want) == 7 and all(score is not None for _, score in want) and len(report) > 5
    for made in ("shared", "copied", "rows.jsonl"):
        assert scores(tmp_path / made) == want, made
        assert report_of(tmp_path / made, tmp_path / f"report-{made}") == report, made
    missing = [score for _, score in scores(tmp_path / "part-1") if score is None]
    assert 0 < len(missing) < 7, "a share alone shows what it lacks"
    capsys.readouterr()
    assert share(out="copied") == 0  # nothing is left to do
    assert "0 made, 7 found" in capsys.readouterr().out and len(Inline.done) == 2 * runs


def test_shards_of_one_division_work_side_by_side_and_nothing_else(tmp_path):
    with at_work(tmp_path, Shard(1, 3)):
        with at_work(tmp_path, Shard(3, 3)):
            pass
        for other, found in [
            (None, "a shard, 1-of-3"),
            (Shard(1, 2), "a shard, 1-of-3"),
            (Shard(1, 13), "a shard, 1-of-3"),
            (Shard(1, 3), "another dance-flwr experiment"),
        ]:
            with pytest.raises(UserError, match=found), at_work(tmp_path, other):
                pass
    with (
        at_work(tmp_path, None),
        pytest.raises(UserError, match="the whole grid"),
        at_work(tmp_path, Shard(1, 3)),
    ):
        pass
    with at_work(tmp_path, Shard(1, 2)):  # every lock was given back
        pass


def test_the_slurm_script_runs_every_share_once(cli, tmp_path):
    """The script of the page, with a shell function in the place of the command."""
    page = (PROJECT / "docs" / "scaling-out.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    script = next(block for block in blocks if block.startswith("#!/bin/bash\n#SBATCH"))
    for block in blocks:
        assert subprocess.run(["bash", "-n"], input=block, text=True).returncode == 0
    directives = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", script, re.MULTILINE))
    first, _, last = directives["array"].partition("-")
    assert (first, f"shards={last}") == ("1", re.search(r"^shards=\d+$", script, re.M)[0])
    activate = tmp_path / "activate"
    activate.write_text("dance-flwr() { printf '%s\\n' \"$@\"; }\n", encoding="utf-8")
    asked = []
    for task in range(1, int(last) + 1):
        slurm = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_SUBMIT_DIR": str(tmp_path)}
        slurm |= {"SLURM_CPUS_PER_TASK": directives["cpus-per-task"], "PATH": "/usr/bin:/bin"}
        text = script.replace("/opt/dance-flwr/bin/activate", str(activate))
        done = subprocess.run(["bash"], input=text, env=slurm, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        words = done.stdout.splitlines()
        asked.append(words[words.index("--shard") + 1])
    assert asked == [f"{task}/{last}" for task in range(1, int(last) + 1)]
    done = cli(*words, "--dry-run")
    assert done.code == 0 and f"shard       {last}/{last}: " in done.out, done.err
