"""Every command that an output recommends works when it is followed, and harms nothing made before.

Commands are taken from what is really printed, and run in the order of the lines.
"""

import re
import shlex
from pathlib import Path

import pytest
from support.following import files, recommended
from support.following import follow as follow
from support.following import options as options
from support.following import place as place
from support.graphs import SMALL, WORDS
from support.processes import free_port

from dance_flwr.deploy import federation as at_server
from dance_flwr.deploy.federation import Federation
from dance_flwr.deploy.site import Site
from dance_flwr.deploy.superlink import SuperLink

pytestmark = pytest.mark.usefixtures("place")
TEXTS = ("encoder", "encoder-precision", "chunk-tokens", "max-chunks")


def test_after_a_run(follow, options):
    followed = follow("run", *options)
    assert followed == ["evidence page latest", "report latest", "report latest --privacy"]


def test_after_a_run_of_a_method_without_evidence(follow, options):
    followed = follow("run", *options, "--method", "fedavg-full", "--out", "a run")
    assert followed == ["report latest", "report latest --privacy"]


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


SITES = ("north", "south", "west")


@pytest.fixture
def federation(cli, tiny, monkeypatch):
    """A federation and its three sites, in one process, with a SuperLink in memory."""
    import client_app
    import server_app
    from dance_flwr.config.text import read_values
    from dance_flwr.config.tree import flatten
    from dance_flwr.runs.simulation.in_process import InProcessGrid

    pairs = [f"{key}={SMALL[key]}" for key in (*TEXTS, "hidden-dim", "device")]
    sets = [word for pair in [*pairs, "rounds=1", "clients=3"] for word in ("--set", pair)]
    named = ["--host", "127.0.0.1", "--classes", ",".join(sorted(WORDS)), "--port", free_port()]
    done = cli("deploy", "init", "hospitals", "--sites", ",".join(SITES), *named, *sets[:-2])
    assert done.code == 0, done.err
    for site in SITES:
        cli("site", "join", f"hospitals/invitations/{site}.toml", tiny)
    admitted = {}

    def flwr(link, *words):
        if words[:2] == ("supernode", "register"):
            admitted[len(admitted)] = "online"
            return {"node-id": str(len(admitted) - 1)}
        return {"nodes": [{"node-id": str(n), "status": s} for n, s in admitted.items()]}

    def follow(link, number, folder, *_):
        nodes = {
            10 + k: read_values([Path(site) / "site.toml"], []) for k, site in enumerate(SITES)
        }
        grid = InProcessGrid(client_app.app, flatten(submitted[0]), nodes)
        server_app.run(grid, submitted[0], "77", folder)

    submitted = []
    monkeypatch.setattr(SuperLink, "flwr", flwr)
    monkeypatch.setattr(SuperLink, "submit", lambda link, config: submitted.append(config) or "1")
    monkeypatch.setattr(at_server, "follow", follow)
    assert cli("deploy", "admit", *(f"{site}/{site}.pub" for site in SITES)).code == 0
    opened = Federation.open(Path("hospitals"))
    for site in SITES:
        Site(Path(site).resolve()).set_peer_keys(opened.peer_keys)
    return opened


def test_after_a_run_of_a_federation_its_sites_see_their_numbers(
    cli, federation, place, monkeypatch
):
    noise = ("dp=distributed", "noise-multiplier=1.0", "epsilon=50.0")
    done = cli("deploy", "run", *(f"--set=privacy.{pair}" for pair in noise))
    assert done.code == 0, done.err
    assert "accuracy    not measured: clients count no test node under differential" in done.out
    (command,) = recommended(done.out)
    for site in SITES:
        monkeypatch.chdir(place / site)
        before = files(place)
        done = cli(*shlex.split(command))
        assert done.code == 0, done.err
        assert re.search(r"measured    \d+\.\d% of \d+ test nodes; .* its largest class", done.out)
        after = files(place)
        assert [path for path in before if before[path] != after.get(path)] == []
