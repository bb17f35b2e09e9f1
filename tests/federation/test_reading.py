"""All clients of a run read alike: their votes decide, once."""

import pytest
from support.killing import Killed, asks

import client_app
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.errors import UserError
from dance_flwr.federation.wire import keys
from dance_flwr.runs.result import config_of

KEYS = {"text_pooling": "probe", "edge_gates": "none", "rounds": 1}


@pytest.fixture
def votes_of(monkeypatch):
    """Give each client votes of its own."""

    def give(*votes):
        def counted(self):
            return list(votes[self.card.client])

        monkeypatch.setattr(ClientData, "reading_votes", counted)

    return give


def readings_in(messages):
    """What the messages to clients say of the reading, of those that say it."""
    configs = [m.content.config_records.get(keys.CONFIG, {}) for m in messages if m.has_content()]
    return {config[keys.TEXT_POOLING] for config in configs if keys.TEXT_POOLING in config}


@pytest.mark.parametrize("masked", [False, True])
def test_the_sum_decides_for_every_client(run, votes_of, masked):
    # Alone, only client 0 would read by agreement; the others see nothing beyond chance.
    votes_of([0, 0, 9, 0], [0, 0, 1, 1], [0, 0, 2, 1])
    finished = run(method="fedavg-full", clients=3, privacy_secure_aggregation=masked, **KEYS)
    assert readings_in(finished.messages) == {"agreement"}
    assert finished.result["reading"] == {
        "text-pooling": "agreement",
        "edge-gates": "none",
        "votes": [0, 0, 12, 2],
    }
    described = [answer(m)["reading_votes"] for m in finished.messages if answers(m, keys.DESCRIBE)]
    expected = [[]] * 3 if masked else [[0, 0, 9, 0], [0, 0, 1, 1], [0, 0, 2, 1]]
    assert described == expected
    assert config_of(finished.result).text_pooling == "agreement"


def test_one_of_five_does_not_choose_a_reading_by_which_most_lose(run, votes_of):
    votes_of([0, 0, 1, 3], [0, 0, 2, 2], [0, 0, 0, 2], [0, 0, 12, 0], [0, 0, 1, 1])
    finished = run(method="fedavg-full", clients=5, **KEYS)
    assert finished.result["reading"]["votes"] == [0, 0, 16, 8]
    assert readings_in(finished.messages) == {"attention"}


def answers(message, kind):
    """Whether a message is an answer of this kind."""
    return bool(message.metadata.src_node_id) and message.metadata.message_type == kind


def answer(message):
    """The config of an answer."""
    return message.content.config_records[keys.CONFIG]


def test_votes_that_cancel_leave_the_paper_s_reading(run, votes_of):
    votes_of([0, 0, 9, 0], [0, 0, 0, 9])
    finished = run(method="fedavg-full", clients=2, **KEYS)
    assert readings_in(finished.messages) == {"attention"}


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("mode", ["central", "local", "distributed"])
def test_under_differential_privacy_nobody_votes(run, votes_of, mode, seeded):
    """Nor in a run of which studies know the noise, which is to be as one whose noise is secret."""
    votes_of(*[[0, 0, 9, 0]] * 3)
    private = {"privacy_dp": mode, "privacy_noise_multiplier": 4.0, "privacy_epsilon": 500.0}
    private |= {"privacy_secure_aggregation": mode == "distributed", "privacy_seeded": seeded}
    finished = run(method="fedavg-full", clients=3, **KEYS, **private)
    assert readings_in(finished.messages) == {"attention"}
    assert finished.result["reading"]["votes"] == []


def test_a_reading_that_is_set_is_no_subject_of_a_vote(run):
    finished = run(method="fedavg-full", clients=2, **KEYS | {"text_pooling": "agreement"})
    assert readings_in(finished.messages) == set()
    assert finished.result["reading"] == {}
    assert config_of(finished.result).text_pooling == "agreement"


def test_a_resumed_run_keeps_its_reading(run, votes_of, tmp_path):
    options = KEYS | {"method": "fedavg-full", "clients": 2, "rounds": 3}
    votes_of([0, 0, 9, 0], [0, 0, 1, 1])
    with pytest.raises(Killed):
        run(folder=tmp_path, on_message=asks("train", 2), **options)
    votes_of([0, 0, 0, 9], [0, 0, 1, 1])
    finished = run(folder=tmp_path, resume=True, **options)
    assert readings_in(finished.messages) == {"agreement"}


@pytest.mark.parametrize(
    ("votes", "fault"),
    [
        ([0, 0, 2000, 0], "a list of 4 entries, each a whole number from 0 to 1024"),
        ([0, 0], "a list of 4 entries"),
        ([0, 0, -1, 0], "a list of 4 entries"),
        ([0, 0, 1000, 0], "expected votes of up to 35 nodes, found 1000"),
        ([0, 0, 30, 7], "expected votes of up to 35 nodes, found 37"),
    ],
)
def test_votes_that_cannot_be_true_are_refused(run, votes_of, votes, fault):
    votes_of([0, 0, 1, 1], votes)
    with pytest.raises(UserError, match=fault):
        run(method="fedavg-full", clients=2, **KEYS)


def test_a_server_that_names_another_reading_is_refused(run, votes_of):
    votes_of([0, 0, 1, 1], [0, 0, 1, 1])

    def lied_to(message, context):
        config = message.content.config_records.get(keys.CONFIG, {})
        if keys.TEXT_POOLING in config:
            config[keys.EDGE_GATES] = "agreement"
        return client_app.app(message, context)

    with pytest.raises(UserError, match="expected a reading that the run's text-pooling"):
        run(method="fedavg-full", clients=2, app=lied_to, **KEYS)
