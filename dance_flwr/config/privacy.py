"""The section `privacy.*`, and the settings that defeat what it promises."""

from dataclasses import dataclass

from dance_flwr.config.options import option
from dance_flwr.config.sections import FLOAT32, INT8


@dataclass(frozen=True)
class PrivacyConfig:
    """Keys of the protection of uploads, `privacy.*`."""

    secure_aggregation: bool = option(False, "sum uploads and metrics under masks (SecAgg+)")
    threshold: float = option(
        0.6, "share of a round's clients that must stay for the masks to be removed", gt=0.5, le=1
    )
    # Why a refusal, not a clip (decision 8): a clipped update is silently another one.
    update_range: float = option(
        1.0, "maximum change of a weight per round under secure aggregation", gt=0
    )
    dp: str = option(
        "none",
        "differential privacy per client: noise added by the server (central), by all clients "
        "jointly (distributed) or by each alone (local)",
        choices=("none", "central", "distributed", "local"),
    )
    clipping_norm: float = option(
        1.0, "maximum norm of a client's update under privacy.dp (C)", gt=0
    )
    clipping: str = option(
        "fixed", "adaptive = clipping-norm is only the initial value", choices=("fixed", "adaptive")
    )
    epsilon: float = option(
        8.0, "privacy budget of training nodes for the run; it stops before exceeding it", gt=0
    )
    delta: float = option(1e-5, "probability that epsilon does not hold", gt=0, lt=1)
    noise_multiplier: float = option(
        0.0, "noise per round in units of clipping-norm (sigma); 0 = as epsilon requires", ge=0
    )
    seeded: bool = option(
        False,
        "draw the noise from the run's seed and count validations: reproducible but not private",
        advanced=True,
    )

    # Constant, not a key: adaptive clipping aims at the median, as Andrew et al. (2021) recommend.
    clipping_quantile: float = 0.5

    @property
    def withholds_numbers(self) -> bool:
        """Whether clients send no number that depends on their data beside the noisy update.

        Counts, sizes, losses and seconds have no noise, so epsilon does not cover them: a server
        that sends models of its own reads labels from an exact loss. Noise from the run's seed,
        which a server can compute, is for studies of accuracy; its epsilon is void anyway.
        """
        return self.dp != "none" and not self.seeded


def privacy_problems(
    privacy: PrivacyConfig,
    clients: int,
    fraction: float,
    min_replies: int,
    precision: str = FLOAT32,
) -> list[str]:
    """Return the settings that defeat the protection that `privacy.*` promises, one line each."""
    problems = []
    # Rounded down, as Flower's strategies do.
    sampled = max(1, int(clients * fraction))
    if privacy.secure_aggregation and sampled < 3:
        problems.append(
            "privacy.secure-aggregation: expected at least 3 clients per round, found "
            f"{sampled}; with two, each client learns the other's upload from the sum"
        )
    if privacy.secure_aggregation and min_replies:
        problems.append(
            "min-valid-replies: expected 0 under privacy.secure-aggregation, found "
            f"{min_replies}; set privacy.threshold instead"
        )
    if privacy.dp == "distributed" and not privacy.secure_aggregation:
        problems.append(
            "privacy.secure-aggregation: expected true under privacy.dp = distributed, found "
            "false; without masks the server reads every upload with a part of the noise only. Set "
            "it, or privacy.dp = local"
        )
    if fraction < 1 and (privacy.secure_aggregation or privacy.dp in ("distributed", "local")):
        problems.append(
            f"client-fraction: expected 1, found {fraction:g}; sums over different clients can be "
            "subtracted (privacy.secure-aggregation), and noise that clients add is accounted for "
            "all of them: sample without masks, with privacy.dp = none or central"
        )
    if privacy.clipping == "adaptive" and privacy.dp == "local":
        problems.append(
            "privacy.clipping: expected fixed under privacy.dp = local, found adaptive; a single "
            "client cannot protect the count over clients that adaptive clipping needs"
        )
    return problems + (
        _precision_problems(privacy, fraction, precision) if precision != FLOAT32 else []
    )


def _precision_problems(privacy: PrivacyConfig, fraction: float, precision: str) -> list[str]:
    """Return why a rounded update would not have the guarantee of `privacy.dp`, one line each."""
    problems = []
    if privacy.dp == "distributed":
        problems.append(
            "upload-precision: expected float32 under privacy.dp = distributed, found "
            f"{precision}; a sum of rounded parts does not have the noise that epsilon is computed "
            "for"
        )
    if privacy.dp == "central" and fraction < 1:
        problems.append(
            f"upload-precision: expected float32 under privacy.dp = central with client-fraction "
            f"{fraction:g}, found {precision}; what a client keeps depends on the rounds it was "
            "drawn for, which epsilon assumes independent"
        )
    if privacy.dp == "central" and privacy.secure_aggregation and precision == INT8:
        problems.append(
            "upload-precision: expected float32 or float16 under privacy.dp = central with secure "
            "aggregation, found int8; a step would be as large as a clipped update"
        )
    return problems
