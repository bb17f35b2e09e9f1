"""Bundles with other code that a server sends to a node: refused before a line of it runs."""

import io
import sys
import threading
import time
import zipfile
import zlib

import pytest
import uvicorn
from flwr.app import Context, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.supercore.constant import TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory

from dance_flwr import fingerprint
from dance_flwr.deploy import bundle, prefork
from dance_flwr.deploy.bundle import submitted_app
from dance_flwr.errors import UserError
from dance_flwr.federation.flower import TaskIdentity
from dance_flwr.federation.server.replies import read_hello
from dance_flwr.federation.wire import keys, messages

TERMS, APP, PROJECT = "dance_flwr/federation/node_config.py", "client_app.py", "pyproject.toml"
COMPONENT = ('clientapp = "client_app:app"', 'clientapp = "dance_flwr.other:app"')
# What the server changed -> (file, (old, new) text; None = the new text is added or is the file).
ALTERED = {
    "terms returned open": (TERMS, None, "def terms_of(node_config):\n    return NodeTerms()"),
    "masks off": (
        *("dance_flwr/federation/secagg/client.py", None),
        "def demands_masks(context):\n    return False",
    ),
    "ledger of privacy": (
        *("dance_flwr/federation/privacy/accounting.py", None),
        "def epsilon_of(cost, delta):\n    return 0.0",
    ),
    "ledger of trainings": (
        *("dance_flwr/federation/client/admission.py", None),
        "def count_task(message, task, folder, terms, config):\n    pass",
    ),
    "writer of evidence": (
        *("dance_flwr/evidence/pack.py", None),
        "def _digest(values):\n    return '0' * 64",
    ),
    "writer of files": ("dance_flwr/disk.py", None, "def write_text(path, text):\n    pass"),
    "annotation that runs": (
        *("dance_flwr/evidence/seal.py", None),
        "def later() -> __import__('ftplib'):\n    pass",
    ),
    "annotation of the same code": (
        "dance_flwr/disk.py",
        "def write_json(path: Path,",
        "def write_json(path: print('ran'),",
    ),
    "import of a foreign module": ("dance_flwr/__init__.py", None, "import ftplib"),
    "client app": (APP, None, "app = ClientApp()"),
    "component": (PROJECT, *COMPONENT),
    "file added": ("dance_flwr/federation/terms.py", None, ""),
    "module that shadows a library": ("torch/__init__.py", None, ""),
    "sitecustomize": ("sitecustomize.py", None, ""),
    "path file": ("dance_flwr.pth", None, "import os"),
    "conftest": ("dance_flwr/conftest.py", None, ""),
    "native library": ("dance_flwr/nn/hops.cpython-311-x86_64-linux-gnu.so", None, "\x7fELF"),
    "native library as a document": ("README.md.so", None, "\x7fELF"),
    "no Python": (APP, None, "\x00"),
    "nested too deeply": ("dance_flwr/errors.py", None, "(" * 5000),
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """The files of a bundle as Flower builds it from the app: path -> content."""
    content = build_fab_from_disk(submitted_app(tmp_path_factory.mktemp("app")))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def installed():
    """The installed ClientApp, as the process that forks loads it."""
    return prefork.load()


def bundled(files, *more):
    """A bundle of files, and of further (name, content)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in [*files.items(), *more]:
            archive.writestr(name, content)
    return buffer.getvalue()


def hello():
    """The first message of a run, as a node gets it."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1
    message = messages.query(keys.HELLO, 1, {})
    message.metadata.__dict__["_message_id"] = message.object_id
    return message


def answer(installed, content, accepted=()):
    """The reply of a node with the strictest terms to HELLO of a run with this bundle."""
    app = prefork.InstalledApp(installed, accepted)
    app.install(content, skip_prompt=True)
    node = {keys.PARTITION_ID: 0, keys.NUM_PARTITIONS: 3, "secure-aggregation": True}
    context = Context(1, 1, node, RecordDict(), {})
    load_app = app.loader(default_app_ref="", app_path=None, multi_app=True)
    return load_app("id", "version", "hash")(message=hello(), context=context)


def test_the_honest_bundle_is_answered_by_the_installed_code(honest, installed):
    reply = answer(installed, bundled(honest))
    assert read_hello(reply).protocol == fingerprint.PROTOCOL


@pytest.mark.parametrize("change", ALTERED)
def test_an_altered_bundle_is_refused_before_a_line_of_it_runs(honest, installed, tmp_path, change):
    name, old, new = ALTERED[change]
    trace = tmp_path / "trace"
    text = honest.get(name, b"").decode()
    if old is None:
        line = f"open({str(trace)!r}, 'w').close()\n" if name.endswith(".py") else ""
        text = f"{text}\n{line}{new}\n"
    else:
        assert old in text
        text = text.replace(old, new)
    before = set(sys.modules)
    reply = answer(installed, bundled(honest | {name: text.encode()}))
    assert reply.has_error()
    assert f"found other code in {name};" in reply.error.reason
    assert "\n" not in reply.error.reason
    assert not trace.exists()
    assert {module for module in set(sys.modules) - before if "flwr" in module} == set()


def test_a_bundle_without_a_file_is_refused(honest, installed):
    fewer = {name: content for name, content in honest.items() if name != TERMS}
    assert TERMS in answer(installed, bundled(fewer)).error.reason


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_second_file_of_one_name_is_seen(honest, installed):
    changed = honest[TERMS] + b"\nprint()\n"
    for content in (
        bundled(honest, (TERMS, changed)),
        bundled(honest | {TERMS: changed}, (TERMS, honest[TERMS])),
    ):
        assert TERMS in answer(installed, content).error.reason


def test_the_name_of_a_file_is_escaped_and_cut_and_few_refusals_are_kept(
    honest, installed, tmp_path
):
    reason = answer(installed, bundled(honest, ("\x1b]0;x" + "a" * 20_000, b""))).error.reason
    assert len(reason) < 1000 and "\\x1b]0;xa" in reason and reason.isprintable()
    for number in range(200):
        bundle.refuse_code(tmp_path, f"{number:016x}", reason)
    assert len((tmp_path / "refused-code").read_text().splitlines()) == 100


def test_what_is_no_code_may_differ(honest, installed):
    """Comments, layout, documents, partitions, and keys of a run with their values."""
    other = {
        TERMS: b"# a comment\n\n" + honest[TERMS].replace(b"\n", b"\r\n"),
        "README.md": b"",
        "partitions/mine.json": b"{}",
        PROJECT: honest[PROJECT] + b"\n[tool.flwr.app.config.plugin]\nkey = 1\n",
    }
    assert not answer(installed, bundled(honest | other)).has_error()


def test_an_operator_may_accept_one_difference_and_runs_the_installed_code(
    honest, installed, tmp_path
):
    trace = tmp_path / "trace"
    line = f"\nopen({str(trace)!r}, 'w')\n".encode()
    other = bundled(honest | {APP: honest[APP] + line})
    reason = answer(installed, other).error.reason
    digest = reason.partition("--accept-code ")[2].partition(",")[0]
    assert not answer(installed, other, [digest]).has_error()
    assert not trace.exists()
    third = bundled(honest | {APP: honest[APP] + line + b"print()\n"})
    assert answer(installed, third, [digest]).has_error()


def test_what_is_no_bundle_is_refused(honest, installed, monkeypatch):
    with pytest.raises(zipfile.BadZipFile):
        answer(installed, b"PK")
    whole = bundled(honest)
    with pytest.raises((zipfile.BadZipFile, zlib.error)):
        answer(installed, whole[:2000] + bytes(100) + whole[2100:])
    monkeypatch.setattr(bundle, "_MAX_BYTES", 1000)
    with pytest.raises(UserError, match="expected a bundle of at most 1000 bytes"):
        answer(installed, whole)


def test_no_bundle_is_answered_that_was_not_compared(installed):
    app = prefork.InstalledApp(installed, ())
    context = Context(1, 1, {}, RecordDict(), {})
    assert "found none" in app.loader()()(message=hello(), context=context).error.reason


def test_a_run_of_agents_gets_the_installed_client_app(tmp_path):
    """Flower starts another program for it, which would load the bundle."""
    factory = NodeStateFactory(objectstore_factory=ObjectStoreFactory())
    factory.state().create_task(TaskType.AGENT_APP, run_id=1, fab_hash="0")
    path = tmp_path / "socket"
    app = create_app(state_factory=factory)
    server = uvicorn.Server(uvicorn.Config(app, uds=str(path), ws="none", log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.05)
        client = prefork.client_class(path)("http://supernode")
        assert prefork.acquire(client)
        assert not prefork.acquire(client)
    finally:
        server.should_exit = True
        thread.join()
