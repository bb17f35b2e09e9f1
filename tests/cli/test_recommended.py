"""Every command that an output recommends works when it is followed, and harms nothing made before.

Commands are taken from what is really printed, and run in the order of the lines.
"""

import shlex

import pytest
from support.following import follow as follow
from support.following import options as options
from support.following import place as place
from support.following import recommended
from support.graphs import SMALL, WORDS

pytestmark = pytest.mark.usefixtures("place")


def test_after_a_run(follow, options):
    followed = follow("run", *options)
    assert followed == ["evidence page latest", "report latest", "report latest --privacy"]


@pytest.mark.parametrize(
    "settings",
    [
        {"privacy.secure-aggregation": "true"},
        {"privacy.dp": "local", "privacy.epsilon": 50, "privacy.noise-multiplier": 1.0},
    ],
    ids=["masks", "noise"],
)
def test_after_a_run_with_other_settings(follow, options, settings):
    assert follow("run", *options, *(f"--set={key}={value}" for key, value in settings.items()))


def test_after_the_demo(follow, tiny, monkeypatch):
    from dance_flwr.cli import run

    start_run = run.start_run

    def small(values, *rest, **more):
        start_run({**SMALL, "data": str(tiny), **values}, *rest, **more)

    monkeypatch.setattr(run, "start_run", small)
    assert len(follow("demo")) == 3


def test_after_export_predict_and_reports(follow, options, cli, tiny):
    assert cli("run", *options).code == 0
    assert follow("export", "latest", "--out", "model") == []
    words = ("predict", "model", "--data", tiny, "--out")
    assert follow(*words, "all.csv", "--evidence", "all.jsonl") == []
    for command in ("report latest", "report latest --privacy"):
        assert follow(*shlex.split(command)) == [], command
    # What is there is not written over, by whatever asks for it.
    for again in ((*words, "all.csv"), ("export", "latest", "--out", "model")):
        assert cli(*again).code == 2


def table(folder, site=False):
    rows = [
        f"n{i},{' '.join(WORDS[sorted(WORDS)[i % 3]][:5])} {i},{sorted(WORDS)[i % 3]}"
        for i in range(60)
    ]
    (folder / "nodes.csv").write_text("\n".join(["id,text,label", *rows]) + "\n")
    edges = "".join(f"n{i},n{(i + 3) % 60}\n" for i in range(60))
    (folder / "edges.csv").write_text("source,target\n" + edges)
    return folder / "nodes.csv", folder / "edges.csv"


def test_after_an_import(follow, place, cli):
    follow("data", "import", *table(place), "--name", "mine")
    done = cli("data", "import", *table(place), "--name", "mine")
    assert done.code == 2 and "--name: expected a new name, found" in done.err[-1]


def test_what_a_stopped_run_says_resumes_it(follow, options, cli, monkeypatch):
    from dance_flwr.runs.simulation import in_process

    run = in_process.run_in_process

    def stopped(config, folder, on_round, *rest):
        def stop(row):
            on_round(row)
            raise RuntimeError("no power")

        return run(config, folder, stop, *rest)

    with monkeypatch.context() as broken:
        broken.setattr(in_process, "run_in_process", stopped)
        with pytest.raises(RuntimeError):
            cli("run", *options, "--out", "a run")
    (resume,) = recommended(cli("status", "latest").out)
    assert resume.startswith("run --resume ")
    assert len(follow(*shlex.split(resume))) == 3
    assert "finished" in cli("status", "latest").out
