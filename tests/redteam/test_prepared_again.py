"""A client's folder that is prepared again is of the same client, and what it spent is spent."""

import shutil
from pathlib import Path

import pytest
from support.asking import asker, first_training, reason

from dance_flwr.config.paths import state_root
from dance_flwr.deploy.certificates import make_key
from dance_flwr.errors import UserError
from dance_flwr.federation.secagg.signatures import ledger_folder
from dance_flwr.federation.wire import keys

LOCAL = {"privacy_dp": "local", "privacy_noise_multiplier": 1.0, "privacy_epsilon": 100.0}


@pytest.fixture(scope="module")
def asked(run):
    return first_training(run, method="fedavg-full", **LOCAL)


@pytest.fixture
def key(tmp_path):
    """A function that writes a private key and returns its path."""

    def write(name):
        make_key(tmp_path / name)
        return str(tmp_path / name)

    return write


def prepared_again(client):
    """The client's folder without what runs left, as `site prepare` makes it."""
    copy = client.folder.with_name("copy")
    left = shutil.ignore_patterns("runs", ".*", "*-account.json", "*-counts.json", "sum-*.json")
    shutil.copytree(client.folder, copy, ignore=left)
    shutil.rmtree(client.folder)
    copy.rename(client.folder)


def test_a_budget_that_was_spent_stays_spent(asked, tmp_path):
    client = asker(asked, tmp_path / "client")
    term = {keys.MAX_EPSILON: 8.0}
    refused = [client(term, run=f"run-{number}").has_error() for number in range(6)]
    assert not refused[0] and refused[-1]
    prepared_again(client)
    assert "privacy budget" in reason(client(term, run="later"))


def test_trainings_that_were_counted_stay_counted(asked, tmp_path):
    client = asker(asked, tmp_path / "client")
    term = {keys.MAX_TRAININGS: 1}
    assert not client(term).has_error()
    prepared_again(client)
    assert reason(client(term, run="later")).startswith(keys.MAX_TRAININGS)


def test_a_key_is_one_node_wherever_its_data_are(asked, tmp_path, key):
    one, other = asker(asked, tmp_path / "client"), asker(asked, tmp_path / "elsewhere")
    term = {keys.MAX_TRAININGS: 1, keys.SIGNING_KEY: key("node.key")}
    assert not one(term).has_error()
    assert reason(other(term)).startswith(keys.MAX_TRAININGS)
    assert not other(term | {keys.SIGNING_KEY: key("another.key")}).has_error()


def test_ledgers_lie_in_the_state_of_the_user_by_key_or_by_path(tmp_path, key):
    data, signing = {keys.DATA_PATH: str(tmp_path / "client")}, key("node.key")
    by_path, by_key = ledger_folder(data), ledger_folder(data | {keys.SIGNING_KEY: signing})
    assert by_path != by_key and {by_path.parent, by_key.parent} == {state_root() / "nodes"}
    assert by_path == ledger_folder({keys.DATA_PATH: str(tmp_path / "x" / ".." / "client")})
    assert by_key == ledger_folder({keys.DATA_PATH: "/other", keys.SIGNING_KEY: signing})
    assert ledger_folder({}) is None, "a simulated client has no state that outlives its run"
    with pytest.raises(UserError):
        ledger_folder(data | {keys.SIGNING_KEY: str(tmp_path / "none.key")})


def test_partners_are_remembered_there(tmp_path):
    from flwr.app import Context, RecordDict

    from dance_flwr.federation.secagg import masks

    def bound(nodes, folder):
        folder.mkdir(exist_ok=True)
        context = Context(1, 1, {keys.DATA_PATH: str(folder)}, RecordDict(), {})
        return masks._bound("clients", context, bind=nodes)

    folder: Path = tmp_path / "client"
    assert bound([1, 2, 3], folder) == [1, 2, 3]
    shutil.rmtree(folder)
    assert bound([1, 2], folder) == [1, 2, 3]
