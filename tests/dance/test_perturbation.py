"""The paper's Laplace noise on condensed features."""

import pytest
import torch
from support.graphs import EVERY_ROUND

from dance_flwr.dance.perturbation import laplace_like, perturb


def test_rows_keep_the_norm_of_a_layer_norm():
    features = torch.nn.functional.layer_norm(torch.randn(5, 16), (16,))
    noisy = perturb(features, torch.ones(5, 16))
    assert noisy.norm(dim=1).tolist() == pytest.approx([4.0] * 5)
    expected = torch.stack([4 * (row + 1) / (row + 1).norm() for row in features])
    torch.testing.assert_close(noisy, expected)


def test_without_noise_nothing_changes():
    features = torch.randn(5, 16)
    assert laplace_like(features, 0.0) is None and perturb(features, None) is features


def test_the_noise_is_laplace_of_scale_b():
    torch.manual_seed(0)
    noise = laplace_like(torch.zeros(400, 500), 0.7)
    assert float(noise.abs().mean()) == pytest.approx(0.7, rel=0.01)  # E|Laplace(0, b)| = b
    assert float(noise.var()) == pytest.approx(2 * 0.7**2, rel=0.02)


def test_noise_on_features_changes_training_and_not_the_messages(run, dance):
    noisy = run(**EVERY_ROUND, dance_feature_noise=2.0)
    assert noisy.result["model_fingerprint"] != dance.result["model_fingerprint"]
    assert [m.metadata.message_type for m in noisy.messages] == [
        m.metadata.message_type for m in dance.messages
    ]
