"""Non-IID data: ways to divide the graph among clients, from communities to chance."""

from collections.abc import Sequence

from dance_flwr.config.options import Value
from dance_flwr.experiments.cells import Cell, Experiment, Label, Request, Row, Section
from dance_flwr.experiments.tables import by_label, groups, markdown
from dance_flwr.experiments.variants import SEED_TEXT, find, gain, points_text, variant_cells

DIVISIONS: dict[str, dict[str, Value]] = {
    "louvain": {"partition": "louvain"},
    "metis": {"partition": "metis"},
    "label-dirichlet 1.0": {"partition": "label-dirichlet", "dirichlet-alpha": 1.0},
    "label-dirichlet 0.1": {"partition": "label-dirichlet", "dirichlet-alpha": 0.1},
    "random": {"partition": "random"},
}


def _cells(request: Request) -> list[Cell]:
    made = []
    for dataset in request.datasets:
        for division, settings in DIVISIONS.items():
            labels: dict[str, Label] = {
                "division": division,
                "partition": str(settings["partition"]),
            }
            labels["dirichlet-alpha"] = float(settings.get("dirichlet-alpha", 0.0))
            for method in request.methods:
                made += variant_cells(request, dataset, method, settings, labels)
    return made


def _render(rows: Sequence[Row]) -> Section:
    parts = [
        "Communities (louvain, metis) keep edges and skew labels a little; label-dirichlet skews labels by its "
        "concentration, the lower the more; random does neither and cuts most edges. `dance-flwr partition show` "
        f"prints the skew of each. {SEED_TEXT}"
    ]
    for dataset, found in by_label(groups(rows), "dataset").items():
        lines = []
        for group in found:
            accuracy = group.stat("test_accuracy")
            reference = find(found, division=group.labels["division"], method="fedavg-full")
            against = (
                points_text(gain(group, reference, "test_accuracy"))
                if reference not in (None, group)
                else ""
            )
            line = [
                group.name(str(group.labels["division"])),
                str(group.labels["method"]),
                accuracy.percent,
            ]
            lines.append([*line, accuracy.seeds, against, group.stat("test_macro_f1").percent])
        headings = [
            "division",
            "method",
            "accuracy %",
            "seeds",
            "against fedavg-full, points",
            "macro-F1 %",
        ]
        parts += [f"**{dataset}**", markdown(headings, lines)]
    return Section(tuple(parts))


EXPERIMENT = Experiment(
    name="non-iid",
    title="Non-IID data",
    question="DANCE is robust to Non-IID clients (question 3 of the paper, which prints no numbers).",
    cells=_cells,
    render=_render,
    methods=("fedavg-full", "dance"),
)
