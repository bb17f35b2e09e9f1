"""A lower bound of epsilon by experiment: how well one noisy step tells whether a canary is in it.

    python studies/benchmarks/epsilon.py [--draws 20000] [--epsilon 1 4 8] [--noise 1.0]

Five clients take one step. Four send no change, and the fifth either none or a canary: all of its
clipping norm in one weight (local: either of two opposite ones, as one update may replace another).
The attacker reads that weight of what the server sees, and says "canary" above a threshold that
half of the draws chose. From the other half, Clopper and Pearson (1934) bound the shares of false
positives and negatives with 95 % confidence, and (1 - delta - FN) / FP <= exp(epsilon) bounds
epsilon from below. A bound above the epsilon of the run refutes it; `--noise 0.25` leaves a quarter
of the noise, to show that it does.
"""

import argparse
from dataclasses import replace
from math import log

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest

from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.federation.privacy.dp import (
    ClientMechanism,
    fewest_clients,
    noise_multiplier,
    protect_mean,
    update_bound,
)

CLIENTS, DELTA, WEIGHTS, STEPS = 5, 1e-5, 16, 2**20


def config_of(mode: str, epsilon: float, noise: float) -> RunConfig:
    """Return the settings of one round, with this multiple of the noise that epsilon needs."""
    keys = {"privacy.dp": mode, "privacy.epsilon": epsilon, "privacy.delta": DELTA}
    keys |= {"privacy.secure-aggregation": mode == "distributed", "privacy.clipping-norm": 1.0}
    config = parse({"method": "fedavg-full", "clients": CLIENTS, "rounds": 1, **keys})
    sigma = noise * noise_multiplier(config)
    return replace(config, privacy=replace(config.privacy, noise_multiplier=sigma))


def seen(config: RunConfig, canary: float) -> float:
    """Return what the server reads of the canary's weight after one step with a canary or none."""
    start = {"w": torch.zeros(WEIGHTS)}
    trained = {"w": torch.zeros(WEIGHTS).index_fill(0, torch.tensor(0), 10 * canary)}
    mode, norm = config.privacy.dp, config.privacy.clipping_norm
    if mode == "distributed":
        step = 2 * update_bound(config, norm) / STEPS
        others = [start] * (fewest_clients(config) - 1)  # no smaller sum can be read
        mechanisms = [ClientMechanism(config, norm, 1, k, step) for k in range(1 + len(others))]
        states = zip(mechanisms, [trained, *others], strict=True)
        return step * sum(int(each.protect(s, start).state["w"][0]) for each, s in states)
    state = ClientMechanism(config, norm, 1, 0).protect(trained, start).state
    if mode == "local":
        return float(state["w"][0])
    mean = {"w": state["w"].double() / CLIENTS}
    noisy = protect_mean(mean, config, norm=norm, round_=1, clients=CLIENTS)
    return CLIENTS * float(noisy["w"][0])


def lower_bound(present: NDArray[np.float64], absent: NDArray[np.float64]) -> float:
    """Return the epsilon that these draws exclude everything below, at 95 % confidence."""
    half = len(present) // 2

    def bound(threshold: float, on: NDArray[np.float64], off: NDArray[np.float64]) -> float:
        wrong = int((on <= threshold).sum()), int((off > threshold).sum())
        missed, false = (
            binomtest(k, len(on)).proportion_ci(0.95, method="exact").high for k in wrong
        )
        ratios = (1 - DELTA - missed) / false, (1 - DELTA - false) / missed
        return max(0.0, log(max(*ratios, 1.0)))

    chosen = max(
        np.quantile(
            np.concatenate([present[:half], absent[:half]]), np.linspace(0.005, 0.995, 100)
        ),
        key=lambda threshold: bound(threshold, present[:half], absent[:half]),
    )
    return bound(chosen, present[half:], absent[half:])


def main() -> None:
    """Print one line per mode and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=20_000, help="of each kind")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 4.0, 8.0])
    parser.add_argument("--noise", type=float, default=1.0, help="multiple of what epsilon needs")
    options = parser.parse_args()
    print(f"{'mode':12} {'epsilon':>8} {'at least':>9}")
    for mode in ("central", "local", "distributed"):
        for epsilon in options.epsilon:
            config = config_of(mode, epsilon, options.noise)
            other = -1.0 if mode == "local" else 0.0
            draws = (
                np.array([seen(config, value) for _ in range(options.draws)])
                for value in (1.0, other)
            )
            print(f"{mode:12} {epsilon:8g} {lower_bound(*draws):9.2f}", flush=True)


if __name__ == "__main__":
    main()
