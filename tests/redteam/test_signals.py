"""However a run or a study is stopped, nothing that it started goes on."""

import shutil
import signal

import pytest
from support.graphs import SMALL
from support.processes import Started

from dance_flwr.config.text import to_toml
from dance_flwr.data.prepare import prepare

PATIENCE_SECONDS = 400  # of a machine that does much else
DELETED = "deleted --out"


@pytest.fixture(scope="module")
def data_root(run_config, tmp_path_factory):
    """A data root in which the client folders are made."""
    root = tmp_path_factory.mktemp("root")
    prepare(run_config(data_root=str(root)), lambda line: None)
    return root


@pytest.fixture
def begin(tmp_path):
    """A function that starts a command and waits for a line in a file below the folder."""
    begun = []

    def start(command, pattern):
        begun.append(Started(command, tmp_path))
        begun[-1].wait_for(tmp_path, pattern)
        return begun[-1]

    yield start
    for started in begun:
        started.kill()


@pytest.fixture
def begin_run(begin, run_config, data_root, tmp_path):
    """A function that starts a long run and waits for its first round."""

    def start(*options):
        config = run_config(rounds=5000, out=str(tmp_path / "out"), data_root=str(data_root))
        (tmp_path / "config.toml").write_text(to_toml(config))
        command = ["dance-flwr", "run", "--config", tmp_path / "config.toml", *options]
        return begin(command, "out/history.jsonl")

    return start


def end(started, way, out):
    if way == DELETED:
        shutil.rmtree(out, ignore_errors=True)  # the run may be writing there
    else:
        started.process.send_signal(getattr(signal, way))


@pytest.mark.flower
@pytest.mark.xdist_group("engine")
@pytest.mark.parametrize("way", ["SIGKILL", DELETED])
def test_nothing_of_an_engine_is_left(begin_run, tmp_path, way):
    """The terminal of the engine of `test_listeners.py` is closed, as if by SIGINT or SIGTERM."""
    started = begin_run("--engine", "ray")
    assert len(started.look()) > 8, "an engine is many processes"
    private = started.homes()
    end(started, way, tmp_path / "out")
    patience = 15 if way == "SIGKILL" else PATIENCE_SECONDS  # what is killed can clean up nothing
    assert started.left(patience) == []
    assert private and not any(home.exists() for home in private)
    if way == DELETED:
        says_that_it_was_removed(started, tmp_path / "out")


def says_that_it_was_removed(started, out):
    """Whether the end of a run whose folder was removed is one line."""
    assert started.process.wait(PATIENCE_SECONDS) == 2
    lines = started.text().replace("\r", "\n").splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert errors == lines[-1:] and "found it removed" in errors[0]
    assert "Traceback" not in started.text()
    assert not (out / "result.json").exists()


@pytest.mark.parametrize("way", ["SIGTERM", DELETED])
def test_nothing_of_a_run_in_one_process_is_left(begin_run, tmp_path, way):
    """SIGINT and a closed terminal raise what SIGTERM raises, `process_tree.stopping_in_order`."""
    started = begin_run()
    assert started.listeners() == []
    end(started, way, tmp_path / "out")
    assert started.left(PATIENCE_SECONDS) == []
    if way == DELETED:
        says_that_it_was_removed(started, tmp_path / "out")
    else:
        assert started.process.wait(PATIENCE_SECONDS) == 130
        assert "resume with: dance-flwr run --resume" in started.text()


@pytest.mark.parametrize("way", ["SIGTERM", "SIGKILL"])
def test_nothing_of_a_study_is_left(begin, tiny, data_root, tmp_path, way):
    settings = SMALL | {"rounds": 5000, "data-root": str(data_root)}
    pairs = [
        word
        for key, value in settings.items()
        for word in ("--set", f"{key}={str(value).lower() if value in (True, False) else value}")
    ]
    command = ["dance-flwr", "experiment", "main-table", "--datasets", tiny, "--seeds", "0"]
    command += ["--methods", "fedavg-full", "--jobs", "1", "--out", tmp_path / "study", *pairs]
    started = begin(command, "study/runs/.*.draft/history.jsonl")
    assert len(started.look()) > 1, "a study has a worker"
    end(started, way, None)
    assert started.left(PATIENCE_SECONDS) == []
    if way == "SIGTERM":
        assert started.process.wait(PATIENCE_SECONDS) == 130
        assert not list((tmp_path / "study").glob("runs/.*.draft"))
