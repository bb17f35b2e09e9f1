"""A client's round: evidence and edges of the cores until the next refresh, selected at once."""

from dataclasses import replace

import pytest
import torch

from dance_flwr.dance.algorithm import select_evidence
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.losses import supervised_nodes
from dance_flwr.dance.passes import DanceClient, plain_pass_in_blocks
from dance_flwr.dance.plan import Condensation, Plan
from dance_flwr.dance.queue import Queue
from dance_flwr.dance.state import CONDENSATION, RunFolder, read_stored
from dance_flwr.dance.topology import core_edges
from dance_flwr.disk import write_npz
from dance_flwr.evidence.pack import Packs
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.methods.contract import RoundInfo

CPU = torch.device("cpu")
# Cores of two classes, which take turns within their class; node 3 is in the first and the last.
QUEUE = Queue(torch.tensor([3, 8, 1, 20, 4, 11, 9]), torch.tensor([0, 3, 7]), torch.tensor([1, 2]))


def selected(data, config, cores):
    """(settings, what is selected for these cores, their edges)."""
    settings = DanceConfig.of(config)
    model = initial_model(shape_of(data.text_dim, 3, config), config).eval()
    client = DanceClient(model, data, settings, data.training_graph)
    difficulty = plain_pass_in_blocks(client).difficulty
    hidden, selection = select_evidence(client, torch.unique(cores), difficulty)
    return settings, selection, core_edges(client, hidden, selection, cores)


def cores_of(count):
    return torch.stack([QUEUE.core(turn) for turn in range(count)])


@pytest.mark.parametrize("whole", [True, False])
def test_a_core_among_others_gets_the_evidence_it_gets_alone(data, run_config, tmp_path, whole):
    config, cores = run_config(), cores_of(4)
    settings, selection, edges = selected(data, config, cores)
    assert selection.nodes.tolist() == sorted({*cores.flatten().tolist()})
    plan = Plan(5, cores, selection, edges)
    write_npz(tmp_path / "plan.npz", (plan if whole else plan.rounded()).arrays())
    plan = read_stored(tmp_path / "plan.npz", Plan, CPU)
    for turn, core in enumerate(cores):
        found, _ = plan.batch(5 + turn)
        _, alone, _ = selected(data, config, core[None])
        assert found.nodes.equal(core)
        rounding = 0 if whole else 2**-11  # c_v is kept in float16, of texts of length 1
        torch.testing.assert_close(found.context, alone.context, rtol=0, atol=1e-6 + rounding)
        kept = alone if whole else alone.frozen()
        for (rows, weights), (rows_alone, wanted) in zip(found.parts, kept.parts, strict=True):
            assert rows.ptr.equal(rows_alone.ptr) and rows.index.equal(rows_alone.index)
            torch.testing.assert_close(weights, wanted)
        labels = data.train_labels
        wanted = supervised_nodes(alone.padded, labels, settings)
        # As a round reads it: dense, and no wider than the core by itself.
        dense, wanted_dense = plan.padded(5 + turn), kept.padded
        assert dense.widths == wanted_dense.widths and dense.context.equal(found.context)
        for name in ("nodes", "index", "inside", "selected"):
            assert getattr(dense, name).equal(getattr(wanted_dense, name)), name
        assert dense.counts(data.bank.tokens) == alone.padded.counts(data.bank.tokens)
        assert supervised_nodes(dense, labels, settings).equal(wanted)


@pytest.mark.parametrize("rule", ["self-expressive", "induced", "none"])
@pytest.mark.parametrize("search", ["in-class", "exact"])
def test_a_core_among_others_gets_the_edges_it_gets_alone(data, run_config, rule, search):
    """Also where all nodes are of one class, so that only the core keeps them apart."""
    config = run_config()
    settings = replace(
        DanceConfig.of(config), topology_rule=rule, candidate_search=search, inner_tolerance=1e-6
    )
    config = replace(config, sections=(settings,))
    data.train_labels.clamp_(max=0)
    cores = torch.tensor([[1, 3, 4, 8, 9], [2, 3, 7, 11, 20], [12, 13, 14, 15, 16]])
    *_, together = selected(data, config, cores)
    number = 0
    for core, found in zip(cores, together, strict=True):
        *_, (alone,) = selected(data, config, core[None])
        assert found[0].equal(alone[0]) and found[1].equal(alone[1])
        torch.testing.assert_close(found[2], alone[2], atol=1e-3, rtol=0)
        number += found[0].numel()
    assert bool(number) == (rule != "none")


def train(client, rounds):
    """Train these rounds from the first model; return the reports by round."""
    reports = {}
    for round_ in rounds:
        model = initial_model(shape_of(client.data.text_dim, 3, client.config), client.config)
        info = RoundInfo("run", round_, "m")
        reports[round_] = client.train(dict(model.state_dict()), info)[1]
    return reports


KEYS = {"rounds": 9, "dance_batch_nodes": 4, "device": "cpu"}


def test_packs_are_of_all_cores_until_the_next_selection(data, run_config):
    client = Client(data, run_config(dance_text_refresh_every=4, **KEYS))
    reports, store = train(client, range(1, 7)), RunFolder(data.folder, "run")
    written = {path.stem: Packs.load(path) for path in store.all_packs()}
    assert [*written] == ["round-00001", "round-00005"]
    queue = read_stored(store.latest(CONDENSATION), Condensation, CPU).queue
    for first, count in ((1, 4), (5, 4)):
        cores = torch.cat([queue.core(turn) for turn in range(first - 1, first - 1 + count)])
        nodes = written[f"round-{first:05d}"].nodes
        assert nodes.tolist() == cores.unique().tolist()
        assert reports[first].counts["evidence-packs"] == len(nodes)
    for round_, report in reports.items():
        assert report.counts["condensed-nodes"] == 4
        assert bool(report.counts["evidence-packs"]) == (round_ in {1, 5})
        assert bool(report.seconds["text"]) == (round_ in {1, 5})


@pytest.mark.parametrize(
    ("keys", "rounds", "selected_in"),
    [
        ({}, [1, 2, 5, 6], [1, 5]),
        ({}, [1, 6, 7, 8, 9], [1, 6, 9]),  # it missed round 5, and is due again in round 9
        ({}, [3, 4, 5], [3, 5]),
        ({"dance_core_refresh_every": 3}, range(1, 8), [1, 4, 5, 7]),  # new cores get it at once
    ],
)
def test_when_evidence_is_selected(data, run_config, keys, rounds, selected_in):
    client = Client(data, run_config(dance_text_refresh_every=4, **KEYS, **keys))
    reports = train(client, rounds)
    assert [r for r, report in reports.items() if report.counts["evidence-packs"]] == selected_in


def test_files_that_no_state_needs_are_removed(data, run_config):
    client, seen = Client(data, run_config(dance_text_refresh_every=2, **KEYS)), []
    for round_ in range(1, 7):
        train(client, [round_])
        names = sorted(path.name for path in RunFolder(data.folder, "run").folder.glob("plan-*"))
        seen.append([int(name[5:10]) for name in names])
    assert seen == [[1], [1], [1, 3], [1, 3], [3, 5], [3, 5]]
