"""A server that writes outside a client's folder, or asks for more than its operator allows."""

import pytest

from dance_flwr.data.card import run_folder
from dance_flwr.errors import UserError
from dance_flwr.federation.wire import keys
from tests.support.asking import asker, first_training, reason


@pytest.fixture(scope="module")
def asked(run):
    """The training message and the context of a client in an honest run of DANCE."""
    return first_training(run, clients=3, rounds=1, method="dance")


@pytest.fixture
def client(asked, tmp_path):
    """A function that asks one client, which has a folder of its own, and returns its reply."""
    return asker(asked, tmp_path / "nodes" / "own")


def files_of(folder):
    return {path.relative_to(folder) for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "name",
    ["../../../other", "/tmp/other", "..", ".", "", ".hidden", "a/b", "a\\b", "a\x00b", "a" * 129],
)
def test_a_run_whose_name_is_a_path_writes_nothing(client, tmp_path, name):
    before = files_of(tmp_path)
    assert "run: expected a name" in reason(client(run=name))
    assert files_of(tmp_path) == before
    assert not client(run="debian-seed0_1.b").has_error()


def test_a_link_out_of_the_folder_is_not_followed(client, tmp_path):
    (client.folder / "runs").mkdir(exist_ok=True)
    (client.folder / "runs" / "new").symlink_to(tmp_path)
    before = files_of(tmp_path)
    assert "remove the link" in reason(client(run="new"))
    assert files_of(tmp_path) == before


def test_an_operator_may_keep_all_runs_on_another_disk(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "runs").symlink_to(tmp_path / "disk")
    assert run_folder(tmp_path / "own", "a").resolve() == (tmp_path / "disk" / "a").resolve()


@pytest.mark.parametrize(
    ("term", "lie"),
    [
        ({keys.METHODS: "dance, fedavg-full"}, {"method": "fedsage"}),
        ({keys.ROUNDS_MOST: 50}, {"rounds": 51}),
        ({keys.LOCAL_EPOCHS_MOST: 3}, {"local-epochs": 4}),
        ({keys.HIDDEN_DIM_MOST: 64}, {"hidden-dim": 65}),
    ],
    ids=["methods", "rounds", "epochs", "sizes"],
)
def test_a_node_bounds_what_a_run_may_ask(client, term, lie):
    assert not client(term).has_error()
    (name,) = lie
    assert reason(client(term, lie)).startswith(f"{name}: expected")


def test_a_round_beyond_those_of_the_run_is_refused(client):
    assert "rounds: expected" in reason(client({keys.ROUNDS_MOST: 50}, server_round=51))


@pytest.mark.parametrize("value", [0, -1, float("nan"), True, "many"])
def test_a_term_that_says_nothing_stops_the_node(client, value, caplog):
    """An operator who mistypes a bound is not left without one, and reads which it is."""
    assert client({keys.ROUNDS_MOST: value}).has_error()
    assert f"{keys.ROUNDS_MOST}: expected a number" in caplog.text


def test_the_name_is_checked_where_a_path_is_made(tmp_path):
    with pytest.raises(UserError, match="expected a name"):
        run_folder(tmp_path, "../x")
