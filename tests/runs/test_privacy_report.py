"""The record of a run's messages and the privacy report."""

import pytest
from support.privacy_report import PrivacyReport
from support.privacy_report import any_run as any_run

from dance_flwr.errors import UserError
from dance_flwr.federation.declarations import disclosure
from dance_flwr.federation.wire.keys import DOWN, UP
from dance_flwr.runs.privacy_report import promises, table
from dance_flwr.runs.result import write_result

SECURE = {"privacy_secure_aggregation": True, "clients": 5, "rounds": 2}
DP = {"privacy_dp": "distributed", "privacy_noise_multiplier": 1.0, "privacy_epsilon": 50.0}


@pytest.fixture(scope="module")
def plain(run):
    return run(clients=5, rounds=2)


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
    stages = [e["stage"] for e in entries(secure, type="train", way=UP)]
    assert stages == ["setup", "share_keys", "collect_masked_vectors", "unmask"]
    (masked,) = entries(secure, stage="collect_masked_vectors", way=UP)
    # Weights, two trainings, the final counts; under noise no validation.
    assert masked["count"] == 5 * 4
    assert "metrics" not in masked["keys"] and entries(secure, type="evaluate") == []
    (keys,) = entries(secure, stage="share_keys", way=DOWN)
    assert keys["keys"]["secaggplus_configs"] == ["<node>", "stage"]


def test_every_key_of_a_run_is_explained(plain, secure):
    open_, masked = table(plain.result), table(secure.result)
    assert any("can be inferred" in row[4] and row[1] == UP for row in open_)
    assert not any(row[2] == "model parameters" and row[3] == "the server" for row in masked)
    assert any(row[3].startswith("nobody") for row in masked)
    assert all(len(row) == 7 for row in [*open_, *masked])


def test_an_unknown_key_is_not_passed_over():
    with pytest.raises(UserError, match="'texts' of 'extras'"):
        disclosure("extras", "texts")


def test_promises(plain, secure):
    assert promises(plain.result)[0].endswith("off") and "none" in promises(plain.result)[1]
    said = "\n".join(promises(secure.result))
    assert f"{secure.result['privacy']['epsilon']:.4g}" in said and "void" not in said
    seeded = dict(secure.result) | {"privacy": secure.result["privacy"] | {"seeded": True}}
    assert "void" in promises(seeded)[-1]


SETTINGS = {
    "plain": {},
    "fedavg": {"method": "fedavg-full"},
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


def test_the_command(cli, secure, tmp_path):
    done = cli("report", secure.folder, "--privacy")
    assert done.code == 0 and "masked" in done.out and "differential privacy epsilon" in done.out
    write_result(tmp_path, {k: v for k, v in secure.result.items() if k != "messages"})
    done = cli("report", tmp_path, "--privacy")
    assert done.code == 2 and "run it again" in done.err[-1]
