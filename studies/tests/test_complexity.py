"""Measured growth: slopes of known power laws, clients of the requested size, the report."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from dance_flwr_studies.engine.cells import Request, Row
from dance_flwr_studies.protocols.complexity import growth
from dance_flwr_studies.protocols.complexity.growth import SERIES, cost_of, measure, prepare_clients
from dance_flwr_studies.protocols.complexity.protocol import EXPERIMENT
from dance_flwr_studies.protocols.complexity.synthetic_client import Scale
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dance_flwr.dance.state import due
from dance_flwr.metrics import PHASES


@pytest.fixture(scope="module")
def costs(tmp_path_factory):
    """What a round costs with 16 and with 32 of 640 nodes in a batch, in this process."""
    found = []
    for batch in (16, 32):
        folder, scale = tmp_path_factory.mktemp("growth") / "client", Scale(nodes=640, batch=batch)
        prepare_clients([scale], [folder])
        found.append(cost_of(scale, folder))
    return found


class Known:
    """Rounds of known cost: a selection of evidence takes 10, a condensation 32 more."""

    def __init__(self, scale, folder):
        self.condensed, self.selected = 0, 0

    def train(self, round_):
        condenses = due(self.condensed, 32, round_)
        selects = condenses or due(self.selected, 10, round_)
        self.condensed = round_ if condenses else self.condensed
        self.selected = round_ if selects else self.selected
        seconds = dict.fromkeys((*PHASES, "total"), 1.0)
        return seconds | {"text": 10.0 * selects, "total": 1.0 + 10 * selects + 32 * condenses}

    def stored(self):
        return 5.0

    def condensation_bytes(self):
        return 64


def test_a_round_bears_its_share_of_a_selection_wherever_that_falls(monkeypatch, tmp_path):
    """The period of 32 is no multiple of the 10 rounds from one selection to the next."""
    monkeypatch.setattr(growth, "_Rounds", Known)
    scale = Scale(nodes=100_000, batch=256)
    cost = cost_of(scale, tmp_path)
    assert scale.period == 32
    assert cost["seconds"]["total"] == pytest.approx(2 + (43 - 2) / 32, rel=1e-3)
    assert cost["seconds"]["text"] == pytest.approx(1 + (10 - 1) / 32, rel=1e-3)
    assert cost["bytes"] == 5 + 64 / 32


def test_bytes_follow_the_batch_and_memory_is_that_of_a_process(costs):
    small, large = (cost["bytes"] for cost in costs)
    assert small < large < 2.1 * small
    if sys.platform == "linux":
        assert all(20e6 < cost["memory"] < 20e9 for cost in costs)


class Passes(TorchDispatchMode):
    """The operations that read a whole array of `length` rows or more, or write one."""

    def __init__(self, length):
        super().__init__()
        self.length, self.seen = length, set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
        if any(x.dim() and len(x) >= self.length for x in tensors):
            self.seen.add(function.overloadpacket.__name__)
        return result


def test_an_ordinary_round_passes_over_no_array_of_all_nodes(tmp_path):
    """It looks up rows of them."""
    scale = Scale(nodes=2000, batch=4, chunks=2)
    prepare_clients([scale], [tmp_path / "client"])
    rounds = growth._Rounds(scale, tmp_path / "client")
    rounds.train(1)
    with Passes(scale.nodes) as passes:
        rounds.train(2)
    assert passes.seen == {"index", "index_select"}


@pytest.fixture(scope="module")
def measured():
    return {"core": measure({"series": "core", "sizes": "8 16"})}


@pytest.fixture(scope="module", autouse=True)
def small_series():
    """Series of clients that are written in no time."""
    with pytest.MonkeyPatch.context() as patch:
        for name, series in SERIES.items():
            base = replace(series.base, nodes=400, chunks=2)
            patch.setitem(SERIES, name, replace(series, base=base))
        yield


def test_measurement_has_every_phase_at_every_size(measured):
    for found in measured.values():
        assert found == json.loads(json.dumps(found))
        assert set(found["seconds"]) == {*PHASES, "total"}
        assert all(len(values) == 2 and min(values) > 0 for values in found["seconds"].values())
        assert found["bytes"][0] < found["bytes"][1]


@pytest.mark.parametrize(("power", "verdict"), [(0.05, "kept"), (0.5, "missed")])
def test_report_compares_exponents_with_their_bars(measured, power, verdict):
    growth = [1.0, 2.0**power]
    fake = {"sizes": [1000, 2000], "bytes": growth, "memory": growth, "survey_memory": growth}
    fake |= {"seconds": dict.fromkeys((*PHASES, "total"), growth)}
    text = rendered({"nodes": fake})
    assert text.count(f"at most 0.1: {verdict}") + text.count(f"at most 0.1: **{verdict}") == 2


def rendered(measured):
    """The report without its picture."""
    rows = [
        Row("complexity", cell.labels, measure=measured.get(cell.labels["series"], {}))
        for cell in cells()
    ]
    return "\n".join(part for part in EXPERIMENT.render(rows).parts if isinstance(part, str))


def cells():
    return EXPERIMENT.cells(Request((), ()))
