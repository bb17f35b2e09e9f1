"""What another text encoder changes: `--set encoder=FOLDER`, each beside the default one.

The family of comparisons is fixed here, before any run: each method with each other encoder against
itself with the default one, with Holm's correction over all of a data set.
"""

from collections.abc import Sequence
from pathlib import Path

from dance_flwr.config.options import Value
from dance_flwr.data.text.encoder_files import DEFAULT_ENCODER
from dance_flwr.study.engine.cells import Cell, Experiment, Request, Row, Section, dataset_name
from dance_flwr.study.protocols.regimes.grid import BY_SITE, RATIO
from dance_flwr.study.protocols.variants import find
from dance_flwr.study.reports import significance
from dance_flwr.study.reports.tables import NOTHING, Group, by_label, groups, markdown

READ_ALIKE: dict[str, Value] = {"text-pooling": "probe", "edge-gates": "probe"}
VARIANTS: dict[str, dict[str, Value]] = {
    "dance": RATIO | {"personal": "mix"},
    "fedavg-full": READ_ALIKE,
    "local-only": READ_ALIKE,
}
HOW = (
    "Test accuracy in %, mean ± sample standard deviation over seeds; *global*: the global model "
    "of `dance` alone. MB that a client uploads in a run; seconds of a round without encoding, "
    "to be compared within a data set only. Differences from the same method with the default "
    "encoder, as in the main table."
)


def _cells(request: Request) -> list[Cell]:
    encoder = Path(str(request.overrides.get("encoder", DEFAULT_ENCODER))).name
    return [
        Cell(
            {
                "dataset": dataset_name(dataset),
                "method": method,
                "encoder": encoder,
                "seed": seed,
            },
            request.config(
                dataset, method, seed, {**BY_SITE.get(dataset_name(dataset), {}), **settings}
            ),
        )
        for dataset in request.datasets
        for method, settings in VARIANTS.items()
        for seed in request.seeds
    ]


def _render(rows: Sequence[Row]) -> Section:
    parts = [HOW]
    stated = {"encoder", "personal", "text-pooling", "edge-gates"}
    for dataset, compared in by_label(groups(rows, stated), "dataset").items():
        parts += [f"**{dataset}**", _table(compared)]
    return Section(tuple(parts))


def _table(compared: Sequence[Group]) -> str:
    pairs = [
        (group, default)
        for group in compared
        if group.labels["encoder"] != DEFAULT_ENCODER
        and (default := find(compared, method=group.labels["method"], encoder=DEFAULT_ENCODER))
    ]
    tests = significance.corrected([significance.paired_test(*pair) for pair in pairs])
    gains = {id(group): test.text for (group, _), test in zip(pairs, tests, strict=True)}
    lines = [
        [
            str(group.labels["method"]),
            str(group.labels["encoder"]),
            group.stat("test_accuracy").percent,
            group.stat(_global).percent if group.labels["method"] == "dance" else NOTHING,
            gains.get(id(group), NOTHING),
            group.mean_text(_megabytes, 2),
            group.mean_text(_seconds, 2),
        ]
        for group in compared
    ]
    columns = ("accuracy", "global", "against the default", "MB", "s a round")
    return markdown(["method", "encoder", *columns], lines)


def _global(row: Row) -> float:
    return float(row.result["test_accuracy_by_view"]["global"])


def _megabytes(row: Row) -> float:
    return float(row.result["bytes_up"]) * int(row.result["rounds"]) / 1e6


def _seconds(row: Row) -> float:
    return float(row.result["seconds_per_round"])


EXPERIMENT = Experiment(
    name="encoders",
    title="Encoders",
    question="A stronger frozen encoder raises every method: not a claim of the paper, whose "
    "encoder is another one.",
    cells=_cells,
    render=_render,
    datasets=("cora", "citeseer", *BY_SITE),
)
