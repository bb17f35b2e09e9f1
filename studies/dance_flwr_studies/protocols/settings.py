"""The paper's rules alone, and what of the extensions closes their distance to the default."""

from collections.abc import Mapping, Sequence

from dance_flwr.config.options import Value
from dance_flwr.dance.config import PAPER, DanceConfig
from dance_flwr_studies.engine.cells import Cell, Experiment, Request
from dance_flwr_studies.protocols.variants import SEED_TEXT, Point, find, gain_text, variant_cells
from dance_flwr_studies.reports.sections import accuracy, side_by_side
from dance_flwr_studies.reports.tables import Group

# The paper preselects B_2 candidates.
RULES: Mapping[str, Value] = {
    **PAPER,
    "dance.hop2-pool": DanceConfig.hop2_budget,
    "backbone": "gcn",
}
FIRST: Mapping[str, Value] = {"dance.labelled-first": True}
MOVES: Mapping[str, Value] = {"dance.coverage-penalty": 2.0}
PUBLISHED, BOTH = "paper = true", "both: the core moves over the labelled nodes"
# Variant -> settings, on top of what a search of the first found.
VARIANTS: Mapping[str, Mapping[str, Value]] = {
    PUBLISHED: RULES,
    "labelled nodes first": {**RULES, **FIRST},
    "a core that moves": {**RULES, **MOVES},
    BOTH: {**RULES, **FIRST, **MOVES},
}
SEEDS = tuple(range(5, 15))
LONGER = 200  # the paper's rounds, for these seeds and variants
_FEWER = SEEDS[:5]
HOW = (
    "`paper = true` and one or two of its extensions, with the settings that a search found for "
    f"the paper's rules; default: DANCE as it is here. {SEED_TEXT}"
)


def _cells(request: Request) -> list[Cell]:
    cells: list[Cell] = []
    for dataset in request.datasets:
        base = request.config(dataset, "dance", 0).rounds
        for rounds in (base, LONGER):
            seeds = tuple(s for s in request.seeds if rounds == base or s in _FEWER)
            at = Request(request.datasets, (), seeds, rounds, request.overrides)
            for name, settings in VARIANTS.items():
                if rounds == LONGER and name not in (PUBLISHED, BOTH):
                    continue
                point: Point = {"variant": name, "rounds": rounds}, settings
                cells += variant_cells(at, dataset, "dance", point, "paper")
            point = {"variant": "default", "rounds": rounds}, {}
            cells += variant_cells(at, dataset, "dance", point)
    return cells


def _gain(group: Group, compared: Sequence[Group]) -> str:
    return gain_text(group, find(compared, variant=PUBLISHED, rounds=group.labels["rounds"]))


EXPERIMENT = Experiment(
    title="The paper's rules",
    question="Which extension closes the distance between the paper's rules and the default: not a "
    "claim of the paper.",
    cells=_cells,
    render=side_by_side(
        HOW,
        {
            "variant": lambda group: str(group.labels["variant"]),
            "rounds": lambda group: str(group.labels["rounds"]),
        },
        {"accuracy %": accuracy, f"over {PUBLISHED}, points": _gain},
        stated={*RULES, "learning-rate", "rounds"},
    ),
    seeds=SEEDS,
)
