"""Differential privacy: clipping, noise, accounting against others, the end of a budget."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.graphs import TEXT_DIM

from dance_flwr.errors import UserError
from dance_flwr.federation.privacy.accounting import epsilon_spent, noise_for, rounds_within
from dance_flwr.federation.privacy.clipping import clip
from dance_flwr.federation.privacy.dp import (
    ClientMechanism,
    ClippingNorm,
    add_noise,
    client_deviation,
    draw_clients,
    update_bound,
)
from dance_flwr.federation.privacy.noise import MAX_DEVIATE, NoiseStream
from dance_flwr.federation.secagg.sums import MAX_VALUE, MetricLayout
from dance_flwr.federation.server.replies import scales_of
from dance_flwr.runs.result import load_model

DP = {
    "method": "fedavg-full",
    "clients": 5,
    "rounds": 2,
    "privacy_seeded": True,
    "privacy_noise_multiplier": 1.0,
    "privacy_epsilon": 50.0,
}


def state(*values):
    """A model with a vector, a 0-d float and an integer buffer."""
    return {
        "w": torch.tensor(values[:-1]),
        "scalar": torch.tensor(values[-1]),
        "batches": torch.tensor(3),
    }


def length(state, start):
    return math.sqrt(
        sum(float((state[k] - v).square().sum()) for k, v in start.items() if v.is_floating_point())
    )


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=6), st.floats(0.01, 10))
def test_no_update_is_longer_than_the_norm(values, norm):
    start = state(*[0.5] * len(values))
    clipped, was = clip(state(*values), start, norm)
    assert length(clipped, start) <= norm * (1 + 1e-4) + 1e-5 * (not was)


def test_a_zero_update_integers_and_0d_arrays_pass():
    start = state(1.0, 2.0, 3.0)
    moved = start | {"batches": torch.tensor(9)}
    clipped, was = clip(moved, start, 0.1)
    assert not was and all(
        torch.equal(clipped[name], start[name]) for name in start
    )  # the buffer too: no noise hides it
    noisy = add_noise(clipped, 1.0, NoiseStream(bytes(32)))
    assert noisy["scalar"].shape == () and noisy["batches"].dtype == torch.int64
    assert float(noisy["scalar"]) != 3.0 and int(noisy["batches"]) == 3


def test_deviates_are_normal_bounded_and_never_repeated():
    draw = NoiseStream(bytes(32))
    first, second = draw.normal(200_000), draw.normal(200_000)
    assert stats.kstest(first, "norm").pvalue > 1e-4 and stats.kstest(second, "norm").pvalue > 1e-4
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.01
    from scipy.special import ndtri

    assert -ndtri(0.5 / 2.0**52) < MAX_DEVIATE
    assert np.array_equal(NoiseStream(bytes(32)).normal(5), first[:5])
    assert not np.array_equal(NoiseStream().normal(5), NoiseStream().normal(5))


def test_only_the_declared_test_mode_is_repeatable(run_config):
    start = state(0.0, 0.0, 0.0)
    keys = {"clients": 3, "privacy_dp": "local", "privacy_noise_multiplier": 1.0}
    for seeded in (False, True):
        config = run_config(privacy_seeded=seeded, **keys)
        one, two = (
            ClientMechanism(config, 1.0, 1, 0).protect(start, start).state for _ in range(2)
        )
        assert torch.equal(one["w"], two["w"]) == seeded
    seeded = run_config(privacy_seeded=True, **keys)
    other = ClientMechanism(seeded, 1.0, 1, 1).protect(start, start).state
    assert not torch.equal(one["w"], other["w"])


@pytest.mark.parametrize(("epsilon", "delta", "rounds"), [(1.0, 1e-5, 50), (8.0, 1e-6, 100)])
def test_sigma_agrees_with_two_other_accountants(epsilon, delta, rounds):
    import dp_accounting
    from opacus.accountants import PRVAccountant

    sigma = noise_for(epsilon, delta, rounds, 1.0)
    losses = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    losses.compose(dp_accounting.GaussianDpEvent(sigma), rounds)
    assert losses.get_epsilon(delta) == pytest.approx(epsilon, rel=0.01)
    other = PRVAccountant()
    other.history = [(sigma, 1.0, rounds)]
    assert other.get_epsilon(delta, eps_error=1e-3) == pytest.approx(epsilon, rel=0.01)


def test_sampled_sigma_agrees_with_another_accountant():
    from opacus.accountants import PRVAccountant

    sigma = noise_for(3.0, 1e-5, 20, 0.4)
    other = PRVAccountant()
    other.history = [(sigma, 0.4, 20)]
    assert other.get_epsilon(1e-5, eps_error=1e-2) == pytest.approx(3.0, rel=0.01)
    assert sigma < noise_for(3.0, 1e-5, 20, 1.0)


@settings(deadline=None)
@given(st.floats(0.5, 30), st.integers(1, 60), st.floats(0.1, 20))
def test_no_round_beyond_the_budget(sigma, most, epsilon):
    rounds = rounds_within(sigma, 1.0, epsilon, 1e-5, most)
    assert rounds == 0 or epsilon_spent(sigma, 1.0, rounds, 1e-5) <= epsilon * (1 + 1e-6)
    assert rounds == most or epsilon_spent(sigma, 1.0, rounds + 1, 1e-5) > epsilon


def test_noise_of_the_fewest_clients_suffices(run_config):
    keys = {"clients": 5, "privacy_dp": "distributed", "privacy_noise_multiplier": 2.0}
    keys["privacy_secure_aggregation"] = True
    all_ = run_config(privacy_threshold=1.0, **keys)
    assert client_deviation(all_, 0.5) ** 2 * 5 == pytest.approx((2.0 * 0.5) ** 2)
    masked = run_config(**keys)  # three of five must stay
    assert client_deviation(masked, 0.5) ** 2 * 3 == pytest.approx((2.0 * 0.5) ** 2)
    assert update_bound(masked, 0.5) >= 0.5 + 8.2 * client_deviation(masked, 0.5)
    assert client_deviation(run_config(**keys | {"privacy_dp": "local"}), 0.5) == pytest.approx(
        2 * 2.0 * 0.5
    )
    assert client_deviation(run_config(**keys | {"privacy_dp": "central"}), 0.5) == 0.0


def noise_of(run, monkeypatch, **keys):
    """The global model's noise when all updates are zero: the model after one round minus the
    first.
    """
    from dance_flwr.federation.client.client import Client, initial_model, shape_of

    honest = Client.train

    def idle(self, state, info, *, proximal_mu=0.0):
        _, report = honest(self, state, info, proximal_mu=proximal_mu)
        return {key: value.clone() for key, value in state.items()}, report

    monkeypatch.setattr(Client, "train", idle)
    finished = run(rounds=1, **{k: v for k, v in (DP | keys).items() if k != "rounds"})
    start = initial_model(shape_of(TEXT_DIM, 3, finished.config), finished.config).state_dict()
    model = load_model(finished.folder)
    return finished, np.concatenate([(model[k] - v).numpy().ravel() for k, v in start.items()])


@pytest.mark.parametrize(
    ("dp", "secure", "variance"),
    [
        ("central", False, 1 / 25),
        ("central", True, 1 / 25),
        ("distributed", True, 5 / 3 / 25),
        ("local", True, 5 * 4 / 25),
    ],
)
def test_the_mean_has_the_noise_that_the_accounting_counts_on(
    run, monkeypatch, dp, secure, variance
):
    """Deviation of the mean of 5 clients at sigma = 1 and C = 0.5; above sigma * C / 5 only where
    it must be.
    """
    keys = {"privacy_dp": dp, "privacy_secure_aggregation": secure, "privacy_clipping_norm": 0.5}
    finished, noise = noise_of(run, monkeypatch, **keys)
    deviation = 0.5 * math.sqrt(variance)
    assert noise.std() == pytest.approx(deviation, rel=4 / math.sqrt(2 * noise.size)) and abs(
        noise.mean()
    ) < 4 * deviation / math.sqrt(noise.size)
    assert stats.kstest(noise / deviation, "norm").pvalue > 1e-5
    facts = finished.result["privacy"]
    assert facts["epsilon"] == pytest.approx(epsilon_spent(1.0, 1.0, 1, 1e-5))
    assert facts["seeded"] is True and facts["dp"] == dp


@pytest.mark.parametrize("step", [1e-7, 1e-3, 0.9])
def test_the_steps_of_a_client_are_its_clipped_update_and_integer_noise(run_config, step):
    """Without the noise they are not longer than the norm, whatever the step: no rounding adds."""
    keys = {"privacy_dp": "distributed", "privacy_secure_aggregation": True}
    config = run_config(clients=5, privacy_noise_multiplier=1.0, privacy_seeded=True, **keys)
    start = {"w": torch.zeros(20_000), "scalar": torch.tensor(1.0), "batches": torch.tensor(3)}
    moved = {"w": torch.randn(20_000), "scalar": torch.tensor(9.0), "batches": torch.tensor(4)}
    mechanism = ClientMechanism(config, 0.5, 1, 0, step)
    update, noise = (mechanism.protect(state, start).state for state in (moved, start))
    assert {t.dtype for t in update.values()} == {torch.int64}
    assert update.keys() == start.keys() and int(update["batches"]) == 0
    own = torch.cat([(update[name] - noise[name]).flatten().double() for name in start])
    assert float(own.norm()) * step <= 0.5 and (step > 1e-6 or float(own.norm()) * step > 0.49)
    sigma = max(math.ceil(0.5 / math.sqrt(3) / step), 8)
    assert float(noise["w"].double().std()) == pytest.approx(sigma, rel=0.03)


@pytest.mark.parametrize("step", [1e-12, 0.0, -1e-7, math.nan, math.inf])
def test_steps_that_are_no_grid_for_the_noise_are_refused(run_config, step):
    keys = {"privacy_dp": "distributed", "privacy_secure_aggregation": True}
    config = run_config(clients=5, privacy_noise_multiplier=1.0, **keys)
    model = {"w": torch.zeros(2)}
    with pytest.raises(UserError, match=r"secure aggregation: expected (noise|a step)"):
        ClientMechanism(config, 1.0, 1, 0, step).protect(model, model)


@pytest.mark.parametrize("weights", [100, 10_000, 1_000_000])
def test_the_noise_on_a_sum_grows_with_the_root_of_the_number_of_weights(weights):
    """||noise|| = sigma C sqrt(d) while a clipped update stays within C: its share is 1 / (sigma
    sqrt(d)), so a hundredth of the weights has ten times the share.
    """
    sigma, norm = 0.8, 0.5
    zero = {"w": torch.zeros(weights, dtype=torch.float64)}
    noise = add_noise(zero, sigma * norm, NoiseStream(bytes(32)))["w"]
    expected = sigma * norm * math.sqrt(weights)
    assert float(noise.norm()) == pytest.approx(expected, rel=4 / math.sqrt(2 * weights))
    clipped, _ = clip({"w": torch.ones(weights)}, {"w": torch.zeros(weights)}, norm)
    share = float(clipped["w"].norm()) / float(noise.norm())
    assert share == pytest.approx(1 / (sigma * math.sqrt(weights)), rel=4 / math.sqrt(2 * weights))


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_what_a_client_rounds_is_no_longer_than_the_norm(run, precision):
    """Under central noise: the server has nothing left to clip."""
    from dance_flwr.federation.privacy.quantiser import Quantised, dequantise
    from dance_flwr.federation.wire import messages

    keys = DP | {"rounds": 4, "privacy_clipping_norm": 0.05, "privacy_dp": "central"}
    finished = run(upload_precision=precision, **keys)
    lengths = []
    for reply in finished.replies("train"):
        sent = Quantised(messages.model_of(reply), scales_of(reply))
        squares = sum(float(part.square().sum()) for part in dequantise(sent).values())
        lengths.append(math.sqrt(squares))
    assert len(lengths) == 20 and max(lengths) <= 0.05 * (1 + 1e-6) and min(lengths) > 0.03


@pytest.mark.parametrize("factor", [1.0, 1e6])
def test_a_client_that_lies_about_its_norm_is_clipped_after_dequantisation(run_config, factor):
    from dance_flwr.federation.server.strategies import make_round
    from dance_flwr.methods.server_side import Upload
    from dance_flwr.nn.model import ModelShape

    config = run_config(privacy_dp="central", privacy_clipping_norm=0.5, upload_precision="int8")
    round_ = make_round(config, ModelShape(6, 4, 3), print, print)
    round_._start = start = state(1.0, 2.0, 3.0)
    lie = {k: v + factor if v.is_floating_point() else v for k, v in start.items()}
    (bounded,) = round_._clipped([Upload(0, lie, 1)], 0.5)
    assert length(bounded.state, start) == pytest.approx(0.5, rel=1e-5)
    honest = {k: v + 0.1 if v.is_floating_point() else v for k, v in start.items()}
    (kept,) = round_._clipped([Upload(0, honest, 1)], 0.5)
    torch.testing.assert_close(kept.state, honest)


MASKS = {"privacy_secure_aggregation": True}
INT8 = {"upload_precision": "int8"}


def test_masks_change_no_bit_under_noise(run):
    keys = DP | {"privacy_dp": "central"}
    left, right = run(**keys), run(privacy_secure_aggregation=True, **keys)
    assert left.result["model_fingerprint"] == right.result["model_fingerprint"]
    # Clients count alike.
    assert {reply.content["metrics"]["num-examples"] for reply in left.replies("train")} == {1}


def test_epsilon_grows_by_round_and_the_run_ends_at_the_budget(run):
    sigma = 1.0
    budget = epsilon_spent(sigma, 1.0, 2, 1e-5) * 1.01
    finished = run(
        privacy_dp="central", **DP | {"rounds": 5, "privacy_epsilon": budget, "evaluate_every": 3}
    )
    rows = finished.result["history"]
    assert [row["round"] for row in rows] == [1, 2]
    assert [row["epsilon"] for row in rows] == pytest.approx(
        [epsilon_spent(sigma, 1.0, t, 1e-5) for t in (1, 2)]
    )
    assert (
        rows[-1]["epsilon"] <= budget and rows[-1]["val_accuracy"] is not None
    )  # the last round is validated


@pytest.mark.parametrize("sigma", [0.1, 1e6])
def test_a_noisy_bit_stays_above_zero(run_config, sigma):
    config = run_config(
        privacy_dp="distributed",
        privacy_clipping="adaptive",
        privacy_noise_multiplier=sigma,
        privacy_secure_aggregation=True,
        privacy_seeded=True,
        clients=5,
    )
    model = {"w": torch.zeros(1)}
    bits = [
        ClientMechanism(config, 1.0, round_, 0).protect(model, model).unclipped
        for round_ in range(200)
    ]
    assert min(bits) >= 0 and np.std(bits) == pytest.approx(sigma / math.sqrt(3), rel=0.15)
    assert MetricLayout.of({"bit": max(bits)}).pack({"bit": max(bits)})[0] < MAX_VALUE


def test_a_client_is_drawn_with_its_probability(run_config):
    """By which epsilon is smaller; not with one minus it."""
    config = run_config(**DP | {"privacy_dp": "central", "client_fraction": 0.25})
    drawn = sum(len(draw_clients(range(1000), config, round_)) for round_ in range(1, 6))
    assert drawn / 5000 == pytest.approx(0.25, abs=0.03)


def test_the_norm_moves_to_the_quantile(run_config):
    config = run_config(
        clients=5,
        privacy_dp="central",
        privacy_clipping="adaptive",
        privacy_clipping_norm=50.0,
        privacy_noise_multiplier=1e-6,
    )
    start = {"w": torch.zeros(1)}
    norm, lengths = ClippingNorm(config), [1.0, 2.0, 3.0, 4.0, 5.0]
    for round_ in range(1, 200):
        bits = [
            ClientMechanism(config, norm.value, 1, 0).protect({"w": torch.tensor([x])}, start)
            for x in lengths
        ]
        norm.update(sum(upload.unclipped for upload in bits), 5, round_)
    assert 2.0 * 0.8 < norm.value < 3.0 * 1.2


@pytest.mark.parametrize(("dp", "secure"), [("central", False), ("distributed", True)])
def test_adaptive_clipping_in_a_run(run, dp, secure):
    keys = {"privacy_dp": dp, "privacy_clipping": "adaptive", "privacy_secure_aggregation": secure}
    finished = run(
        **DP | keys | {"rounds": 3, "privacy_noise_multiplier": 0.1, "privacy_epsilon": 1e6}
    )
    sent = [
        m
        for m in finished.messages
        if not m.metadata.src_node_id and m.metadata.message_type == "train"
    ]
    configs = [m.content["config"] for m in sent if "config" in m.content]
    norms = {config["clipping-norm"] for config in configs if "clipping-norm" in config}
    assert len(norms) == 3 and 1.0 in norms
