"""A server that subtracts two masked sums over different clients to read the client between them.

It decodes whatever vector the protocol gives it, not only what the honest server reads of it.
"""

import json

import numpy as np
import pytest
from flwr.app import ConfigRecord
from support.sums import CLIENTS, Lying, nodes_with_keys, stage_of, weight

import client_app
from dance_flwr.data.graphs.graph import VAL
from dance_flwr.errors import QuorumError, UserError
from dance_flwr.federation.flower import SECAGG_CONFIGS
from dance_flwr.federation.flower import SecAggKey as Key
from dance_flwr.federation.flower import SecAggStage as Stage
from dance_flwr.federation.secagg.signatures import Claim, with_claims
from dance_flwr.federation.server.grid import SecureGrid
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import arrays_of

SECURE = {"privacy_secure_aggregation": True, "clients": 5, "method": "fedavg-full"}
GONE = 3


@pytest.fixture
def decoded(monkeypatch):
    """All numbers of every sum, as (number of clients, metric -> sum)."""
    sums, honest = [], SecureGrid._metrics

    def read(self, total, start, options):
        sums.append((total.clients, total.metrics(start, options.form)))
        return honest(self, total, start, options)

    monkeypatch.setattr(SecureGrid, "_metrics", read)
    return sums


class Leaving:
    """The client app with a client that is gone from one stage of one sum on, or asked no more.

    Sums count from 0: the weights, the training of every round with the validation of the one
    before, the validation of the last round, the final counts.
    """

    def __init__(self, stage, at, forever=False):
        self.stage, self.at, self.forever = stage, at, forever
        self.sums, self.reached = -1, False

    def __call__(self, message, context):
        stage = message.content.config_records.get(SECAGG_CONFIGS, {}).get(Key.STAGE)
        if stage is not None and context.node_config["partition-id"] == GONE:
            self.sums += stage == Stage.SETUP
            here = self.sums == self.at or (self.forever and self.sums > self.at)
            self.reached = here and (self.reached or stage == self.stage)
            if self.reached:
                raise ConnectionError("gone")
        return client_app.app(message, context)


@pytest.mark.parametrize("stage", [Stage.SETUP, Stage.SHARE_KEYS, Stage.COLLECT_MASKED_VECTORS])
def test_a_missing_client_does_not_reveal_its_labels(run, decoded, stage):
    """Two validations, one without client 3: their difference was its label histogram."""
    finished = run(app=Leaving(stage, at=3), rounds=2, **SECURE)
    data = finished.data(GONE)
    labels = data.labels[(data.split == VAL) & (data.labels >= 0)]
    histogram = np.bincount(labels, minlength=3)
    (all_, first), (fewer, second) = (pair for pair in decoded[1:4] if "val-total" in pair[1])
    assert (all_, fewer) == (CLIENTS, CLIENTS - 1)
    difference = np.array(first["val-actual"], object) - np.array(second["val-actual"], object)
    assert difference.tolist() != histogram.tolist()
    assert first["val-total"] - second["val-total"] != len(labels)
    rows = finished.result["history"]
    assert rows[0]["val_accuracy"] is not None and rows[1]["val_accuracy"] is None
    assert rows[1]["absent"] and finished.result["best_round"] == 1


@pytest.mark.parametrize("stage", [Stage.SETUP, Stage.COLLECT_MASKED_VECTORS])
def test_nor_its_weight_loss_and_counts_in_training(run, decoded, stage):
    finished = run(app=Leaving(stage, at=2), rounds=2, **SECURE)
    nodes = finished.data(GONE).num_nodes
    first, second = (pair for pair in decoded[1:3] if keys.LOSS in pair[1])
    assert (first[0], second[0]) == (CLIENTS, CLIENTS - 1)
    assert first[1][keys.WEIGHT] == sum(finished.data(c).num_nodes for c in range(CLIENTS))
    assert first[1][keys.WEIGHT] - second[1][keys.WEIGHT] != nodes
    before, row = finished.result["history"]
    assert row["loss"] is None and row["counts"] == {} and row["val_accuracy"] is not None
    assert before["val_accuracy"] is None  # its validation came with that training
    json.loads((finished.folder / "result.json").read_text(), parse_constant=pytest.fail)


def test_a_run_without_one_client_trains_on_and_says_why_it_has_no_result(run, decoded, tmp_path):
    """Its test counts would be a second sum; the model stays, and the run can be resumed."""
    with pytest.raises(QuorumError, match=r"expected the numbers of all 5 clients.*resume"):
        run(app=Leaving(Stage.SETUP, at=3, forever=True), rounds=3, folder=tmp_path, **SECURE)
    clients = [clients for clients, _ in decoded]
    assert clients == [5, 5, 5, 4, 4, 4]
    assert (tmp_path / "model.safetensors").exists()
    finished = run(folder=tmp_path, rounds=3, resume=True, **SECURE)
    assert finished.result["best_round"] == 1 and finished.result["test_nodes"] > 0


def test_changing_sets_of_clients_do_not_reveal_every_weight(tmp_path, decoded):
    """Fourteen sums over three of five clients: least squares gave all node counts exactly."""
    grid = Lying(nodes_with_keys(tmp_path))
    rng, rows, sums = np.random.default_rng(0), [], []
    for _ in range(14):
        chosen = np.sort(rng.choice(CLIENTS, 3, replace=False))
        batch = [messages.query(keys.TRAIN, int(client) + 1, {}) for client in chosen]
        grid.server._sum(batch, 10.0, keys.WEIGH)
        rows.append(np.isin(np.arange(CLIENTS), chosen).astype(float))
        sums.append(float(decoded[-1][1][keys.WEIGHT]))
    solved, *_ = np.linalg.lstsq(np.array(rows), np.array(sums), rcond=None)
    true = np.array([weight(client) for client in range(CLIENTS)])
    assert np.abs(solved - true).max() > 1e6
    assert len(decoded) == 14


@pytest.mark.parametrize("folders", [False, True], ids=["in memory", "in a folder"])
def test_clients_without_keys_do_not_believe_who_the_server_says_the_others_are(
    tmp_path, decoded, folders
):
    """Sums over four of five, said to be over "clients 0 to 3" each time: numbers came in all."""
    nodes = {c + 1: {"partition-id": c, "num-partitions": CLIENTS} for c in range(CLIENTS)}
    for node, config in nodes.items() if folders else ():
        (folder := tmp_path / str(node)).mkdir()
        config[keys.DATA_PATH] = str(folder)
    claimed = []

    def lie(message):
        if stage_of(message) != Stage.SHARE_KEYS:
            return message
        claims = {node: Claim(number, b"") for number, node in enumerate(claimed)}
        return with_claims(message, claims)

    grid = Lying(nodes, lie)
    for left in range(CLIENTS):
        claimed[:] = [client + 1 for client in range(CLIENTS) if client != left]
        grid.server._sum(
            [messages.query(keys.TRAIN, node, {}) for node in claimed], 10.0, keys.WEIGH
        )
    first, *others = [numbers[keys.WEIGHT] for _, numbers in decoded]
    assert first == sum(map(weight, range(1, CLIENTS)))
    assert all(abs(found) > 1e6 for found in others)


def test_a_server_that_tells_clients_different_sets_reads_none(tmp_path, decoded):
    """Each client is told that the client it knows to be gone is there, or the other way round."""

    def lie(message):
        stage = message.content.config_records.get(SECAGG_CONFIGS, {})
        if stage.get(Key.STAGE) == Stage.COLLECT_MASKED_VECTORS and lying:
            left = message.metadata.dst_node_id % CLIENTS + 1
            sources = list(stage[Key.SOURCE_LIST])
            place = sources.index(left)
            for key in (Key.SOURCE_LIST, Key.CIPHERTEXT_LIST):
                stage[key] = [part for i, part in enumerate(stage[key]) if i != place]
        return message

    lying = False
    grid = Lying(nodes_with_keys(tmp_path), lie)
    assert grid.total() == sum(map(weight, range(CLIENTS)))
    lying = True
    try:
        grid.total()
    except Exception as error:
        assert not isinstance(error, AssertionError)
    assert all(abs(numbers[keys.WEIGHT]) > 1e6 for _, numbers in decoded[1:])


@pytest.fixture
def updates(monkeypatch):
    """The sum of updates of every training, as the protocol gives it."""
    sums, honest = [], SecureGrid._metrics

    def read(self, total, start, options):
        if options.task == keys.TRAIN:
            sums.append(total.numbers[:start].astype(float))
        return honest(self, total, start, options)

    monkeypatch.setattr(SecureGrid, "_metrics", read)
    return sums


def asking_one_for_something_else(task, change, at):
    """The client app with a server that alters one request: the `at`-th sum of a task."""
    sums = []

    def app(message, context):
        stage = message.content.config_records.get(SECAGG_CONFIGS, {}).get(Key.STAGE)
        options = message.content.config_records.get(keys.SECURE_SUM, {})
        one = context.node_config["partition-id"] == GONE
        if one and stage == Stage.COLLECT_MASKED_VECTORS and options[keys.TASK] == task:
            sums.append(task)
            message = change(message) if len(sums) == at else message
        return client_app.app(message, context)

    return app


def other_model(message):
    """The same request for a model without any weight: it predicts one class for every node."""
    state = {name: 0 * tensor for name, tensor in messages.model_of(message).items()}
    return messages.with_arrays(message, arrays_of(state))


def other_norm(message):
    config = messages.config_of(message) | {keys.CLIPPING_NORM: 1e-3}
    message.content[keys.CONFIG] = ConfigRecord(config)
    return message


def test_a_client_that_validates_another_model_does_not_reveal_its_labels(run, decoded):
    """Over the same clients: the difference was what the other model changed at one of them."""
    app = asking_one_for_something_else(keys.EVALUATE, other_model, at=2)
    with pytest.raises(UserError, match="a client is broken or lies"):
        run(app=app, rounds=2, **SECURE)
    clients, numbers = decoded[-1]
    assert clients == CLIENTS and abs(numbers["val-total"]) > 1e6


def no_validation(message):
    del message.content[keys.CONFIG][keys.VALIDATE]
    return message


def test_a_client_that_is_asked_for_no_validation_is_left_out_of_the_sum(run, decoded):
    app = asking_one_for_something_else(keys.TRAIN, no_validation, at=2)
    first, second = run(app=app, rounds=2, **SECURE).result["history"]
    assert second["absent"] and (second["loss"], first["val_accuracy"]) == (None, None)
    clients, numbers = decoded[2]
    assert clients == CLIENTS - 1 and abs(numbers["val-total"]) > 1e6


@pytest.mark.parametrize("change", [other_model, other_norm])
def test_a_client_that_trains_another_model_hides_its_update_in_noise(run, updates, change):
    """Others that start from a dead model upload nothing: the sum was one client's update."""
    run(rounds=2, **SECURE)
    app = asking_one_for_something_else(keys.TRAIN, change, at=2)
    with pytest.raises(UserError):
        run(app=app, rounds=2, **SECURE)
    _, honest, _, masked = updates
    assert np.std(honest) > 0 and np.std(masked) > 0
    assert abs(np.corrcoef(honest, masked)[0, 1]) < 5 / honest.size**0.5


def test_a_client_with_another_setting_hides_its_numbers(tmp_path, decoded):
    """A run configuration comes from the server too: fewer validation nodes, another weight."""
    grid = Lying(nodes_with_keys(tmp_path))
    assert grid.total() == sum(map(weight, range(CLIENTS)))
    grid._contexts[GONE].run_config["aggregate-weight"] = "labelled"
    with pytest.raises(UserError):
        grid.total()
    assert abs(decoded[-1][1][keys.WEIGHT]) > 1e6
