"""Personal models: what clients deploy after a run, and what of it leaves them."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from support.killing import Killed, same

from dance_flwr.api.bundle import Bundle, export
from dance_flwr.api.evaluation import Worth, worth
from dance_flwr.client_data.validated import validated_nodes
from dance_flwr.errors import DataError, UserError
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.client.own_models import OwnModel, own_path
from dance_flwr.federation.wire import keys
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.nn.mixture import SHARES, best_candidate, mixture_losses
from dance_flwr.runs.evidence import FinishedRun, verify_evidence
from dance_flwr.runs.result import load_model

MIX = {"personal": "mix", "seed": 2}


@pytest.fixture(scope="module")
def personal(run):
    return run(method="dance", **MIX)


def own_of(finished, client):
    folder = finished.partition / f"client-{client}"
    return OwnModel.read(own_path(folder, finished.result["run"]))


@pytest.fixture(scope="module")
def without(run):
    """The same run without personal models."""
    return run(method="dance", **MIX | {"personal": "off"})


def test_the_global_model_is_that_of_a_run_without_personal_ones(without, personal):
    assert without.result["model_fingerprint"] == personal.result["model_fingerprint"]
    views = personal.result["test_accuracy_by_view"]
    assert views["global"] == without.result["test_accuracy"]
    assert personal.result["evaluation"] == "personalised"
    assert {"plain", "fused", "alone", "deployed"} < views.keys()


def test_the_own_model_is_that_of_local_only_with_the_run_s_keys(run, personal):
    config = personal.config
    reading = {"text_pooling": "probe", "edge_gates": "probe", "class_prior": "labels"}
    # Validated once, as the own model is the last one.
    alone = run(method="local-only", seed=2, evaluate_every=config.rounds, **reading)
    assert alone.result["best_round"] == config.rounds
    state = load_file(alone.folder / "model.safetensors")
    for client in range(config.clients):
        for name, tensor in own_of(personal, client).states["alone"].items():
            torch.testing.assert_close(state[f"client-{client}/{name}"], tensor)


def test_what_is_deployed_is_the_mixture(personal):
    finished = FinishedRun.open(personal.folder)
    for number in range(personal.config.clients):
        client = Client(finished.data(number), finished.config)
        client.load(finished.weights)
        client.own = own_of(personal, number)
        views = client.predict(RoundInfo("x", 3, "", final=True), torch.tensor([2, 0, 5]))
        share = client.own.share
        expected = share * views["alone"] + (1 - share) * views["global"]
        torch.testing.assert_close(views["deployed"], expected)
        row = personal.result["clients"][number]
        assert row["correct_by_view"]["test"].keys() == views.keys()


def losses_in(messages):
    """The losses that clients sent, and those that the server sent back."""
    up, down = [], []
    for message in messages:
        if not message.has_content():
            continue
        metrics = message.content.metric_records.get("metrics", {})
        if message.metadata.src_node_id and keys.LOSSES in metrics:
            up.append((list(metrics[keys.LOSSES]), metrics[keys.WEIGHT]))
        config = message.content.config_records.get("config", {})
        if keys.FINAL in config:
            down.append((list(config.get(keys.LOSSES, [])), config.get(keys.SCORED_NODES, 0)))
    return up, down


def test_clients_send_losses_and_get_their_sum(personal):
    up, down = losses_in(personal.messages)
    assert len(up) == len(down) == personal.config.clients
    assert up[0][0] != up[1][0]
    total = [sum(column) for column in zip(*(losses for losses, _ in up), strict=True)]
    assert down == [(total, sum(nodes for _, nodes in up))] * len(down)


def test_masks_hide_the_losses_and_change_no_share(run, personal):
    masked = run(method="dance", privacy_secure_aggregation=True, **MIX)
    up, down = losses_in(masked.messages)
    assert up == []
    assert down == losses_in(personal.messages)[1]
    for client in range(3):
        assert own_of(masked, client).share == own_of(personal, client).share
    assert masked.result["test_accuracy"] == personal.result["test_accuracy"]


@pytest.mark.parametrize("mode", ["central", "local"])
def test_under_differential_privacy_no_loss_leaves_a_client(run, mode):
    private = {"privacy_dp": mode, "privacy_noise_multiplier": 4.0, "privacy_epsilon": 500.0}
    finished = run(method="fedavg-full", **private, **MIX)
    assert losses_in(finished.messages) == ([], [([], 0)] * 3)
    assert own_of(finished, 0) is not None


def test_a_run_that_is_killed_while_clients_train_alone_resumes_to_the_same(
    run, personal, tmp_path
):
    def kill(message):
        if not message.metadata.src_node_id and message.has_content():
            config = message.content.config_records.get("config", {})
            if keys.FINAL in config:
                raise Killed

    with pytest.raises(Killed):
        run(folder=tmp_path, on_message=kill, method="dance", **MIX)
    same(run(folder=tmp_path, resume=True, method="dance", **MIX), personal)


def test_evidence_shows_the_parts_and_is_verified(personal):
    packs = FinishedRun.open(personal.folder)
    data = packs.data(0)
    explained = packs.explainer(packs.client(data)).explain(torch.tensor([1]))
    assert explained.stages[-2:] == ("alone", "personal")
    probs = dict(zip(explained.stages, explained.probs, strict=True))
    share = explained.own_share
    expected = share * probs["alone"] + (1 - share) * probs["deployed"]
    torch.testing.assert_close(torch.tensor(probs["personal"]), torch.tensor(expected))
    verify_evidence(personal.folder, None, lambda line: None)


@pytest.mark.parametrize("change", ["weights", "share", "none"])
def test_an_own_model_that_was_altered_after_the_run_is_noticed(personal, tmp_path, change):
    run, partition = personal.copied(tmp_path)
    path = own_path(partition / "client-0", personal.result["run"])
    with safe_open(path, "pt") as file:
        facts = json.loads(file.metadata()["facts"])
    state = load_file(path)
    if change == "weights":
        name = min(state)
        state[name] = state[name] + 0.5
    elif change == "share":
        facts["share"] = 0.25 if facts["share"] != 0.25 else 0.75
    save_file(state, path, {"facts": json.dumps(facts)})
    if change == "none":
        path.unlink()
    with pytest.raises(UserError, match="own"):
        verify_evidence(run, None, lambda line: None)


@pytest.mark.parametrize("share", ["2.0", "-0.1", "true", "NaN", '"0.5"', "{"])
def test_a_share_that_is_none_is_refused(personal, tmp_path, share):
    path = tmp_path / "own.safetensors"
    facts = f'{{"kind": "alone", "share": {share}, "made-of": "x"}}'
    state = own_of(personal, 0).states["alone"]
    save_file({f"alone/{name}": t for name, t in state.items()}, path, {"facts": facts})
    with pytest.raises(DataError, match="expected the client's own model"):
        OwnModel.read(path)


def test_the_bundle_of_a_client_predicts_as_the_client_and_the_server_s_is_global(
    personal, tmp_path
):
    folder = personal.partition / "client-1"
    nodes = torch.arange(5)
    info = RoundInfo("x", 3, "", final=True)
    with torch.no_grad():
        mine = export(personal.folder, tmp_path / "mine", folder).client(folder)
        every = export(personal.folder, tmp_path / "every").client(folder)
        views = mine.predict(info, nodes)
        assert mine.own.share == own_of(personal, 1).share
        assert every.own is None
        torch.testing.assert_close(views["global"], every.predict(info, nodes)["deployed"])
    facts = Bundle.open(tmp_path / "every").facts
    assert facts["test_accuracy"] == personal.result["test_accuracy_by_view"]["global"]
    assert "the mixture with one client's own model" in (tmp_path / "mine/README.md").read_text()


def test_a_bundle_with_another_own_model_is_refused(personal, tmp_path):
    folder = personal.partition / "client-1"
    export(personal.folder, tmp_path / "mine", folder)
    own_of(personal, 0).save(tmp_path / "mine" / "own.safetensors")
    with pytest.raises(UserError, match="expected the client's own model"):
        Bundle.open(tmp_path / "mine").client(folder)


def test_a_late_client_personalises_the_model_without_a_round(without, personal, tmp_path, cli):
    """Its own model is the one that it would have trained in the run, and nothing is sent."""
    late = tmp_path / "client-1"
    shutil.copytree(without.partition / "client-1", late, ignore=shutil.ignore_patterns("runs"))
    export(without.folder, tmp_path / "bundle")
    args = ("export", tmp_path / "bundle", "--client-folder", late, "--out", tmp_path / "mine")
    assert cli(*args).code == 0
    mine = Bundle.open(tmp_path / "mine")
    for name, tensor in own_of(personal, 1).states["alone"].items():
        assert mine.own.states["alone"][name].equal(tensor)
    client = mine.client(late)
    nodes = validated_nodes(client.data, client.config)
    with torch.no_grad():
        views = client.predict(RoundInfo("x", 3, "", final=True), nodes)
    losses = mixture_losses(views["alone"], views["global"], client.data.labels[nodes])
    assert mine.own.share == SHARES[best_candidate(losses)]
    assert mine.facts["test_accuracy"] is None
    refused = cli(*args)
    assert refused.code == 2 and "a new folder" in refused.err[0]


def test_the_paper_deploys_the_global_model(run_config):
    assert run_config(paper=True, personal="mix").personal == "off"


def test_worth_compares_the_three_models_of_each_client(personal, cli):
    rows = list(worth(personal.folder))
    assert [row.client for row in rows] == [0, 1, 2]
    for row, counted in zip(rows, personal.result["clients"], strict=True):
        hits = counted["correct_by_view"]["test"]
        expected = {
            "alone": hits["alone"],
            "federated": hits["global"],
            "deployed": hits["deployed"],
        }
        assert {name: round(row.nodes * share) for name, share in row.accuracy.items()} == expected
        assert row.gained - row.lost == hits["deployed"] - hits["alone"]
    printed = cli("report", personal.folder, "--worth")
    assert printed.code == 0
    assert all(f"client {k}: " in printed.out for k in range(3))


@pytest.mark.parametrize(
    ("gained", "lost", "nodes", "sentence"),
    [
        (20, 2, 100, "joining is worth 18.0 ± 8.6 points here"),
        (2, 20, 100, "joining costs 18.0 ± 8.6 points here"),
        (3, 2, 100, "no difference that 100 nodes can show (+1.0 ± 4.7)"),
        (0, 0, 0, "no test nodes, so nothing is known"),
    ],
)
def test_the_sentence_says_no_more_than_the_nodes_can_show(gained, lost, nodes, sentence):
    row = Worth(0, nodes, {}, gained, lost)
    assert row.sentence == sentence


def test_worth_needs_models_that_were_trained_alone(dance):
    with pytest.raises(UserError, match="run again with --set personal=mix"):
        list(worth(dance.folder))


@pytest.fixture(scope="module", params=["dance", "fedavg-full"])
def best(reference, request):
    return reference(method=request.param, personal="auto", seed=2)


def test_the_best_of_alone_tuned_and_global_is_chosen_by_summed_losses(best):
    up, down = losses_in(best.messages)
    assert len(up[0][0]) == 22
    every, nodes = down[0]
    for client in range(3):
        chosen = own_of(best, client)
        assert chosen.states.keys() == {"alone", "tuned"}
        total = [mine + 100 / nodes * sum_ for mine, sum_ in zip(up[client][0], every, strict=True)]
        place = total.index(min(total))
        assert (chosen.kind, chosen.share) == (["alone", "tuned"][place // 11], place % 11 / 10)
    assert up[0][0][0] == up[0][0][11]  # share 0 of either is the global model
    assert {"global", "alone", "tuned", "deployed"} <= best.result["test_accuracy_by_view"].keys()
    assert best.result["seconds_personal"] > 0
    assert best.result["bytes_personal"] > 4 * sum(
        tensor.numel() for tensor in load_file(best.folder / "model.safetensors").values()
    )


def test_the_tuned_model_is_ten_rounds_of_the_method_from_the_global_one(best):
    weights = load_model(best.folder)
    config = replace(best.settled, personal="off", rounds=10)
    for number in range(2):
        client = Client(best.data(number), config)
        state = weights
        for round_ in range(1, 11):
            state, _ = client.train(state, RoundInfo("again", round_, ""))
        for name, tensor in own_of(best, number).states["tuned"].items():
            torch.testing.assert_close(tensor, state[name])
    # Nothing of it enters the run, nor the global model.
    assert not torch.equal(state[name], weights[name])


def test_tuning_deploys_the_tuned_model_alone(run):
    finished = run(method="fedavg-full", personal="tune", seed=2)
    for client in range(3):
        chosen = own_of(finished, client)
        assert (chosen.kind, chosen.share, [*chosen.states]) == ("tuned", 1.0, ["tuned"])
    views = finished.result["test_accuracy_by_view"]
    assert views["deployed"] == views["tuned"]
    with pytest.raises(UserError, match="found personal = tune"):
        list(worth(finished.folder))


def test_the_better_of_both_is_verified_and_exported(best, tmp_path):
    folder = best.partition / "client-1"
    chosen = own_of(best, 1)
    if best.config.method == "dance":
        verify_evidence(best.folder, None, lambda line: None)
        data = FinishedRun.open(best.folder)
        explained = data.explainer(data.client(data.data(1))).explain(torch.tensor([1]))
        assert explained.stages[-2:] == (chosen.kind, "personal")
    with torch.no_grad():
        mine = export(best.folder, tmp_path / "mine", folder).client(folder)
        views = mine.predict(RoundInfo("x", 3, "", final=True), torch.arange(5))
    assert mine.own.states.keys() == {chosen.kind}
    expected = chosen.share * views[chosen.kind] + (1 - chosen.share) * views["global"]
    torch.testing.assert_close(views["deployed"], expected)


def test_tokens_that_tuning_reads_are_counted(reference, personal):
    auto = reference(method="dance", personal="auto", seed=2)
    read = [
        sum(client["tokens"] for client in finished.result["tokens"]["evidence"]["clients"])
        for finished in (personal, auto)
    ]
    assert read[0] < read[1]
