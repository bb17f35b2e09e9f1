"""DANCE without one of its parts (ablation), and without its refreshes (refresh study)."""

from collections.abc import Iterator, Mapping, Sequence

from dance_flwr.config.options import Value
from dance_flwr.dance.config import COVERAGE, LABEL_AWARE, RANDOM, RANDOM_LABELLED
from dance_flwr_studies.engine.cells import Experiment
from dance_flwr_studies.protocols.variants import SEED_TEXT, Point, find, gain_text, point_cells
from dance_flwr_studies.reports import paper_values as paper
from dance_flwr_studies.reports.sections import accuracy, named, side_by_side
from dance_flwr_studies.reports.tables import NOTHING, Group, paper_text
from dance_flwr_studies.reports.verdicts import Expected, expect, of_datasets

Variants = Mapping[str, Mapping[str, Value]]

# The names are the paper's, but for the last; its extensions go with the part that they extend.
VARIANTS: dict[str, dict[str, Value]] = {
    "full": {},
    "w/o TGR": {"dance.topology-rule": "induced", "edge-gates": "none"},
    "w/o TC": {"dance.text-rule": "own", "text-pooling": "attention"},
    "w/o NC": {"dance.core-rule": RANDOM},
    "w/o labels": {"dance.label-evidence": False, "class-prior": "none"},
}
# Other rules for the core.
CORE_RULES: dict[str, dict[str, Value]] = {
    "random labelled core": {"dance.core-rule": RANDOM_LABELLED},
    "covering core": {"dance.core-rule": COVERAGE},
}
# For the claim: a control that changes the rule alone. "w/o NC" also has fewer labels.
_NODES = "random labelled core"
_PARTS = ("w/o TGR", "w/o TC", _NODES)  # of the paper's claim
_PART_KEYS = {key for settings in VARIANTS.values() for key in settings}
_CORE, _TEXT = "dance.core-refresh-every", "dance.text-refresh-every"
# The names are the paper's. One rule for all, as "auto" is another one for a core that stays.
REFRESHES: dict[str, dict[str, Value]] = {
    name: {_CORE: core, _TEXT: text, "dance.core-rule": LABEL_AWARE}
    for name, core, text in (
        ("DANCE", 1, 1),
        ("Refresh-Core-Only", 1, 0),
        ("Refresh-Text-Only", 0, 1),
        ("Static-DANCE", 0, 0),
    )
}
HOW = (
    "w/o TGR: the core keeps its induced edges, and every edge of the local graph weighs 1. w/o "
    "TC: the text of a node is all of its own chunks. w/o NC: the core is drawn at random, "
    "labelled or not. w/o labels: training labels enter the loss alone, not the prediction. "
    "Random labelled core: random labelled nodes, the same quotas. Covering core: facility "
    f"location within the class. {SEED_TEXT}"
)
HOW_REFRESH = (
    "What is not refreshed is chosen once, in round 1, by the first model. The paper gives gains "
    f"in percent without saying of what: here points of accuracy. {SEED_TEXT}"
)


def _points(variants: Variants) -> list[Point]:
    return [({"variant": name}, keys) for name, keys in variants.items()]


def _paper(group: Group, variants: Sequence[Group]) -> str:
    dataset, variant = (str(group.labels[key]) for key in ("dataset", "variant"))
    return paper_text(paper.ablation_number(dataset, variant, "accuracy"))


def _full(group: Group, variants: Sequence[Group]) -> Group | None:
    """Return the full method under the settings of a variant, None without one.

    Both must know the same settings: rows that are older than a part's setting had no such part.
    """

    def rest(other: Group) -> dict[str, Value]:
        config = {**other.rows[0].config, "seed": ""}
        return {key: "" if key in _PART_KEYS else value for key, value in config.items()}

    full = (other for other in variants if other.labels["variant"] == "full")
    return next((other for other in full if rest(other) == rest(group)), None)


def _lowered(dataset: str, compared: Sequence[Group]) -> Iterator[Expected]:
    """Compare the full method with what lacks one part, and other parts with node condensation."""
    for group in compared:
        variant = str(group.labels["variant"])
        if variant in _PARTS:
            full = _full(group, compared)
            yield from expect(f"full minus {variant} on {dataset}", full, group)
        if variant in _PARTS and variant != _NODES and full:
            nodes = (other for other in compared if other.labels["variant"] == _NODES)
            nodes = (other for other in nodes if _full(other, compared) is full)
            yield from expect(f"{variant} minus {_NODES} on {dataset}", group, next(nodes, None))


def _paper_gain(group: Group, variants: Sequence[Group]) -> str:
    # The paper prints a gain over this variant alone.
    is_static = group.labels["variant"] == "Static-DANCE"
    theirs = paper.refresh_gain(str(group.labels["dataset"])) if is_static else None
    return NOTHING if theirs is None else f"{theirs:+.1f}"


def _gained(dataset: str, compared: Sequence[Group]) -> Iterator[Expected]:
    """Compare with Static-DANCE; the bound is the gain in the paper, where it prints one."""
    static = find(compared, variant="Static-DANCE")
    for variant in ("DANCE", "Refresh-Core-Only", "Refresh-Text-Only"):
        claimed = paper.refresh_gain(dataset) if variant == "DANCE" else None
        what = f"{variant} minus Static-DANCE on {dataset}"
        yield from expect(what, find(compared, variant=variant), static, (claimed or 0.0) / 100)


ABLATION = Experiment(
    title="Ablation",
    question="Removing node condensation (NC), text condensation (TC) or topology reconstruction "
    "(TGR) lowers the accuracy on every data set, node condensation most (the paper's ablation "
    "table).",
    cells=lambda request: point_cells(request, _points(VARIANTS | CORE_RULES)),
    render=side_by_side(
        HOW,
        {"variant": named("variant")},
        {
            "accuracy %": accuracy,
            "against full, points": lambda one, every: gain_text(one, _full(one, every)),
            "paper %": _paper,
        },
        stated=_PART_KEYS,
    ),
    verdict=of_datasets(_lowered, _PART_KEYS),
)
REFRESH = Experiment(
    title="Refresh study",
    question="Refreshing core and text in every round beats Static-DANCE by 6.1 on Cora and 4.4 on "
    "CiteSeer; refreshing one of them recovers a part (the paper's refresh study).",
    cells=lambda request: point_cells(request, _points(REFRESHES)),
    render=side_by_side(
        HOW_REFRESH,
        {"variant": named("variant")},
        {
            "accuracy %": accuracy,
            "DANCE is above it by, points": lambda one, every: gain_text(
                find(every, variant="DANCE"), one
            ),
            "paper, points": _paper_gain,
        },
    ),
    verdict=of_datasets(_gained),
)
