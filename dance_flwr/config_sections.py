"""The sections of a run's configuration, and how a key is declared."""

from dataclasses import dataclass, field
from typing import Any

Value = bool | int | float | str


def option(
    default: Value,
    text: str,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare one configuration key: its default, its help text and the values it accepts.

    `above`/`below` are open bounds, `least`/`most` closed ones.
    """
    rules = {"above": above, "least": least, "most": most, "below": below, "choices": choices}
    return field(default=default, metadata={"help": text, **rules})


@dataclass(frozen=True)
class DanceConfig:
    """Keys of the method itself, `dance.*`; the symbols are the paper's."""

    ratio: float = option(0.08, "condensed nodes as a ratio of all local nodes (r)", above=0, most=1)
    core_refresh_every: int = option(10, "rounds between node condensations; 0 = only in round 1", least=0)
    text_refresh_every: int = option(1, "rounds between evidence selections; 0 = only in round 1", least=0)
    confidence: float = option(0.7, "least confidence of a pseudo-label (tau)", least=0, most=1)
    prototypes: int = option(8, "most prototypes per class (P)", least=1)
    coverage_penalty: float = option(
        2.0, "taken off a node's prototype score per round it was already in a core; 0 = the paper's rule", least=0
    )
    core_rule: str = option(
        "label-aware",
        "how the core is chosen; random = ablation without node condensation (NC)",
        choices=("label-aware", "random"),
    )
    text_rule: str = option(
        "gated",
        "text of a condensed node; own = ablation without text condensation (TC): all chunks of the node itself",
        choices=("gated", "own"),
    )
    topology_rule: str = option(
        "self-expressive",
        "edges of the core; induced and none = ablations without topology reconstruction (TGR)",
        choices=("self-expressive", "induced", "none"),
    )
    labelled_first: bool = option(True, "fill each class quota with labelled nodes first; false = the paper's rule")
    hop0_budget: int = option(1, "evidence nodes at hop 0, the node itself (B_0)", least=1, most=1)
    hop1_budget: int = option(3, "evidence neighbours at hop 1 (B_1)", least=0)
    hop2_budget: int = option(2, "evidence neighbours at hop 2 (B_2)", least=0)
    hop2_pool: int = option(8, "hop-2 candidates kept by difficulty before gating; the paper: B_2", least=1)
    chunk_budget: int = option(8, "evidence chunks per node (B_tok)", least=1)
    mix: float = option(0.6, "share of chunk evidence against neighbour context in the fused text", least=0, most=1)
    align_weight: float = option(0.1, "weight of the cross-view divergence (lambda_align)", least=0)
    plain_weight: float = option(1.0, "weight of the supervised term on the original graph", least=0)
    attention_dim: int = option(64, "width of the neighbour attention (d_a)", least=1)
    candidates: int = option(10, "candidate columns per node and source in self-expression (q)", least=1)
    neighbours: int = option(5, "neighbours kept per condensed node (k)", least=1)
    alpha: float = option(4.0, "weight of the reconstruction error (alpha)", above=0)
    beta: float = option(5.0, "weight of the l1 penalty (beta)", least=0)
    inner_iterations: int = option(20, "proximal gradient steps (L)", least=1)
    views: str = option(
        "plain+fused",
        "views averaged at inference",
        choices=("plain+core+fused", "plain+fused", "core+fused", "fused", "core", "plain"),
    )
    evidence_supervision: bool = option(
        True, "labelled neighbours among the evidence join the core in the plain term; false = the core alone"
    )
    label_evidence: bool = option(
        True, "training labels of the selected neighbours count in the prediction; false = the paper's rule"
    )
    feature_noise: float = option(
        0.0, "scale of Laplace noise on condensed features in training (b); the paper's study, no guarantee", least=0
    )
    evidence_keep: str = option(
        "all", "evidence packs a client keeps: of every refresh, or only of the final model", choices=("all", "final")
    )


@dataclass(frozen=True)
class PrivacyConfig:
    """Keys of what is done so that an upload cannot be read, `privacy.*`."""

    secure_aggregation: bool = option(False, "uploads and metrics are summed under masks (SecAgg+)")
    threshold: float = option(
        0.6, "share of a round's clients that must stay to take the masks off; more may not drop out", above=0.5, most=1
    )
    update_range: float = option(
        1.0, "bound of a weight's change in one round; a client refuses to upload more under masks", above=0
    )
    dp: str = option(
        "none",
        "differential privacy of a client's part in the model: noise added by the server (central), by all clients "
        "together (distributed) or by each client for itself (local)",
        choices=("none", "central", "distributed", "local"),
    )
    clipping_norm: float = option(1.0, "largest norm of a client's update, under privacy.dp (C)", above=0)
    clipping: str = option(
        "fixed", "adaptive = clipping-norm is where the norm starts from", choices=("fixed", "adaptive")
    )
    clipping_quantile: float = option(
        0.5, "share of updates that adaptive clipping leaves within the norm", above=0, below=1
    )
    epsilon: float = option(8.0, "privacy budget of the whole run; training stops before it is exceeded", above=0)
    delta: float = option(1e-5, "chance that epsilon does not hold", above=0, below=1)
    noise_multiplier: float = option(
        0.0, "noise per round in units of clipping-norm (sigma); 0 = the least that all rounds can spend", least=0
    )
    seeded: bool = option(False, "noise from the run's seed: repeatable, and no protection; for tests and studies")


def privacy_problems(privacy: PrivacyConfig, clients: int, fraction: float, min_replies: int) -> list[str]:
    """Return which settings take away what another one promises.

    Parameters
    ----------
    clients, fraction, min_replies : the run's `clients`, `client-fraction` and `min-valid-replies`
    """
    problems = []
    asked = max(1, int(clients * fraction))
    if privacy.secure_aggregation and asked < 3:
        problems.append(
            f"privacy.secure-aggregation: expected at least 3 clients asked per round, found {asked}; a sum of two "
            "tells each the other's part"
        )
    if privacy.secure_aggregation and min_replies:
        problems.append(
            f"min-valid-replies: expected 0 under privacy.secure-aggregation, found {min_replies}; "
            "privacy.threshold says how many clients must stay"
        )
    together = privacy.secure_aggregation or privacy.dp in ("distributed", "local")
    if privacy.dp != "none" and together and fraction < 1:
        problems.append(
            f"client-fraction: expected 1, found {fraction:g}; clients are drawn by chance only under "
            "privacy.dp = central without secure aggregation"
        )
    if privacy.clipping == "adaptive" and privacy.dp == "local":
        problems.append(
            "privacy.clipping: expected fixed under privacy.dp = local, found adaptive; a count over clients is not "
            "something that one client protects by itself"
        )
    return problems
