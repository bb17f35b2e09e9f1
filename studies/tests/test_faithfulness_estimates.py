"""Values of single nodes: measured by hand, packed, and resampled within seeds."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
import torch
from dance_flwr_studies.metrics.controls import CONTROLS, EVIDENCE
from dance_flwr_studies.metrics.faithfulness import measures, node_values
from dance_flwr_studies.protocols.faithfulness.estimates import bootstrap, estimates, pack, unpack


def outcomes_by_hand():
    """Two nodes, two classes, two draws of random chunks, budgets 1 and 2."""
    full = torch.tensor([[0.7, 0.3], [0.2, 0.8]])
    removed = torch.tensor(
        [
            [[[0.6, 0.4], [0.2, 0.8]], [[0.4, 0.6], [0.1, 0.9]]],
            [[[0.4, 0.6], [0.4, 0.6]], [[0.6, 0.4], [0.2, 0.8]]],
        ]
    )
    same = {name: full.expand(1, 2, 2, 2) for name in (EVIDENCE, *CONTROLS)}
    return SimpleNamespace(
        full=full,
        bare=torch.tensor([[0.5, 0.5], [0.6, 0.4]]),
        removed=same | {"random": removed},
        retained=same,
    )


def test_measures_by_hand():
    found = measures(node_values(outcomes_by_hand(), torch.tensor([0, 0])))
    wanted = {
        "predicted/confidence": [0.7, 0.8],
        "predicted/correct": [1, 0],
        "none/sufficiency": [0.2, 0.4],
        "none/correct-kept": [1, 1],
        "random/comprehensiveness": [0.2, -0.05],
        "random/correct-removed": [0.5, 0],
        "random/deletion": [[0.7, 0.5, 0.5], [0.8, 0.7, 0.85]],
        "random/insertion": [[0.5, 0.7, 0.7], [0.4, 0.8, 0.8]],
    }
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)


def test_packed_values_keep_their_order_and_two_digits():
    rng = np.random.default_rng(0)
    values = {"full": rng.random(300), "random/kept": rng.random((300, 4)), "flat": np.ones(300)}
    found = unpack(pack(values))
    assert found.keys() == values.keys()
    for name, value in values.items():
        assert found[name].shape == value.shape
        assert np.abs(found[name] - value).max() <= 0.005 + 1e-9
    with pytest.raises(ValueError, match=r"full: expected values in \[0, 1\], found others"):
        pack({"full": np.array([0.5, np.nan])})


def test_bootstrap_agrees_with_scipy():
    values = np.random.default_rng(0).exponential(size=200)
    mean, low, high = bootstrap([np.stack([values, 2 * values], 1)]).T[0]
    other = scipy.stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=5000, random_state=0
    )
    assert mean == pytest.approx(values.mean())
    assert (low, high) == pytest.approx(tuple(other.confidence_interval), abs=0.02)
    assert bootstrap([np.stack([values, 2 * values], 1)]).T[1] == pytest.approx(
        [2 * mean, 2 * low, 2 * high]
    )


def bootstrap_by_loops(seeds, key, resamples):
    """Draw nodes again within each seed, one resample at a time."""
    draws = [np.random.default_rng([key, s]) for s in range(len(seeds))]
    means = []
    for _ in range(resamples):
        of_seeds = []
        for values, rng in zip(seeds, draws, strict=True):
            counts = rng.multinomial(len(values), [1 / len(values)] * len(values))
            drawn = [v for v, times in zip(values, counts, strict=True) for _ in range(times)]
            of_seeds.append(sum(drawn) / len(drawn))
        means.append(sum(of_seeds) / len(of_seeds))
    return np.percentile(means, 2.5), np.percentile(means, 97.5)


def test_seeds_are_resampled_each_by_itself_and_count_equally():
    rng = np.random.default_rng(1)
    seeds = [rng.random(40), 0.2 * rng.random(10)]
    mean, low, high = bootstrap([values[:, None] for values in seeds], key=3)[:, 0]
    assert mean == pytest.approx((seeds[0].mean() + seeds[1].mean()) / 2)
    assert (low, high) == pytest.approx(bootstrap_by_loops(seeds, 3, 2000))


def analysis_of(values):
    return {"node_values": pack(values), "means": {}}


def test_estimates_pair_nodes():
    rng = np.random.default_rng(2)
    seeds = []
    for shift in (0.0, 0.2):
        seen = node_values(outcomes_by_hand(), torch.tensor([0, 0]))
        values = {name: np.repeat(value, 100, axis=0) for name, value in seen.items()}
        values["full"] = 0.5 + shift + 0.2 * rng.random(200)
        seeds.append(values)
    found = estimates([analysis_of(values) for values in seeds])
    own = [measures(unpack(pack(values)))["evidence/comprehensiveness"] for values in seeds]
    seen = found["evidence/comprehensiveness"]
    assert seen.mean == pytest.approx((own[0].mean() + own[1].mean()) / 2)
    assert seen.low < seen.mean < seen.high
    paired = found["evidence minus random/comprehensiveness"]
    gaps = [
        by_name["evidence/comprehensiveness"] - by_name["random/comprehensiveness"]
        for by_name in (measures(unpack(pack(values))) for values in seeds)
    ]
    wanted = bootstrap([gap[:, None] for gap in gaps])[:, 0]
    assert [paired.mean, paired.low, paired.high] == pytest.approx(wanted.tolist())
    assert found["random/deletion"].mean.shape == (3,)
    assert "evidence minus random/deletion" not in found
    assert f"{seen.mean:.3f} [{seen.low:.3f}, {seen.high:.3f}]" == seen.text()
