"""The configuration section of DANCE, `dance.*`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, Value, option

# Values of `paper = true`, which switch every extension off; it also sets dance.hop2-pool to B_2.
PAPER: dict[str, Value] = {
    "dance.coverage-penalty": 0.0,
    "dance.labelled-first": False,
    "dance.plain-weight": 0.0,
    "dance.views": "core",
    "dance.label-evidence": False,
    "dance.evidence-supervision": False,
    "dance.paper-matrices": True,
    "dance.trained-evidence": "candidates",
    "dance.candidate-search": "exact",
    "dance.anchor-temperature": 0.0,
    "text-pooling": "attention",
    "edge-gates": "none",
    "class-prior": "none",
    "dance.batch-nodes": 0,
    "dance.fan-out": 0,
    "dance.text-refresh-every": 1,
    "lr-schedule": "constant",
    "ema-decay": 0.0,
    "smoothing": "none",
}


@dataclass(frozen=True)
class DanceConfig(Section):
    """The keys of DANCE, `dance.*`; symbols as in the paper."""

    name: ClassVar[str] = "dance"

    core_refresh_every: int = option(
        10, "rounds between node condensations; 0 = only in round 1", least=0
    )
    text_refresh_every: int = option(
        10,
        "rounds between evidence selections, each for the cores until the next one; nodes that are "
        "condensed anew get evidence at once; 0 = only in round 1, for all nodes",
        least=0,
    )
    batch_nodes: int = option(
        256,
        "maximum number of core nodes trained per round (K_b), taken from the core in turn; "
        "0 = the whole core",
        least=0,
        most=4096,
    )
    fan_out: int = option(
        10,
        "neighbours of a node that are candidates for evidence, and those that are read per layer "
        "in training; a node with more offers a sample; 0 = all",
        least=0,
    )
    paper_matrices: bool = option(
        False,
        "read texts through matrices of their own width (W_k, W_s, W_t) as in the paper, instead "
        "of the backbone's first map",
    )
    trained_evidence: str = option(
        "selected",
        "evidence that training weighs: what the round selected, or all candidates with a "
        "straight-through estimator as in the paper",
        choices=("selected", "candidates"),
    )
    candidate_search: str = option(
        "in-class",
        "search for similar core nodes in self-expression: within groups of one class, or exact "
        "among all pairs as in the paper",
        choices=("in-class", "exact"),
    )
    confidence: float = option(0.7, "minimum confidence of a pseudo-label (tau)", least=0, most=1)
    prototypes: int = option(8, "maximum number of prototypes per class (P)", least=1)
    coverage_penalty: float = option(
        2.0,
        "penalty on a node's prototype score per round it was already in a core; 0 = the paper's "
        "rule",
        least=0,
    )
    core_rule: str = option(
        "label-aware",
        "how the core is selected; random = ablation without node condensation (NC)",
        choices=("label-aware", "random"),
    )
    text_rule: str = option(
        "gated",
        "text of a condensed node; own = ablation without text condensation (TC), the chunks of "
        "the node itself",
        choices=("gated", "own"),
    )
    topology_rule: str = option(
        "self-expressive",
        "edges of the core; induced and none = ablations without topology reconstruction (TGR)",
        choices=("self-expressive", "induced", "none"),
    )
    labelled_first: bool = option(
        True, "fill the quota of each class with labelled nodes first; false = the paper's rule"
    )
    hop0_budget: int = option(1, "evidence nodes at hop 0, the node itself (B_0)", least=1, most=1)
    hop1_budget: int = option(3, "evidence neighbours at hop 1 (B_1)", least=0)
    hop2_budget: int = option(2, "evidence neighbours at hop 2 (B_2)", least=0)
    hop2_pool: int = option(
        8, "hop-2 candidates preselected by difficulty before gating; B_2 in the paper", least=1
    )
    chunk_budget: int = option(8, "evidence chunks per node (B_tok)", least=1)
    mix: float = option(
        0.6,
        "weight of the chunk evidence in the fused text; the neighbour context gets the rest",
        least=0,
        most=1,
    )
    align_weight: float = option(
        0.1, "weight of the divergence between views (lambda_align)", least=0
    )
    plain_weight: float = option(
        1.0, "weight of the supervised loss on the original graph; 0 = the paper's loss", least=0
    )
    attention_dim: int = option(
        64, "width of the neighbour attention under paper-matrices (d_a)", least=1
    )
    anchor_temperature: float = option(
        0.1,
        "temperature of the part of a query that is not learnt: the node's own text asks for "
        "neighbours, its context for chunks; 0 = the paper's rule, learnt queries alone",
        least=0,
    )
    candidates: int = option(
        10, "candidate columns per node and source in self-expression (q)", least=1
    )
    neighbours: int = option(5, "neighbours kept per condensed node (k)", least=1)
    alpha: float = option(
        4.0, "weight of the reconstruction error of unit-norm features (alpha)", above=0
    )
    beta: float = option(
        3.0, "weight of the l1 penalty (beta); no edge is left from 2 alpha on", least=0
    )
    inner_iterations: int = option(
        300, "maximum number of accelerated proximal gradient steps (L)", least=1
    )
    inner_tolerance: float = option(
        1e-3,
        "relative duality gap at which these steps end; 0 = all inner-iterations steps",
        least=0,
        most=0.1,
    )
    views: str = option(
        "plain+fused",
        "views averaged at inference",
        choices=("plain+core+fused", "plain+fused", "core+fused", "fused", "core", "plain"),
    )
    evidence_supervision: bool = option(
        True,
        "the supervised loss on the original graph also covers labelled evidence neighbours; "
        "false = the core alone",
    )
    label_evidence: bool = option(
        True,
        "use the training labels of the selected neighbours in predictions; false = the paper's "
        "rule",
    )
    feature_noise: float = option(
        0.0,
        "scale of the Laplace noise on condensed features during training (b), as in the paper's "
        "study; no privacy guarantee",
        least=0,
    )
    evidence_keep: str = option(
        "all",
        "evidence packs that a client keeps: those of every refresh, or only those of the final "
        "model",
        choices=("all", "final"),
    )

    @classmethod
    def paper_values(cls, known: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return the values that reduce the method to the paper's."""
        pool = max(1, int(known.get("dance.hop2-budget", cls.hop2_budget)))
        return {**PAPER, "dance.hop2-pool": pool}

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
