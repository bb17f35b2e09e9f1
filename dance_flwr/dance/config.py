"""The configuration section of DANCE, `dance.*`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, Value, option
from dance_flwr.config.plugins import CHUNK_RULES

# What `paper = true` sets, by section; `list keys all` prints it. Why the sections of the harness
# are among them (decision 19): the paper trains at a constant rate and averages no models
# over rounds, and a row "as published" must not profit from either.
PAPER_DANCE: dict[str, Value] = {
    "dance.core-rule": "label-aware",
    "dance.labelled-first": False,
    "dance.coverage-penalty": 0.0,
    "dance.plain-weight": 0.0,
    "dance.views": "core",
    "dance.label-evidence": False,
    "dance.evidence-supervision": False,
    "dance.paper-rules": True,
    "dance.anchor-temperature": 0.0,
    "dance.batch-nodes": 0,
    "dance.fan-out": 0,
    "dance.text-refresh-every": 1,
}  # and dance.hop2-pool = B_2
PAPER_READING: dict[str, Value] = {
    "text-pooling": "attention",
    "edge-gates": "none",
    "class-prior": "none",
}
PAPER_HARNESS: dict[str, Value] = {
    "lr-schedule": "constant",
    "ema-decay": 0.0,
    "smoothing": "none",
    "loss-weights": "none",
    "personal": "off",
}
PAPER = {**PAPER_DANCE, **PAPER_READING, **PAPER_HARNESS}
# Fields without a key that `dance.paper-rules` sets.
_PAPER_RULES: dict[str, Value] = {
    "paper_matrices": True,
    "trained_evidence": "candidates",
    "candidate_search": "exact",
    "labelled_floor": False,
}
LABEL_AWARE, COVERAGE = "label-aware", "coverage"
RANDOM, RANDOM_LABELLED = "random", "random-labelled"
AUTO = "auto"


@dataclass(frozen=True)
class DanceConfig(Section):
    """The keys of DANCE; symbols as in the paper."""

    name: ClassVar[str] = "dance"

    # Why 10 and 10 (decision 5): the paper states both 10 and 1; between two condensations the
    # queue of cores changes the core in every round, and evidence of every round is not
    # measurably better.
    core_refresh_every: int = option(
        10, "rounds between node condensations; 0 = only in round 1", ge=0
    )
    text_refresh_every: int = option(
        10, "rounds between evidence selections; 0 = only in round 1", ge=0
    )
    # Why a bound (decision 16): a round costs what its core costs, whatever the size of the graph.
    batch_nodes: int = option(
        256,
        "maximum number of core nodes trained per round (K_b); 0 = the whole core",
        ge=0,
        le=4096,
    )
    fan_out: int = option(
        10,
        "maximum number of neighbours per node, sampled: candidates for evidence, and read per "
        "layer in training; 0 = all",
        ge=0,
    )
    confidence: float = option(0.7, "minimum confidence of a pseudo-label (tau)", ge=0, le=1)
    prototypes: int = option(8, "maximum number of prototypes per class (P)", ge=1)
    # Why 2, where the paper has none (decision 7): successive cores cover the labelled nodes.
    coverage_penalty: float = option(
        2.0, "penalty on a node's prototype score per round that it was in a core", ge=0
    )
    # Why "auto" (decision 7): a core that stays should cover its classes; where cores move, every
    # labelled node is visited, whatever the rule.
    core_rule: str = option(
        AUTO,
        "selection of the core: by the paper's score (label-aware), or facility location per class "
        "(coverage); auto = coverage in a core that stays, label-aware in one that moves; random = "
        "ablation of node condensation (NC); random-labelled = its control, labelled nodes under "
        "the quotas",
        choices=(AUTO, LABEL_AWARE, COVERAGE, RANDOM, RANDOM_LABELLED),
    )
    # Why (decision 7): labelled nodes fill the quota of their class first, so that successive
    # cores cover them.
    labelled_first: bool = option(True, "labelled nodes enter the core before pseudo-labelled ones")
    text_rule: str = option(
        "gated",
        "text of a condensed node; own = its own chunks, ablation of text condensation (TC)",
        choices=("gated", "own"),
    )
    topology_rule: str = option(
        "self-expressive",
        "edges of the core; induced, none = ablations of topology reconstruction (TGR)",
        choices=("self-expressive", "induced", "none"),
    )
    hop1_budget: int = option(3, "evidence neighbours at hop 1 (B_1)", ge=0)
    hop2_budget: int = option(2, "evidence neighbours at hop 2 (B_2)", ge=0)
    # Why more than B_2 (decision 7): otherwise the gate has nothing to choose from.
    hop2_pool: int = option(
        8, "hop-2 candidates preselected by difficulty before gating; B_2 in the paper", ge=1
    )
    chunk_budget: int = option(8, "evidence chunks per node (B_tok)", ge=1)
    chunk_rule: str = option(
        "entmax", "rule that turns the scores of chunks into weights", choices=CHUNK_RULES
    )
    mix: float = option(
        0.6,
        "weight of the chunk evidence in the fused text, against the neighbour context",
        ge=0,
        le=1,
    )
    align_weight: float = option(0.1, "weight of the divergence between views (lambda_align)", ge=0)
    # Why 1, where the paper has none (decision 7): nothing else trains the pass over the original
    # graph that gates and selection depend on.
    plain_weight: float = option(1.0, "weight of the supervised loss on the original graph", ge=0)
    # Why (decision 18): gates that start from random queries choose evidence at random.
    anchor_temperature: float = option(
        0.1,
        "temperature of the fixed part of a query, the node's text or context; 0 = learnt "
        "queries alone",
        ge=0,
    )
    candidates: int = option(
        10, "candidate columns per node and source in self-expression (q)", ge=1
    )
    neighbours: int = option(5, "neighbours kept per condensed node (k)", ge=1)
    alpha: float = option(
        4.0, "weight of the reconstruction error of unit-norm features (alpha)", gt=0
    )
    beta: float = option(
        3.0, "weight of the l1 penalty (beta); from 2 alpha on, no edge remains", ge=0
    )
    # Why not the paper's view (decision 7): the backbone on x_v over the original graph was the
    # weakest one.
    views: str = option(
        "plain+fused",
        "views averaged at inference",
        choices=("plain+core+fused", "plain+fused", "core+fused", "fused", "core", "plain"),
    )
    evidence_supervision: bool = option(
        True, "the loss on the original graph covers labelled evidence neighbours too"
    )
    label_evidence: bool = option(
        True, "use the training labels of selected neighbours in predictions"
    )
    feature_noise: float = option(
        0.0, "scale of the Laplace noise on condensed features (b); no privacy guarantee", ge=0
    )
    evidence_keep: str = option(
        "all",
        "packs that a client stores: of every refresh, or of the final model",
        choices=("all", "final"),
    )

    paper_rules: bool = option(
        False,
        "the paper's rules without a key: own matrices W_k, W_s, W_t, training on all "
        "candidates, exact search, neither priority nor floor of labelled nodes",
    )

    # Constants, not keys.
    # Hop 0 is the node itself (B_0).
    hop0_budget: ClassVar[int] = 1
    # Width of the neighbour attention under the paper's matrices (d_a).
    attention_dim: int = 64
    # Why (decision 17): proximal gradient steps end at this relative duality gap, where the
    # objective is within 0.1 % of its minimum; the steps are a bound that it rarely reaches.
    inner_iterations: int = 300
    inner_tolerance: float = 1e-3
    # Why (decision 16): the backbone's first map also reads the texts, training weighs what the
    # round selected, and similar core nodes are searched within one class; each makes a round
    # cheaper. `paper-rules` sets the paper's rule.
    paper_matrices: bool = False
    trained_evidence: str = "selected"
    candidate_search: str = "in-class"
    # Why (decision 7): a class with a training label is in every core, which largest remainders
    # leave it out of where classes are many and the core is small.
    labelled_floor: bool = True

    def __post_init__(self) -> None:
        """Set the fields without a key to what `paper_rules` and `core_rule` mean."""
        for name, value in _PAPER_RULES.items() if self.paper_rules else ():
            object.__setattr__(self, name, value)
        if self.core_rule == RANDOM_LABELLED:
            object.__setattr__(self, "labelled_first", True)

    @classmethod
    def paper_values(cls, known: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return the values that reduce the method to the paper's."""
        pool = max(1, int(known.get("dance.hop2-budget", cls.hop2_budget)))
        return {**PAPER, "dance.hop2-pool": pool}

    @property
    def rule(self) -> str:
        """The rule that selects the core: `core_rule`, "auto" resolved."""
        if self.core_rule != AUTO:
            return self.core_rule
        return LABEL_AWARE if self.core_moves else COVERAGE

    @property
    def core_moves(self) -> bool:
        """Whether rounds between two condensations train on successive cores of the queue."""
        return self.coverage_penalty > 0 and self.core_refresh_every > 0

    def problems(self) -> list[str]:
        """Return a problem if the pool of hop 2 is smaller than its budget."""
        if self.hop2_pool >= self.hop2_budget:
            return []
        return [
            f"dance.hop2-pool: expected at least dance.hop2-budget = {self.hop2_budget}, found "
            f"{self.hop2_pool}"
        ]
