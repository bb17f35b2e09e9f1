"""A client adds its numbers to sums over one set of clients: which set, and from when on.

An absent client must not end the federation, and no order of sums may reveal a client's numbers.
"""

import pytest
from support.sums import CLIENTS, THRESHOLD, Lying, counting_app, nodes_with_keys, stage_of, weight

from dance_flwr.errors import QuorumError
from dance_flwr.federation.flower import SECAGG_CONFIGS
from dance_flwr.federation.flower import SecAggKey as Key
from dance_flwr.federation.flower import SecAggStage as Stage
from dance_flwr.federation.secagg import client
from dance_flwr.federation.secagg.masks import PARTNERS
from dance_flwr.federation.secagg.signatures import ledger_folder
from dance_flwr.federation.server.grid import SecureGrid
from dance_flwr.federation.wire import keys, messages

ALL = sum(map(weight, range(CLIENTS)))
COLLECT = Stage.COLLECT_MASKED_VECTORS


class Absent:
    """An app whose named clients answer nothing from one stage on, while `clients` is not empty."""

    def __init__(self, stage, *clients):
        self.app, self.stage, self.clients, self._gone = counting_app(), stage, clients, set()

    def __call__(self, message, context):
        client = context.node_config["partition-id"]
        if client in self.clients and (stage_of(message) == self.stage or client in self._gone):
            self._gone.add(client)
            raise ConnectionError("gone")
        return self.app(message, context)

    def return_all(self):
        self.clients = ()


@pytest.fixture
def nodes(tmp_path):
    """Configurations of nodes with keys, each with a folder that outlives a run."""
    configs = nodes_with_keys(tmp_path)
    for node, config in configs.items():
        (tmp_path / f"data-{node}").mkdir()
        config[keys.DATA_PATH] = str(tmp_path / f"data-{node}")
    return configs


@pytest.fixture
def read(monkeypatch):
    """The weight of every sum, as the protocol gives it: noise where it is hidden."""
    sums, honest = [], SecureGrid._metrics

    def note(self, total, start, options):
        sums.append(total.metrics(start, options.form)[keys.WEIGHT])
        return honest(self, total, start, options)

    monkeypatch.setattr(SecureGrid, "_metrics", note)
    return sums


def without_keys(nodes):
    for config in nodes.values():
        del config["signing-key"], config["peer-keys"]
    return nodes


def sum_of(grid, clients):
    return grid.server._sum(
        [messages.query(keys.TRAIN, c + 1, {}) for c in clients], 10.0, keys.WEIGH
    )


def record(config):
    """The file in a client's folder that names its set."""
    return ledger_folder(config) / PARTNERS


def bound(nodes):
    """Clients whose folder names a set."""
    return [c["partition-id"] for c in nodes.values() if record(c).exists()]


@pytest.mark.parametrize("stage", [Stage.SETUP, Stage.SHARE_KEYS, COLLECT, Stage.UNMASK])
def test_a_client_that_is_absent_from_the_first_sum_blocks_no_later_run(nodes, read, stage):
    """The set of all is that of the peer keys, whoever happens to come first."""
    first = Lying(nodes, app=Absent(stage, 2))
    if stage == Stage.UNMASK:
        assert first.total() == ALL
    else:
        with pytest.raises(QuorumError, match="expected the numbers of all 5 clients"):
            first.total()
        assert abs(read[0] - ALL + weight(2)) > 1e6
    assert Lying(nodes).total() == ALL
    assert Lying(nodes).total() == ALL


def test_a_sum_of_fewer_than_the_peer_keys_name_is_never_read(nodes, read):
    """Neither before the sum of all nor after it, nor where all of them are in the run."""
    four = range(1, CLIENTS)
    sum_of(Lying(nodes), four)
    assert Lying(nodes).total() == ALL
    sum_of(Lying(nodes), four)
    assert abs(read[0] - ALL + weight(0)) > 1e6 and abs(read[2] - ALL + weight(0)) > 1e6


def test_other_peer_keys_are_no_way_around_the_set_of_an_earlier_sum(nodes, read, tmp_path):
    """A client that left, or was said to leave, would be the difference of two sums."""
    assert Lying(nodes).total() == ALL
    lines = (tmp_path / "peer-keys").read_text().splitlines()
    (tmp_path / "peer-keys").write_text("\n".join(lines[:-1]) + "\n")
    sum_of(Lying(nodes), range(CLIENTS - 1))
    assert abs(read[1] - ALL + weight(CLIENTS - 1)) > 1e6


def test_deleting_the_record_is_no_way_around_the_peer_keys(nodes, read):
    """The documented step of a federation that changes opens the sum of the file, and no other."""
    assert Lying(nodes).total() == ALL
    for config in nodes.values():
        record(config).unlink()
    sum_of(Lying(nodes), range(1, CLIENTS))
    assert abs(read[1] - ALL + weight(0)) > 1e6
    assert Lying(nodes).total() == ALL


@pytest.mark.parametrize("folders", [False, True], ids=["in memory", "in a folder"])
def test_a_sum_that_nobody_unmasked_binds_no_set(nodes, read, folders):
    """Three of four stop before they unmask: nothing was read, so all five may be summed."""
    without_keys(nodes)
    for config in () if folders else nodes.values():
        del config[keys.DATA_PATH]
    app = Absent(COLLECT, 1, 2, 3)
    grid = Lying(nodes, app=app)
    with pytest.raises(QuorumError, match="collect masked vectors"):
        sum_of(grid, range(1, CLIENTS))
    app.return_all()
    assert grid.total() == ALL and read == [ALL]
    sum_of(grid, range(1, CLIENTS))
    assert abs(read[1] - ALL + weight(0)) > 1e6


def test_a_set_is_written_down_before_the_shares_leave(nodes, monkeypatch):
    """A process that is killed between the two has bound its set."""
    flower, at = client.secaggplus_mod, []

    def killed(message, context, handler):
        if stage_of(message) == Stage.UNMASK:
            at.append(bound(nodes))
            raise ConnectionError("killed")
        return flower(message, context, handler)

    monkeypatch.setattr(client, "secaggplus_mod", killed)
    with pytest.raises(QuorumError, match="unmask"):
        Lying(nodes).total()
    assert at == [list(range(c + 1)) for c in range(CLIENTS)]


def test_clients_that_are_not_asked_to_unmask_reveal_nothing_by_another_set(nodes, read):
    """Three of five unmask, and the other two are asked for a sum with one of them."""
    without_keys(nodes)
    app = Absent(Stage.UNMASK, 3, 4)
    grid = Lying(nodes, app=app)
    assert grid.total() == ALL
    assert bound(nodes) == list(range(THRESHOLD))
    app.return_all()
    for other in range(THRESHOLD):
        sum_of(grid, [other, 3, 4])
    assert len(read) == 1 + THRESHOLD and all(abs(number) > 1e6 for number in read[1:])


def test_what_a_server_says_of_the_survivors_binds_all_the_same(nodes):
    """Each client hears that another one is gone; together they give what unmasks the sum of all.

    Only signed survivors prevent that. The set is bound to that of the masked vectors, whatever a
    client hears.
    """
    without_keys(nodes)

    def lie(message):
        if stage_of(message) == Stage.UNMASK:
            record = message.content.config_records[SECAGG_CONFIGS]
            gone = message.metadata.dst_node_id % CLIENTS + 1
            alive = list(record[Key.ACTIVE_NODE_ID_LIST])
            record[Key.ACTIVE_NODE_ID_LIST] = [node for node in alive if node != gone]
            record[Key.DEAD_NODE_ID_LIST] = [gone]
        return message

    with pytest.raises(QuorumError, match="unmask"):  # an honest server cannot add them up
        Lying(nodes, lie).total()
    assert bound(nodes) == list(range(CLIENTS))


def test_a_set_that_was_bound_meanwhile_is_not_unmasked(nodes, read):
    """Of two sums over different clients whose vectors are both collected, one is read."""
    without_keys(nodes)
    started = []

    def lie(message):
        if stage_of(message) == Stage.UNMASK and not started:
            started.append(Lying(nodes))
            sum_of(started[0], range(1, CLIENTS))
        return message

    with pytest.raises(QuorumError, match="unmask"):
        Lying(nodes, lie).total()
    assert read == [ALL - weight(0)]
