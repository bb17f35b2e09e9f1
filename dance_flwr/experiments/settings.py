"""What the harness's own settings change, for both sides alike: running average, smoothing,
backbone.
"""

from collections.abc import Sequence

from dance_flwr.config.options import Value
from dance_flwr.config.tree import flat_fields
from dance_flwr.experiments.cells import Cell, Experiment, Label, Request, Row, Section
from dance_flwr.experiments.tables import by_label, groups, markdown
from dance_flwr.experiments.variants import SEED_TEXT, find, gain, points_text, variant_cells

EMA, SMOOTH = 0.9, "correct-and-smooth"
# backbone, ema-decay, smoothing
POINTS = (("gcn", EMA, "none"), ("sage", EMA, SMOOTH))
HOW = (
    "These settings belong to the harness, not to a method: a number with one of them is only comparable with a "
    "number that has it too. `paper` is the paper's method alone, with every extension of this project off. "
    f"{SEED_TEXT}"
)


def _cells(request: Request) -> list[Cell]:
    made = []
    for dataset in request.datasets:
        for method in request.methods:
            for backbone, ema, smoothing in POINTS:
                labels: dict[str, Label] = {
                    "backbone": backbone,
                    "ema-decay": ema,
                    "smoothing": smoothing,
                }
                settings: dict[str, Value] = {
                    "backbone": backbone,
                    "ema-decay": ema,
                    "smoothing": smoothing,
                }
                made += variant_cells(request, dataset, method, settings, labels | {"paper": "no"})
            if method == "dance" and "paper" in flat_fields():
                labels = {"backbone": "gcn", "ema-decay": 0.0, "smoothing": "none", "paper": "yes"}
                made += variant_cells(
                    request, dataset, method, {"paper": True, "backbone": "gcn"}, labels
                )
    return made


def _render(rows: Sequence[Row]) -> Section:
    parts = [HOW]
    for dataset, found in by_label(groups(rows), "dataset").items():
        lines = []
        for group in found:
            labels = {key: group.labels[key] for key in ("backbone", "ema-decay", "smoothing")}
            reference = find(found, **labels, method="fedavg-full")
            against = (
                points_text(gain(group, reference, "test_accuracy"))
                if reference not in (None, group)
                else ""
            )
            name = f"{group.labels['method']}{', paper' if group.labels['paper'] == 'yes' else ''}"
            accuracy = group.stat("test_accuracy")
            line = [
                group.name(name),
                *(str(value) for value in labels.values()),
                accuracy.percent,
                accuracy.seeds,
            ]
            lines.append([*line, against, group.stat("val_accuracy").percent])
        headings = ["method", "backbone", "ema-decay", "smoothing", "accuracy %", "seeds"]
        headings += ["against fedavg-full alike, points", "validation %"]
        parts += [f"**{dataset}**", markdown(headings, lines)]
    return Section(tuple(parts))


EXPERIMENT = Experiment(
    name="settings",
    title="Settings of the harness",
    question="How much of an accuracy is the method's, and how much the harness's: not a claim of the paper.",
    cells=_cells,
    render=_render,
    methods=("fedavg-full", "dance"),
)
