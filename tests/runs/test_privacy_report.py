"""The record of a run's messages and the privacy report."""

import pytest
from support.privacy_report import PrivacyReport
from support.privacy_report import any_run as any_run
from support.terminals import on_terminal

from dance_flwr.federation.wire.keys import DOWN, UP
from dance_flwr.runs.privacy_report import HEADINGS, promises, sentences, table

SECURE = {"privacy_secure_aggregation": True, "clients": 5, "rounds": 2}
DP = {"privacy_dp": "distributed", "privacy_noise_multiplier": 1.0, "privacy_epsilon": 50.0}


@pytest.fixture(scope="module")
def plain(reference):
    return reference(clients=5, rounds=2)


@pytest.fixture(scope="module")
def secure(run):
    return run(**SECURE | DP)


def entries(finished, **fields):
    return [e for e in finished.result["messages"] if all(e[k] == v for k, v in fields.items())]


def test_the_record_counts_every_message_and_its_bytes(plain):
    (up,) = entries(plain, type="train", way=UP)
    assert up["count"] == 10 and up["errors"] == 0 and up["stage"] == ""
    assert up["bytes"] == sum(sum(row["bytes_up"].values()) for row in plain.result["history"])
    assert "num-examples" in up["keys"]["metrics"]
    assert {(e["type"], e["way"]) for e in plain.result["messages"]} == {
        (kind, way)
        for kind in ("query.hello", "query.describe", "train", "evaluate", "query.seal")
        for way in (DOWN, UP)
    }


def test_messages_of_secure_aggregation_are_told_apart_by_stage(secure):
    stages = [e["stage"] for e in entries(secure, way=UP) if e["stage"]]
    stages = list(dict.fromkeys(stages))
    assert stages == ["setup", "share_keys", "collect_masked_vectors", "unmask"]
    masked = entries(secure, stage="collect_masked_vectors", way=UP)
    # Flower sends all as training; only two of four are. Under noise there is no validation.
    counts = {entry["type"]: entry["count"] for entry in masked}
    assert counts == {"weigh": 5, "train": 10, "evaluate": 5}
    assert all("metrics" not in entry["keys"] for entry in masked)
    (setup,) = entries(secure, stage="setup", way=UP)
    assert setup["count"] == 5 * 4 and entries(secure, type="evaluate", stage="") == []
    (keys,) = entries(secure, stage="share_keys", way=DOWN)
    assert keys["keys"]["secaggplus_configs"] == ["<node>", "stage"]


def test_every_key_of_a_run_is_explained(plain, secure):
    open_, masked = table(plain.result["messages"]), table(secure.result["messages"])
    assert any("can be inferred" in row[2] for row in open_)
    assert not any(row[1] == "model parameters" for row in masked)
    assert any(row[2].startswith("nobody") for row in masked)
    down = table(secure.result["messages"], DOWN)
    assert all(len(row) == len(HEADINGS) for row in [*open_, *masked, *down])
    names = {row[0] for row in [*open_, *masked, *down]}
    # Words for all of them: no stage or type of the protocol.
    assert not [name for name in names if "_" in name or "/" in name or "." in name]
    assert {"masked sum of sizes", "masked sum of training", "masked sum of scores"} <= names


def test_promises(plain, secure):
    assert [line.split(":")[0] for line in promises(plain.result)] == [
        "No secure aggregation",
        "No differential privacy",
    ]
    said = "\n".join(promises(secure.result))
    assert f"{secure.result['privacy']['epsilon']:.4g}" in said and "Void" not in said
    seeded = dict(secure.result) | {"privacy": secure.result["privacy"] | {"seeded": True}}
    assert "Void" in promises(seeded)[-1]


SETTINGS = {
    "plain": {},
    "int8": {"upload_precision": "int8"},
    "personal": {"personal": "mix"},
    "masks": {"privacy_secure_aggregation": True},
    "noise": {**DP, "privacy_dp": "local"},
    "masked noise": {**DP, "privacy_secure_aggregation": True, "clients": 5},
    "seeded": {**DP, "privacy_dp": "central", "privacy_seeded": True},
    "summaries": {"llm_summaries": "core", "llm_backend": "stub"},
}


@pytest.mark.parametrize("keys", SETTINGS.values(), ids=SETTINGS, scope="class")
class TestPrivacyReport(PrivacyReport):
    """Of runs of methods of this package."""


def test_the_command(cli, secure):
    done = cli("report", secure.folder, "--privacy")
    assert done.code == 0 and "\nmasked sum of training: 10 messages, " in done.out
    for sentence in sentences(secure.result):
        assert sentence in done.out.replace("\n", " ")
    assert sentences(secure.result)[0].startswith("5 clients sent ")
    # On a terminal no line is wider, whatever it says.
    code, text = on_terminal("report", secure.folder, "--privacy", columns=60)
    assert code == 0 and max(map(len, text.splitlines())) <= 60
    assert " ".join(text.split()) == " ".join(done.out.split())
