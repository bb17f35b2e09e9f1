"""A server that writes outside a client's folder, or asks for more than its operator allows."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from itertools import count, islice

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

import client_app
from dance_flwr.config.paths import MODEL
from dance_flwr.data.card import run_folder
from dance_flwr.errors import UserError
from dance_flwr.federation.client.admission import TRAININGS, count_task
from dance_flwr.federation.client.run_files import FINAL
from dance_flwr.federation.node_config import run_config_of, terms_of
from dance_flwr.federation.privacy.accounting import ACCOUNT
from dance_flwr.federation.secagg.signatures import ledger_folder
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import arrays_of
from dance_flwr.nn.calibration import TEMPERATURES
from tests.support.asking import asker, first_training, reason
from tests.support.killing import Killed, asks


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
        ({keys.METHODS: "dance, fedavg-full"}, {"method": "ditto"}),
        ({keys.MAX_ROUNDS: 50}, {"rounds": 51}),
        ({keys.MAX_LOCAL_EPOCHS: 3}, {"local-epochs": 4}),
        ({keys.MAX_HIDDEN_DIM: 64}, {"hidden-dim": 65}),
        ({keys.LIMITS: "ditto.mu=0.5, dance.prototypes=2"}, {"dance.prototypes": 3}),
        ({keys.LIMITS: "max-chunks=8,condensation-ratio=0.5"}, {"condensation-ratio": 0.6}),
    ],
    ids=["methods", "rounds", "epochs", "sizes", "prototypes", "condensed nodes"],
)
def test_a_node_bounds_what_a_run_may_ask(client, term, lie):
    assert not client(term).has_error()
    (name,) = lie
    assert reason(client(term, lie)).startswith(f"{name}: expected")


def test_a_round_beyond_those_of_the_run_is_refused(client):
    assert "rounds: expected" in reason(client({keys.MAX_ROUNDS: 50}, server_round=51))


def models(client):
    """One model after the other, each close enough to the one that round 1 starts from."""
    return (
        {name: tensor + number * 1e-6 for name, tensor in client.model.items()}
        for number in count(1)
    )


def test_round_1_is_not_asked_for_without_end(client):
    """A server that lies gives every training the number of the first one."""
    term, other = {keys.MAX_ROUNDS: 3}, models(client)
    assert not any(client(term, model=next(other)).has_error() for _ in range(3))
    for number in (1, 2, 3):
        refused = reason(client(term, model=next(other), server_round=number))
        assert refused.startswith(f"{keys.MAX_ROUNDS}: expected at most 3 trainings in run ")


def test_a_round_is_repeated_as_often_as_there_are_rounds(client):
    """A lost reply and an interrupted run ask again for the same round, from the same model."""
    term, other = {keys.MAX_ROUNDS: 3}, models(client)
    assert not any(client(term).has_error() for _ in range(4))
    assert reason(client(term)).startswith(f"{keys.MAX_ROUNDS}: expected at most 3 repeated")
    assert not client(term, model=next(other), server_round=2).has_error()
    assert reason(client(term, server_round=51)).startswith("rounds: expected")


def test_other_names_of_runs_are_other_runs_up_to_the_bound_of_the_node(client):
    term = {keys.MAX_ROUNDS: 1}
    assert not any(client(term, run=f"run-{number}").has_error() for number in range(3))
    term[keys.MAX_TRAININGS] = 4
    assert not client(term, run="run-3").has_error()
    for name in ("run-3", "run-4"):
        assert reason(client(term, run=name)).startswith(f"{keys.MAX_TRAININGS}: expected at most")
    assert len(json.loads((client.ledger / TRAININGS).read_text())["runs"]) == 4


def test_crafted_models_are_not_validated_without_end(client):
    """One validation more than trainings, of the final model; each repeated up to the bound."""
    term, other = {keys.MAX_ROUNDS: 3}, models(client)

    def validates(**values):
        return client(term, task=keys.EVALUATE, model=next(other), **values)

    assert not validates().has_error()  # a run may begin with one
    assert reason(validates()).startswith(
        f"{keys.MAX_ROUNDS}: expected at most 1 validations in run "
    )
    assert not client(term, model=next(other)).has_error()
    assert not validates().has_error()
    assert "one more than trainings" in reason(validates())
    lie = {"client-fraction": 0.5}  # of a server that hides behind sampling
    answered = [
        client(term, lie, task=keys.EVALUATE, model=next(other)).has_error() for _ in range(6)
    ]
    assert answered == [False, False, True, True, True, True]  # rounds and one


def test_a_training_that_also_validates_counts_as_both(client):
    term, other = {keys.MAX_ROUNDS: 3}, models(client)
    assert not client(term, model=next(other), validate=True).has_error()
    assert not client(term, task=keys.EVALUATE, model=next(other)).has_error()
    refused = reason(client(term, task=keys.EVALUATE, model=next(other)))
    assert "expected at most 2 validations" in refused and "one more than trainings" in refused


def test_a_model_that_is_validated_beside_a_training_is_counted_and_checked(client):
    """Else a server would have one model trained, and another one validated each time."""
    term, other = {keys.MAX_ROUNDS: 2}, models(client)
    start = next(other)
    for _ in range(2):
        assert not client(term, model=start, deployed=next(other), validate=True).has_error()
    refused = reason(client(term, model=start, deployed=next(other), validate=True))
    assert "expected at most 2 trainings" in refused
    far = {name: tensor + 1e6 for name, tensor in start.items()}
    for lie in (far, dict(list(start.items())[:1])):
        refused = reason(client(model=start, deployed=lie, validate=True, run="another-run"))
        assert refused.startswith("start model: expected")


def test_one_model_is_validated_again_up_to_the_bound(client):
    term = {keys.MAX_ROUNDS: 2}
    refused = [client(term, task=keys.EVALUATE).has_error() for _ in range(6)]
    assert refused == [False] * 4 + [True] * 2


def test_a_run_ends_once_at_a_node_whatever_its_terms(client):
    """After its final model: no other one, no other temperature, no round; each may be repeated."""
    other, final = models(client), {"task": keys.EVALUATE, "final": True}
    started, best = next(other), next(other)
    assert not client(model=started).has_error()
    assert not any(client(model=best, **final).has_error() for _ in range(2))
    files = [client.folder / "runs" / client.run / name for name in (MODEL, FINAL)]
    kept = [file.read_bytes() for file in files]
    for _ in range(3):
        assert "expected one of its final models" in reason(client(model=next(other), **final))
    for task in (keys.TRAIN, keys.EVALUATE):
        assert "after its final model" in reason(client(model=next(other), task=task))
    assert not client(model=started).has_error()  # of a server whose checkpoint is a round older
    assert [file.read_bytes() for file in files] == kept
    told = {"task": keys.SEAL, "scored_nodes": 9}
    assert not any(client(temperature=TEMPERATURES[3], **told).has_error() for _ in range(2))
    assert "expected one of its temperatures" in reason(client(temperature=TEMPERATURES[4], **told))


def test_a_damaged_count_of_trainings_is_no_new_one(client):
    assert not client({keys.MAX_ROUNDS: 1}).has_error()
    (client.ledger / TRAININGS).write_text('{"runs": {"a": []}}')
    assert "restore it from a copy" in reason(client({keys.MAX_ROUNDS: 1}))


def test_trainings_that_begin_at_once_share_the_bound(asked, client):
    """The count is taken under a lock, and written before a training begins."""

    config = run_config_of(asked[1])

    def begin(model):
        records = dict(asked[0].content) | {keys.ARRAYS: arrays_of(model)}
        try:
            message = Message(RecordDict(records), 1, keys.TRAIN)
            count_task(message, keys.TRAIN, client.folder, terms, config)
        except UserError:
            return False
        return True

    terms = terms_of({keys.MAX_ROUNDS: 5})
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(begin, islice(models(client), 12))) == 5


@pytest.fixture
def bounded(dance, tmp_path):
    """Configurations of three nodes with folders of their own, which bound the rounds to three."""
    nodes = {}
    for number in range(3):
        folder = tmp_path / f"client-{number}"
        left = shutil.ignore_patterns("runs")
        shutil.copytree(dance.partition / f"client-{number}", folder, ignore=left)
        own = {keys.PARTITION_ID: number, keys.DATA_PATH: str(folder), keys.MAX_ROUNDS: 3}
        nodes[number + 1] = own
    return nodes


def counted(nodes):
    """What each client has counted of its one run."""
    files = [ledger_folder(own) / TRAININGS for own in nodes.values()]
    return [next(iter(json.loads(file.read_text())["runs"].values())) for file in files]


def test_a_run_that_is_interrupted_stays_within_the_terms_of_its_nodes(run, bounded, tmp_path):
    """Three rounds in four starts: a round that was cut off is repeated from the same model."""
    options = {"folder": tmp_path / "out", "node_configs": bounded, "method": "fedavg-full"}
    kills = [asks("train", 1, 2), asks("train", 2, 3), asks("train", 3, 3)]
    for start, kill in enumerate(kills):
        with pytest.raises(Killed):
            run(on_message=kill, resume=start > 0, **options)
    finished = run(resume=True, **options)
    assert [row["round"] for row in finished.result["history"]] == [1, 2, 3]
    assert [len(own["trainings"]) for own in counted(bounded)] == [3, 3, 3]
    repeated = [sum(own["trainings"].values()) - 3 for own in counted(bounded)]
    assert sum(repeated) == 1 + 2 + 2  # had trained before a stop
    assert all(1 <= len(own["validations"]) <= 4 for own in counted(bounded))


def test_a_masked_run_counts_its_trainings_and_validations(run, bounded):
    """Weights and validations are stages of sums, too, in messages to train."""
    masked = {"method": "fedavg-full", "privacy_secure_aggregation": True}
    run(node_configs=bounded, **masked)
    for own in counted(bounded):
        assert list(own["trainings"].values()) == [1, 1, 1]
        # One of each round, and of the best model at the end.
        assert len(own["validations"]) in (3, 4) and sum(own["validations"].values()) == 4


def test_a_run_of_personal_models_is_within_the_terms_of_its_rounds(run, bounded):
    """It has one evaluation more, of mixtures with the client's own model, before the final one."""
    for own in bounded.values():
        own[keys.MAX_TRAININGS] = 6  # of three rounds, and as many of the client's own model
    finished = run(node_configs=bounded, method="fedavg-full", personal="mix")
    assert finished.result["test_nodes"] > 0
    assert [sum(own["validations"].values()) for own in counted(bounded)] == [5, 5, 5]
    with pytest.raises(UserError, match="at most 6 trainings in all runs, found 7"):
        run(node_configs=bounded, method="fedavg-full")


def test_own_models_are_trained_once_for_a_run(client):
    """Each would be as many trainings as the run has rounds."""
    term, mix, other = {keys.MAX_TRAININGS: 3}, {"personal": "mix", "rounds": 2}, models(client)
    asks = {"task": keys.EVALUATE, "personalise": True}
    model = next(other)
    assert not any(client(term, mix, model=model, **asks).has_error() for _ in range(2))
    assert "models for own ones" in reason(client(term, mix, model=next(other), **asks))
    again = client(term, mix, run="another", model=model, **asks)
    assert reason(again).startswith(f"{keys.MAX_TRAININGS}: expected at most 3 trainings")


@pytest.mark.parametrize("value", [0, -1, float("nan"), True, "many"])
def test_a_term_that_says_nothing_stops_the_node(client, value, caplog):
    """An operator who mistypes a bound is not left without one, and reads which it is."""
    assert client({keys.MAX_ROUNDS: value}).has_error()
    assert f"{keys.MAX_ROUNDS}: expected a number" in caplog.text


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("epsilon-max", 5, "--node-config: expected one of data-path"),
        (keys.METHODS, " ", "methods: expected names"),
        (keys.METHODS, "dance, fedavgfull", "found 'fedavgfull'"),
        (
            keys.LIMITS,
            "epochs=3",
            "limits: expected keys of a run that are numbers, found 'epochs'",
        ),
        (keys.LIMITS, "local-epochs<3", "limits: expected a list of KEY=NUMBER"),
        (keys.LIMITS, "local-epochs=nan", "limits: expected a number > 0"),
    ],
)
def test_a_term_that_is_mistyped_stops_the_node_too(client, key, value, problem, caplog):
    assert client({key: value}).has_error()
    assert problem in caplog.text


def test_half_a_client_more_is_a_whole_one():
    assert terms_of({keys.MIN_CLIENTS: 3.5}).min_clients == 4


def test_a_run_is_named_before_anything_is_written_of_it(run, tmp_path):
    """The account of a client holds the names of runs: one of a megabyte would stay in it."""
    asked = first_training(
        run,
        **{"clients": 3, "rounds": 1, "method": "fedavg-full", "privacy_dp": "local"},
        privacy_noise_multiplier=4.0,
        privacy_epsilon=50.0,
    )
    client = asker(asked, tmp_path / "own")
    assert "run: expected a name" in reason(client(run="x" * 10**6))
    assert not (client.ledger / ACCOUNT).exists()
    assert not client().has_error()


def test_a_node_without_a_folder_follows_no_link_out_of_the_partition(asked, tmp_path):
    message, context = asked
    config = messages.config_of(message)
    own = f"client-{context.node_config[keys.PARTITION_ID]}"
    (tmp_path / "partition").mkdir()
    (tmp_path / "partition" / own).symlink_to(f"{config[keys.PARTITION_DIR]}/{own}")
    config |= {keys.PARTITION_DIR: str(tmp_path / "partition")}
    records = dict(message.content) | {keys.CONFIG: ConfigRecord(config)}
    lie = Message(RecordDict(records), message.metadata.dst_node_id, keys.TRAIN)
    assert "remove the link" in reason(client_app.app(lie, deepcopy(context)))


def test_the_name_is_checked_where_a_path_is_made(tmp_path):
    with pytest.raises(UserError, match="expected a name"):
        run_folder(tmp_path, "../x")
