"""A tiny text graph, one data root for the whole session, and runs in this process."""

import os
import re
import sys
import tempfile
from pathlib import Path

import pytest
from jaxtyping import config as checks
from jaxtyping import install_import_hook

# Their assertions explain themselves, as those of test modules do.
pytest.register_assert_rewrite("support", "rival_support", "study_support")

# Before these modules are imported: shapes and types are checked at every call, but in whole runs,
# of which the checks take a third and which make no call that others do not make.
CHECKED = [
    *("nn.hops", "nn.kmeans", "nn.model", "nn.neighbourhood", "nn.propagation", "nn.ragged"),
    "client_data.text_table",
    *("dance.algorithm", "dance.losses", "dance.model"),
    *("dance.nodes", "dance.selection", "dance.text", "dance.topology", "dance.weighing"),
]
WHOLE_RUNS = {"api", "cli", "deploy", "federation", "methods", "pages", "redteam", "runs"}
WHOLE_RUNS |= {"rivals", "studies"}
install_import_hook([f"dance_flwr.{name}" for name in CHECKED], "beartype.beartype")

from support.graphs import (  # noqa: E402
    EVERY_ROUND,
    SMALL,
    TEST_DEVICE,
    WORDS,
    node_id,
    sentences,
    text_graph,
)
from support.project import PROJECT  # noqa: E402
from support.quick import examples  # noqa: E402
from support.scheduling import is_slow, place_of  # noqa: E402
from support.small_encoder import write_small_encoder  # noqa: E402

# Before Flower and the model libraries are imported: nothing goes over the network, nothing lands
# in a home.
HOME = Path(tempfile.mkdtemp(prefix="dance-tests-"))
os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "HF_HUB_OFFLINE": "1",
}
os.environ |= {
    "FLWR_HOME": str(HOME / "flwr"),
    "DANCE_FLWR_HOME": str(HOME / "data"),
    "HF_HOME": str(HOME / "hf"),
}
for name in ("DANCE_FLWR_LLM", "OPENAI_BASE_URL", "OPENAI_API_KEY"):  # of whoever runs the tests
    os.environ.pop(name, None)
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process compiles what it imports
SMALL["encoder"] = write_small_encoder(HOME / "encoder")
# Its handler keeps the stream that it finds, which must not be one of a test.
import flwr.common.logger  # noqa: E402, F401

sys.path.insert(0, str(PROJECT))  # the apps of the checkout, ahead of any installed copy

import gc  # noqa: E402
import itertools  # noqa: E402
import logging  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
import warnings  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from functools import cache  # noqa: E402
from types import SimpleNamespace  # noqa: E402

import numpy as np  # noqa: E402
from hypothesis import settings  # noqa: E402

# Without a deadline, as a busy machine is no failure.
settings.register_profile("suite", deadline=None, max_examples=examples(75))
settings.load_profile("suite")


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="record in tests/golden: the schema of this PROTOCOL, graphs of imports, messages",
    )


def pytest_ignore_collect(collection_path, config):
    """Import no file of `make test-quick` that has no quick test."""
    quick = config.option.markexpr == "quick" and collection_path.suffix == ".py"
    return True if quick and is_slow(place_of(collection_path)) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Collect no garbage meanwhile, and of modules and items never: they stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    from support.scheduling import schedule

    schedule(items)


@pytest.hookimpl(tryfirst=True)  # before the fixtures, which start runs
def pytest_runtest_setup(item):
    folder = place_of(item.path).parts[0]
    checks.update("jaxtyping_disable", folder in WHOLE_RUNS)


def pytest_sessionfinish():
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A folder with 72 nodes in 3 classes: texts of the class's own words, mostly edges within a
    class.
    """
    from dance_flwr.data.graphs.folder import write_folder

    rng = np.random.default_rng(7)
    labels = np.arange(72) % 3
    texts = [
        sentences(rng, WORDS[sorted(WORDS)[label]], 1 + i % 4) for i, label in enumerate(labels)
    ]
    chance = np.where(labels[:, None] == labels[None, :], 0.12, 0.01)
    pairs = np.argwhere(np.triu(rng.random((72, 72)) < chance, 1))
    folder = tmp_path_factory.mktemp("graphs") / "tiny"
    write_folder(text_graph("tiny", [node_id(i) for i in range(72)], texts, labels, pairs), folder)
    return folder


@pytest.fixture(scope="session")
def run_config(tiny):
    """A function that parses keys (`dance_ratio` means `condensation-ratio`) over small settings on
    the tiny graph.
    """
    from dance_flwr.config.tree import flat_fields, parse

    sections = {key.partition(".")[0] for key in flat_fields() if "." in key}
    pattern = re.compile(f"^({'|'.join(sorted(sections))})_")

    def make(**keys):
        named = {pattern.sub(r"\1.", key).replace("_", "-"): value for key, value in keys.items()}
        return parse({"data": str(tiny), **SMALL, **named})

    return make


@dataclass(frozen=True)
class Finished:
    """A finished run: its result, folder and partition, and all messages as they passed."""

    result: dict
    folder: Path
    config: object
    messages: list

    @property
    def partition(self) -> Path:
        return Path(self.result["partition_dir"])

    @property
    def settled(self):
        """The configuration, with the reading that the clients chose."""
        from dance_flwr.runs.result import config_of

        return config_of(self.result)

    def store(self, client: int):
        from dance_flwr.dance.state import RunFolder

        return RunFolder(self.partition / f"client-{client}", self.result["run"])

    def data(self, client: int):
        import torch

        from dance_flwr.client_data.client_data import ClientData
        from dance_flwr.config.sections import reading_of

        folder = self.partition / f"client-{client}"
        reading = reading_of(self.settled)
        return ClientData(folder, torch.device(TEST_DEVICE), reading=reading)

    def copied(self, place: Path) -> tuple[Path, Path]:
        """A copy of the run and one of its partition, to be altered."""
        from dance_flwr.runs.result import write_result

        run = shutil.copytree(self.folder, place / "run")
        partition = shutil.copytree(self.partition, place / "partition")
        write_result(run, self.result | {"partition_dir": str(partition)})
        return run, partition

    def replies(self, kind: str) -> list:
        """Replies of one kind, in the order in which they came."""
        return [
            m for m in self.messages if m.metadata.src_node_id and m.metadata.message_type == kind
        ]


@pytest.fixture(scope="session")
def run(run_config, tmp_path_factory):
    """A function that runs the two apps in this process and returns a `Finished`; keys as in
    `run_config`.
    """
    import client_app
    import server_app
    from dance_flwr.config.tree import flatten
    from dance_flwr.runs.result import read_result
    from dance_flwr.runs.simulation.in_process import InProcessGrid

    logging.getLogger("flwr").setLevel(logging.ERROR)
    number = itertools.count(1)

    def start(
        *,
        nodes=None,
        on_message=None,
        app=client_app.app,
        folder=None,
        node_configs=None,
        **keys,
    ):
        folder, run_id, messages = folder or tmp_path_factory.mktemp("run"), next(number), []
        config = run_config(
            out=str(folder), **keys
        )  # `out` differs, so no run finds another's opened clients

        def record(message):
            messages.append(message)
            if on_message:
                on_message(message)

        grid = InProcessGrid(
            app,
            flatten(config),
            node_configs or nodes or config.clients,
            run_id=run_id,
            on_message=record,
        )
        server_app.run(grid, config, f"test-{run_id}", folder)
        return Finished(read_result(folder), folder, config, messages)

    return start


@pytest.fixture(scope="session")
def reference(run):
    """A function that returns a finished run of these keys, made once, to be read only."""
    return cache(run)


@pytest.fixture(scope="session")
def dance(run) -> Finished:
    """One finished run of the method, with packs of every round, to be read only."""
    return run(**EVERY_ROUND)


@pytest.fixture
def cli(capsys, monkeypatch):
    """A function that calls the command line and returns its exit code, stdout and stderr lines."""
    from dance_flwr.cli.main import main

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["dance-flwr", *map(str, arguments)])
        with warnings.catch_warnings():
            try:
                main()
                code = 0
            except SystemExit as end:
                code = end.code or 0
        out, err = capsys.readouterr()
        # Without the states of a bar, on a machine on which it takes seconds.
        lines = err.replace("\r", "\n").splitlines()
        lines = [line for line in lines if line.strip() and not re.match(r"\w+ +[\d:]+[%\d]", line)]
        return SimpleNamespace(code=code, out=out, err=lines)

    return call


@pytest.fixture
def alone(monkeypatch):
    """No package beside dance-flwr registers a plug-in."""
    from dance_flwr.config import plugins

    for registry in vars(plugins).values():
        if isinstance(registry, plugins.Registry):
            monkeypatch.setitem(vars(registry), "_external", {})


@pytest.fixture
def crafted(tmp_path, monkeypatch):
    """A function that writes a graph whose ids `c0-...`, `c1-...` name the node's client."""
    from dance_flwr.config.plugins import PARTITIONERS
    from dance_flwr.data.graphs.folder import write_folder

    def assigned(graph, spec):
        return np.array([int(str(name)[1]) for name in graph.ids], np.int64)

    monkeypatch.setitem(PARTITIONERS.builtin, "random", assigned)

    def write(name, ids, texts, labels, pairs, split):
        folder = tmp_path / name
        write_folder(text_graph(name, ids, texts, labels, pairs, split), folder)
        return str(folder)

    return write


@pytest.fixture
def mounted(tmp_path):
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    program = shutil.which("mount")
    if program is None:
        pytest.skip("no mount on this machine")
    done = subprocess.run(
        [program, "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"this user may not mount a file system: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)  # lazy: opened clients map files of it
