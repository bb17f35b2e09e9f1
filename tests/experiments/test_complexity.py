"""Measured growth: slopes of known power laws, clients of the requested size, the report."""

import json

import numpy as np
import pytest
from scipy.stats import linregress

from dance_flwr.experiments.cells import Request, Row
from dance_flwr.experiments.complexity import CLAIMS, EXPERIMENT, last_step, slope
from dance_flwr.experiments.growth import (
    CHUNKS_PER_NODE,
    SERIES,
    Scale,
    measure,
    sizes_label,
    synthetic_client,
)
from dance_flwr.metrics import PHASES

SIZES = np.array([100, 200, 400, 800, 1600])


@pytest.mark.parametrize("power", [0, 0.5, 1, 2])
def test_slope_of_a_known_power_law(power):
    values = 3e-4 * SIZES**power
    exponent, error = slope(SIZES, values)
    assert exponent == pytest.approx(power, abs=1e-9) and error == pytest.approx(0, abs=1e-7)
    assert last_step(SIZES, values) == pytest.approx(power, abs=1e-9)


def test_slope_under_noise_lies_within_its_error():
    rng = np.random.default_rng(0)
    values = SIZES**1.5 * np.exp(0.05 * rng.standard_normal(5))
    exponent, error = slope(SIZES, values)
    assert abs(exponent - 1.5) < 3 * error and 0 < error < 0.1
    assert error == pytest.approx(linregress(np.log(SIZES), np.log(values)).stderr)


def test_a_fixed_cost_flattens_the_slope_and_less_so_the_last_step():
    values = 1000 + SIZES**1.0
    assert slope(SIZES, values)[0] < last_step(SIZES, values) < 1


@pytest.mark.parametrize(("nodes", "degree"), [(300, 4), (300, 32)])
def test_synthetic_client_has_the_requested_size(nodes, degree):
    site = synthetic_client(Scale(nodes=nodes, degree=degree))
    assert site.num_nodes == nodes and site.table.nodes.shape == (nodes, 384)
    assert site.table.chunks.norm(dim=1).numpy() == pytest.approx(1, abs=1e-5)
    assert (site.table.chunks_of.ptr.diff() == CHUNKS_PER_NODE).all()
    neighbours = site.graph.hops.one(site.table.chunks_of.ptr.new_tensor(range(nodes)))
    assert neighbours.index.numel() / nodes == pytest.approx(degree, rel=0.1)
    again = synthetic_client(Scale(nodes=nodes, degree=degree))
    assert (again.table.chunks == site.table.chunks).all() and (
        again.train_labels == site.train_labels
    ).all()


def small(name):
    """A series at a tenth of its sizes where it counts nodes."""
    sizes = (
        [size // 10 for size in SERIES[name].sizes]
        if name in ("nodes", "core")
        else SERIES[name].sizes
    )
    return {"series": name, "sizes": sizes_label(sizes[:2])}


@pytest.fixture(scope="module")
def measured():
    return {"core": measure(small("core")), "chunk-budget": measure(small("chunk-budget"))}


def test_measurement_times_every_phase_at_every_size(measured):
    for found in measured.values():
        assert found == json.loads(json.dumps(found))
        assert set(found["seconds"]) == {*PHASES, "total"}
        assert all(len(values) == 2 and min(values) > 0 for values in found["seconds"].values())
        assert found["bytes"][0] < found["bytes"][1]
    assert measured["core"]["counts"]["condensed-nodes"] == [12, 25]
    assert measured["chunk-budget"]["counts"]["evidence-chunks"] == [500, 1000]


def test_report_shows_a_line_per_claim_and_names_what_is_missing(measured):
    rows = [
        Row("complexity", cell.labels, measure=measured.get(cell.labels["series"], {}))
        for cell in cells()
    ]
    parts = EXPERIMENT.render(rows).parts
    text = "\n".join(part for part in parts if isinstance(part, str))
    assert text.count(" ± ") == sum(claim.series in measured for claim in CLAIMS)
    assert "Not measured yet: nodes, candidates, hop1-budget." in text and "K² d" in text
    (picture,) = [part for part in parts if not isinstance(part, str)]
    from matplotlib.figure import Figure

    figure = Figure()
    picture.draw(figure)
    assert len(figure.axes) == 6 and figure.axes[0].get_xscale() == "log"


def test_report_without_a_measurement_shows_no_number():
    text = "".join(EXPERIMENT.render([Row("complexity", cell.labels) for cell in cells()]).parts)
    assert "0 of 5 series are measured" in text and "±" not in text


def cells():
    return EXPERIMENT.cells(Request((), ()))


def test_cells_name_their_sizes_and_every_claim_has_a_series():
    assert [cell.labels["series"] for cell in cells()] == list(SERIES)
    assert all(
        cell.measure == "growth:measure" and len(str(cell.labels["sizes"]).split()) == 5
        for cell in cells()
    )
    assert {claim.series for claim in CLAIMS} == set(SERIES)
    assert {claim.phase for claim in CLAIMS} <= {*PHASES, "bytes"}
