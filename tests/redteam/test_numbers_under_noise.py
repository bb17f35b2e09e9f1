"""Under noise nothing that depends on a client's data leaves it, but what the noise covers.

Two runs differ in the data of client 0 alone: other labels, texts, edges, numbers of nodes. What it
answers must be the same, entry by entry, except for the noisy update and salted hashes.
"""

import numpy as np
import pytest
from support.graphs import WORDS, sentences

from dance_flwr.data.graphs.graph import TEST, TRAIN, VAL
from dance_flwr.errors import QuorumError
from dance_flwr.federation.client.app import REFUSAL
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.wire import keys

NOISE = {"privacy_noise_multiplier": 4.0, "privacy_epsilon": 500.0}
MASKED = {"privacy_secure_aggregation": True}
MODES = {
    "central": {"privacy_dp": "central"},
    "adaptive": {"privacy_dp": "central", "privacy_clipping": "adaptive"},
    "local": {"privacy_dp": "local"},
    "distributed": {"privacy_dp": "distributed", **MASKED},
}
COVERED = {keys.ARRAYS, keys.SCALES}  # records of the update
PAID = {keys.UNCLIPPED}  # the server adds noise to their sum, out of the same epsilon
# Keys and shares are drawn anew; what the masked sum holds is tested below.
SECRET = {"pk1", "pk2", "shares", "ctxts", "masked_params"}
SALTED = {keys.DATA_SHA256, keys.EVIDENCE_SHA256}
CLIENTS, NODES = 3, 9


def graph(crafted, name, seed, more):
    """Three clients; `seed` and `more`, its additional nodes, decide the data of client 0."""
    sizes = [NODES + more, *[NODES] * (CLIENTS - 1)]
    ids, labels, texts, split, pairs = [], [], [], [], []
    for client, size in enumerate(sizes):
        rng = np.random.default_rng([client, seed if client == 0 else 0])
        begin, own = len(ids), rng.integers(0, 3, size)
        own[:3] = [0, 1, 2]
        ids += [f"c{client}-{i}" for i in range(size)]
        labels += own.tolist()
        texts += [sentences(rng, WORDS[sorted(WORDS)[c]], int(rng.integers(1, 5))) for c in own]
        split += [TRAIN if i < 3 else (TRAIN, VAL, TEST)[i % 3] for i in range(size)]
        pairs += [(begin + i, begin + (i + 1 + client) % size) for i in range(size - seed % 2)]
    return crafted(name, ids, texts, labels, pairs, split)


def said(finished):
    """What client 0 said, message by message, without its update and without salted hashes."""
    told = []
    for message in finished.messages:
        if message.metadata.src_node_id != 1:
            continue
        if message.has_error():
            told.append(("error", message.error.reason))
            continue
        entries = {
            (record, key): value
            for record, content in message.content.items()
            if record not in COVERED
            for key, value in content.items()
            if key not in SALTED | PAID | SECRET
        }
        told.append((message.metadata.message_type, entries))
    return told


@pytest.mark.parametrize("method", ["dance", "fedavg-full"])
@pytest.mark.parametrize("mode", ["central", "adaptive", "local", "distributed"])
def test_two_clients_of_different_data_say_the_same(crafted, run, mode, method):
    one, other = (
        said(
            run(
                data=graph(crafted, f"{name}", seed, more),
                partition="random",
                method=method,
                rounds=2,
                **MODES[mode],
                **NOISE,
            )
        )
        for name, seed, more in (("one", 1, 0), ("other", 2, 6))
    )
    assert len(one) >= 5 and [kind for kind, _ in one] == [kind for kind, _ in other]
    told = {
        (kind, *key)
        for (kind, left), (_, right) in zip(one, other, strict=True)
        for key in left.keys() | right.keys()
        if left.get(key) != right.get(key)
    }
    assert not told


def test_a_masked_sum_holds_none_of_them_either(crafted, run):
    data = graph(crafted, "summed", 1, 0)
    finished = run(
        data=data, partition="random", clients=CLIENTS, rounds=2, **MODES["distributed"], **NOISE
    )
    result = finished.result
    assert result["nodes_per_client"] == [0] and result["tokens"]["encoder"]["fresh"] == 0
    for row in result["history"]:
        assert row["loss"] is None
        assert not any((*row["counts"].values(), *row["seconds"].values()))


@pytest.mark.parametrize("mode", ["central", "local"])
def test_a_client_says_of_an_error_only_that_there_was_one(run, monkeypatch, caplog, mode):
    def failing(client, *_, **__):
        raise RuntimeError(f"a client of {client.weight} nodes")

    monkeypatch.setattr(Client, "train", failing)
    with caplog.at_level("WARNING", "flwr"), pytest.raises(QuorumError, match=REFUSAL) as caught:
        run(rounds=1, **MODES[mode], **NOISE)
    assert "RuntimeError" not in str(caught.value)
    assert "RuntimeError: a client of 1 nodes" in caplog.text
