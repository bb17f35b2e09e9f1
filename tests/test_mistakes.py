"""What a person reads after a mistake, word for word: the cases of tests/golden/mistakes.txt.

A case is a command (`$ `) or an expression of Python (`>>> `), and below it the whole message.
Words in capitals stand for paths. `pytest --update-golden` writes the messages as they are now.
"""

import json
import shlex
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.graphs import text_graph
from support.partitions import SPEC, make_graph
from support.project import PROJECT

from dance_flwr import api
from dance_flwr.api.bundle import export
from dance_flwr.config.tree import RunConfig, flatten, parse
from dance_flwr.data.graphs.folder import read_folder
from dance_flwr.data.partition import make_partition
from dance_flwr.errors import UserError
from dance_flwr.federation.node_config import run_config_of
from dance_flwr.llm.local_settings import local_settings
from dance_flwr.methods import check_method
from dance_flwr.nn.calibration import Calibration

TABLE = PROJECT / "tests" / "golden" / "mistakes.txt"
MARKS = ("$ dance-flwr ", ">>> ")
WRITTEN = ("own.toml", ".busy", "result.json", "verdicts.json")  # by the cases themselves
SECRET = "geheim"  # in a value that no message may repeat
# What expressions name, by module of dance_flwr; beside it all of the public API.
NAMES = {
    "config.text": ("read_values",),
    "data.partition": ("read_manifest",),
    "data.text.encoder_files": ("find_folder",),
    "deploy.supernode": ("run_supernode",),
    "federation.client.device": ("memory_ratio", "named_device"),
    "federation.node_config": ("client_number", "terms_of"),
    "evidence.review": ("labels_of",),
    "runs.evidence": ("show_evidence",),
    "runs.tracking": ("check_trackers",),
}


def cases():
    """(call, message) of the table, in order."""
    blocks = TABLE.read_text("utf-8").split("\n\n")
    return [tuple(b.strip().partition("\n")[::2]) for b in blocks if b.startswith(MARKS)]


@pytest.fixture(scope="module")
def places(dance, tiny, tmp_path_factory):
    """What the words in capitals stand for."""
    bundle = export(dance.folder, tmp_path_factory.mktemp("bundles") / "bundle").folder
    client = dance.partition / "client-2"
    places = {"BUNDLE": bundle, "RUN": dance.folder, "GRAPH": tiny, "CLIENT": client}
    return places | {"PARTS": dance.partition}


@pytest.fixture
def names(places, tmp_path, monkeypatch):
    """What an expression may name."""

    def own_model(text):
        (tmp_path / "own.toml").write_text(text)
        monkeypatch.setenv("DANCE_FLWR_LLM", str(tmp_path / "own.toml"))
        return local_settings()

    def node(**values):
        named = {name.replace("_", "-"): value for name, value in values.items()}
        return run_config_of(SimpleNamespace(run_config={"clients": 0}, node_config=named))

    def small(**changes):
        numbers = range(9)
        ids, texts = [f"n{k}" for k in numbers], [f"A comet of number {k}." for k in numbers]
        pairs, split = [(k, k + 1) for k in range(8)], [1, 2, 3] * 3
        return replace(
            text_graph("small", ids, texts, [k // 3 for k in numbers], pairs, split), **changes
        )

    def part(sites="", **changes):
        graph = make_graph(7, [(0, 1)])
        if sites:
            graph = replace(graph, site=np.array([*sites]))
            changes["method"] = "by-column"
        return make_partition(graph, replace(SPEC, **changes))

    def finished(**entries):
        content = {"method": "dance", "model_fingerprint": "0" * 16, "partition_dir": None}
        content |= {"calibration": asdict(Calibration()), "config": flatten(RunConfig())}
        (tmp_path / "result.json").write_text(json.dumps(content | entries))
        return tmp_path

    def written(name, content):
        (tmp_path / name).write_text(content)
        return tmp_path / name

    inner = {
        name: getattr(import_module(f"dance_flwr.{module}"), name)
        for module, each in NAMES.items()
        for name in each
    }
    return {name: getattr(api, name) for name in api.__all__} | {
        **inner,
        **{"np": np, "torch": torch, "Path": Path, "text_graph": text_graph, "parse": parse},
        **{"own_model": own_model, "node": node, "graph": read_folder(places["GRAPH"])},
        **{"check": lambda keys: check_method(parse(keys)), "small": small, "part": part},
        **{"finished": finished, "written": written, "keys_of": lambda: flatten(RunConfig())},
        **places,
    }


@pytest.mark.parametrize(("call", "message"), cases(), ids=[call for call, _ in cases()])
def test_a_mistake_is_answered_in_these_words(
    call, message, alone, cli, names, places, tmp_path, monkeypatch, request
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DANCE_FLWR_HOME", str(tmp_path / "home"))
    (tmp_path / "afile").write_text("mine")
    if call.startswith(MARKS[0]):
        words = [_place(word, places) for word in shlex.split(call.removeprefix(MARKS[0]))]
        done = cli(*words)
        assert done.code == 2 and len(done.err) == 1, done
        said = done.out + done.err[0].replace("python -m pytest.", "")  # who runs the tests
    else:
        with pytest.raises(UserError) as refused:
            eval(call.removeprefix(MARKS[1]), names)
        said = f"{type(refused.value).__name__}: {refused.value}"
    for name, path in {**places, "HERE": tmp_path}.items():
        said = said.replace(str(path), name)
    assert said.count("\n") == said.startswith("fetching ") and SECRET not in said
    files = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert files <= {"afile", *WRITTEN}, "nothing is half written"
    if request.config.option.update_golden:
        blocks = TABLE.read_text("utf-8").rstrip().split("\n\n")
        blocks = [f"{call}\n{said}" if b.partition("\n")[0] == call else b for b in blocks]
        TABLE.write_text("\n\n".join(blocks) + "\n", "utf-8")
    else:
        assert said == message


def _place(word, places):
    """A word of a command with its path."""
    for name, path in places.items():
        word = word.replace(name, str(path))
    return word
