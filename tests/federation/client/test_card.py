"""What a client launches on a GPU and waits for, counted on a card that is made up."""

from collections import Counter
from unittest.mock import patch

import pytest
from support.card import CARD, counting, forget_caches

import client_app
from dance_flwr.dance import passes
from dance_flwr.federation.client import handlers
from dance_flwr.federation.wire import keys, messages

# Bars of one client and round of the default method (decision 31).
MAX_WAITS, MAX_LAUNCHES = 6, 70


class CountingApp:
    """A ClientApp whose clients compute on the card; `counts` has the counts of each answer.

    Attributes
    ----------
    counts : (round, kind of message, node) -> `Counts`; rounds from 1
    all : the `Counts` of every answer
    """

    def __init__(self, app):
        self.app, self.counts, self.all = app, {}, []
        forget_caches()

    def __call__(self, message, context):
        kind = message.metadata.message_type.partition(".")[0]
        with patch.object(handlers, "pick_device", lambda *_: CARD), counting() as counts:
            reply = self.app(message, context)
        self.all.append(counts)
        if message.has_content() and kind in ("train", "evaluate"):
            settings = messages.config_of(message)
            if not settings.get(keys.FINAL, False) and keys.ROUND in settings:
                key = settings[keys.ROUND], kind, message.metadata.dst_node_id
                self.counts[key] = counts
        return reply


@pytest.fixture(scope="module", params=["on the host", "on the card"])
def counted(run, request):
    """A run of the default method, which condenses and selects here or there, and its counts.

    A small client selects in every round: one more copy, of the model to the host.
    """
    run(rounds=1)  # its model, in the caches of the process, is of no card
    app = CountingApp(client_app.app)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "on the host":
            return run(app=app, rounds=4, dance_text_refresh_every=1), app
        patch.setattr(passes, "MAX_DECIDED_ON_HOST", 0)  # as a client of many nodes does
        return run(app=app, rounds=4), app


@pytest.mark.parametrize("round_", [3, 4])  # the first validation selects its evidence
def test_a_round_is_within_its_bars(counted, round_):
    _, app = counted
    counts = app.counts[round_, "train", 1]  # with the validation of the round before
    waits = counts.waits
    assert sum(waits.values()) <= MAX_WAITS, waits
    assert sum(counts.launches.values()) <= MAX_LAUNCHES
    assert not counts.epoch_waits and counts.epochs == 2


def test_no_answer_mixes_devices_or_adds_up_without_an_order(counted):
    """Also those that select, and the last ones, with the evidence packs."""
    _, app = counted
    for name in ("mixed", "unordered", "alerts", "integer_products"):
        total = sum((getattr(counts, name) for counts in app.all), Counter())
        assert not total, name


def test_the_card_trains_the_model_of_the_host(run, reference):
    """In shapes that are rounded up, with other sums: equal but for rounding."""
    finished = run(app=CountingApp(client_app.app), dropout=0.0)
    plain = reference(dropout=0.0)
    assert finished.result["test_accuracy"] == pytest.approx(plain.result["test_accuracy"], abs=0.1)
    losses = [[row["loss"] for row in f.result["history"]] for f in (finished, plain)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
