"""What the Ray engine asks of Flower, without Ray."""

from contextlib import nullcontext

import pytest

from dance_flwr.federation import flower
from dance_flwr.runs.simulation import ray_engine


def test_flower_tells_its_makers_nothing(run_config, tmp_path, monkeypatch):
    from flwr.server.superlink.fleet.vce.backend import raybackend
    from flwr.supercore import telemetry

    monkeypatch.setattr(telemetry, "FLWR_TELEMETRY_ENABLED", "1")  # read as Flower is imported
    monkeypatch.setattr(raybackend, "BasicActorPool", raybackend.BasicActorPool)  # put back after
    monkeypatch.setattr(ray_engine, "_ray", nullcontext)
    monkeypatch.setattr(ray_engine, "_gpus", lambda: 0)
    seen = []

    def start(*arguments, **keys):
        seen.append(telemetry.FLWR_TELEMETRY_ENABLED)
        raise KeyError("started")

    monkeypatch.setattr(flower, "run_simulation", start)
    with pytest.raises(KeyError, match="started"):
        ray_engine.run_under_ray(run_config(), tmp_path, lambda row: None)
    assert seen == ["0"]
