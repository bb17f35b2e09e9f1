"""What a client predicts: a bounded part of its validation nodes in rounds, all in the end."""

import pytest
import torch

from dance_flwr.data.graphs.graph import TEST, VAL
from dance_flwr.federation.client.client import Client
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.runs.result import load_model


@pytest.fixture
def asked(monkeypatch):
    """The (nodes, final) of every prediction of the method."""
    seen = []
    kind = type(get_spec("dance").make_client())
    real = kind.predict

    def predict(self, model, data, config, info, nodes):
        seen.append((nodes.tolist(), info.final))
        return real(self, model, data, config, info, nodes)

    monkeypatch.setattr(kind, "predict", predict)
    return seen


def labelled(data, code):
    return torch.nonzero((data.split == code) & (data.labels >= 0)).flatten().tolist()


@pytest.mark.parametrize("most", [0, 2, 4096])
def test_a_validation_reads_so_many_nodes_and_always_the_same(dance, run_config, asked, most):
    data, model = dance.data(0), load_model(dance.folder)
    every, run = labelled(data, VAL), dance.result["run"]
    assert len(every) > 2
    for seed in (0, 0, 3):
        config = run_config(validation_nodes=most, seed=seed, device="cpu")
        info = RoundInfo(run, 3, model_fingerprint(model))
        counts = Client(dance.data(0), config).validate(model, info)["val"]
        assert counts.total == len(asked[-1][0]) == (2 if most == 2 else len(every))
        assert counts.correct.keys() == {"plain", "fused", "deployed"}
    for nodes, final in asked:
        assert set(nodes) <= set(every) and nodes == sorted(set(nodes)) and not final
    assert asked[0] == asked[1] and (asked[0] != asked[2]) == (most == 2)


def test_the_final_model_is_scored_on_every_node_of_both_splits(dance, run_config, asked, tmp_path):
    import shutil

    from dance_flwr.client_data.client_data import ClientData

    shutil.copytree(dance.partition / "client-0", tmp_path / "client-0")
    data = ClientData(tmp_path / "client-0", torch.device("cpu"))
    client = Client(data, run_config(validation_nodes=1))
    model = load_model(dance.folder)
    found = client.finish(model, RoundInfo(dance.result["run"], 3, model_fingerprint(model)))
    ((nodes, final),) = asked
    assert final and nodes == labelled(data, VAL) + labelled(data, TEST)
    assert {name: counts.total for name, counts in found.items()} == {
        "val": len(labelled(data, VAL)),
        "test": len(labelled(data, TEST)),
    }
    row = dance.result["clients"][0]
    assert found["test"].correct["deployed"] / found["test"].total == pytest.approx(
        row["test_accuracy"]
    )
