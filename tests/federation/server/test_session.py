"""How many clients a run has whose configuration does not say so."""

import pytest

from dance_flwr.errors import UserError
from dance_flwr.federation.server import session


class Growing:
    """A grid in which SuperNodes appear one look after the other."""

    def __init__(self, *counts):
        self._counts = list(counts)

    def get_node_ids(self):
        return range(self._counts.pop(0) if len(self._counts) > 1 else self._counts[0])


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr(session, "POLL_NODES_SECONDS", 0.0)


def test_a_run_has_as_many_clients_as_supernodes(no_waiting):
    keys = {"clients": 0, "rounds": 3}
    assert session.with_clients(keys, Growing(2)) == keys | {"clients": 2}
    assert session.with_clients(keys, Growing(0, 1, 2, 5, 8, 8)) == keys | {"clients": 8}
    assert keys["clients"] == 0, "the run's own keys stay"


def test_a_number_that_is_set_stays(no_waiting):
    assert session.with_clients({"clients": 3}, Growing(8)) == {"clients": 3}


def test_one_supernode_is_no_federation(no_waiting):
    with pytest.raises(UserError, match=r"expected at least 2 SuperNodes, .* found 1; .*num-super"):
        session.with_clients({"clients": 0, "node-timeout": 0.05}, Growing(1))
