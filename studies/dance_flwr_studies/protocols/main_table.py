"""The main table: accuracy of every method at each condensation ratio."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dance_flwr.config.plugins import METHODS
from dance_flwr.methods import get_spec
from dance_flwr_studies.engine.cells import (
    Cell,
    Experiment,
    Label,
    Request,
    Row,
    Section,
    dataset_name,
    default_methods,
)
from dance_flwr_studies.engine.llm_rows import NEEDS, asking_methods, missing, results
from dance_flwr_studies.protocols import ablation
from dance_flwr_studies.reports import paper_values as paper
from dance_flwr_studies.reports import significance
from dance_flwr_studies.reports.sections import (
    HIDDEN,
    HOW_BEYOND,
    Keys,
    accuracy,
    beside,
    mean_of,
    seeds_text,
)
from dance_flwr_studies.reports.significance import (
    METHOD,
    PairedTest,
    comparison_table,
    corrected,
    paired_test,
)
from dance_flwr_studies.reports.tables import (
    Group,
    at_largest_ratio,
    by_label,
    groups,
    paper_text,
    shared_settings,
)
from dance_flwr_studies.reports.trained_nodes import labelled_nodes
from dance_flwr_studies.reports.verdicts import Expected, expect, of_datasets

HOW = (
    "Accuracy is that of the global model of the best validation round on each client's "
    "uncondensed graph, over the test nodes of all clients, read once. Mean ± sample standard "
    "deviation over seeds; a seed decides partition, split, first model and training. r: condensed "
    "nodes over all nodes of a client."
)
LLM_HOW = (
    "A method that asks a language model has a number only where a model behind an endpoint "
    "answered."
)
HOW_COSTS = (
    "Labelled nodes that a client's loss is taken over in a round, and kilobytes that it sends, at "
    f"the largest r, means over clients and seeds. {HOW_BEYOND}"
)
HOW_TESTS = (
    "Holm's correction is over this table; a method without condensation is compared with its one "
    "row at every r."
)
# Why five (decision 30): every further comparison costs power. Those with the highest means on both
# data sets in earlier runs, controls aside, written down before a result of these runs was read.
RIVALS = ("fedavg-full", "fedgta", "fedtad", "fedsage", "llm4fgl-recombined")
HOW_FAMILY = f"Compared are the five rivals that were ahead in earlier runs: {', '.join(RIVALS)}."
WITHOUT_LABELS = "w/o labels"  # a variant of the ablation, with a row beside DANCE's
SHARED = (
    "clients",
    "partition",
    "rounds",
    "local-epochs",
    "split-mode",
    "backbone",
    "smoothing",
    "ema-decay",
)


def _cells(request: Request) -> list[Cell]:
    """Return the cells of every method; by default, also of DANCE without labels."""
    cells = every_ratio(request)
    # Methods that are named are those that are wanted.
    for dataset in () if request.methods else request.datasets:
        largest = max(_ratios(request, dataset))  # as in the ablation, which shares the runs
        settings = {"condensation-ratio": largest, **ablation.VARIANTS[WITHOUT_LABELS]}
        labels: dict[str, Label] = {"variant": WITHOUT_LABELS, "ratio": largest}
        cells += request.cells(dataset, METHOD, labels, settings)
    return cells


def every_ratio(request: Request) -> list[Cell]:
    """Return the cells of every method at every ratio."""
    return [
        cell
        for dataset in request.datasets
        for method in request.methods or default_methods()
        for cell in method_cells(request, dataset, method, _ratios(request, dataset))
    ]


def _ratios(request: Request, dataset: str) -> tuple[float, ...]:
    return request.ratios or paper.main_ratios(dataset_name(dataset))


def method_cells(
    request: Request, dataset: str, method: str, ratios: Sequence[float]
) -> list[Cell]:
    """Return one cell per seed, and per ratio if `condensation-ratio` applies to the method.

    Other experiments share these runs.
    """
    if not get_spec(method).card.by_ratio:
        # It keeps the default ratio: its run has one name.
        return request.cells(dataset, method, {"ratio": "full"})
    return [
        cell
        for ratio in ratios
        for cell in request.cells(dataset, method, {"ratio": ratio}, {"condensation-ratio": ratio})
    ]


def _render(rows: Sequence[Row]) -> Section:
    usable, refused = results(rows)
    methods = {str(row.labels["method"]) for row in usable}
    parts = [HOW]
    personal = [name for name in methods if get_spec(name).card.evaluation == "personalised"]
    if personal:
        names = ", ".join(sorted(personal))
        parts.append(f"Each client's own model is scored: {names}.")
    lacking = _lacking(rows)
    parts += [LLM_HOW] if lacking or refused or methods & {*asking_methods()} else []
    parts += [refused] if refused else []
    ordered = sorted(groups(usable, ablation.VARIANTS[WITHOUT_LABELS]), key=_place)
    by_dataset = by_label(ordered, "dataset")
    parts += [
        f"{seeds_text(ordered)} {shared_settings(usable, SHARED)}",
        _accuracies(by_dataset, lacking),
    ]
    tests = {dataset: _tests(compared) for dataset, compared in by_dataset.items()}
    if any(tests.values()):
        chosen = [HOW_FAMILY] if methods - {METHOD} > {*RIVALS} else []
        parts.append(" ".join([significance.HOW, HOW_TESTS, *chosen]))
        parts += [comparison_table(f"{name}: DANCE minus", part) for name, part in tests.items()]
    costs = {"labelled": mean_of(labelled_nodes, 1), "kB up": mean_of(_kilobytes_up, 1), **HIDDEN}
    largest = {dataset: at_largest_ratio(compared) for dataset, compared in by_dataset.items()}
    return Section((*parts, HOW_COSTS, beside(largest, _METHOD, costs)))


def _place(group: Group) -> tuple[int, str, float]:
    """Return the position of a line.

    Methods are in the order of the registry, each before its variant, larger cores first.
    """
    ratio = group.labels["ratio"]
    position = list(METHODS).index(str(group.labels["method"]))
    size = 0.0 if ratio == "full" else float(ratio)
    return position, str(group.labels.get("variant", "")), -size


def _name(group: Group) -> str:
    return f"{group.labels['method']} {group.labels.get('variant', '')}".strip()


def _lacking(rows: Sequence[Row]) -> list[str]:
    """Return the methods that lack a model to ask, of those that were wanted: by default, all."""
    wanted = {str(row.labels["method"]) for row in rows}
    wanted |= {*asking_methods()} if wanted >= {*default_methods()} else set()
    return [method for method in missing(results(rows)[0]) if method in wanted]


def _accuracies(by_dataset: Mapping[Any, Sequence[Group]], lacking: Sequence[str]) -> str:
    """Return the accuracies; methods that lack a model to ask have the paper's number alone."""
    lines = []
    for method in lacking:
        theirs = [paper.main_number(str(name), method, None) for name in by_dataset]
        if any(theirs):
            lines.append([method, "full", *(c for p in theirs for c in (NEEDS, paper_text(p)))])
    keys: Keys = {**_METHOD, "r": lambda group: str(group.labels["ratio"])}
    return beside(by_dataset, keys, {"accuracy %": accuracy, "paper %": _paper}, lines)


def _second_best(dataset: str, compared: Sequence[Group]) -> Iterator[Expected]:
    """Compare DANCE at each ratio with the second-best of the other methods."""
    ordered = sorted(compared, key=_place)
    for mine in (group for group in ordered if _name(group) == METHOD):
        ratio = mine.labels["ratio"]
        others = [
            (mean, group)
            for group in ordered
            if group.labels["method"] != METHOD and group.labels["ratio"] in (ratio, "full")
            if (mean := group.stat("test_accuracy").mean) is not None
        ]
        # Of two methods both are the best or the second-best.
        if len(others) < 2 or (own := mine.stat("test_accuracy").mean) is None:
            continue
        second = sorted(others, key=lambda pair: pair[0])[-2][1]
        rank = 1 + sum(mean > own for mean, _ in others)
        what = (
            f"DANCE at r = {ratio} on {dataset}, number {rank} of {len(others) + 1} methods "
            f"by the mean, minus {second.name(_name(second))}, the second-best of the others"
        )
        yield from expect(what, mine, second)


_METHOD: Keys = {"method": lambda group: group.name(_name(group))}


def _paper(group: Group, compared: Sequence[Group]) -> str:
    ratio = None if group.labels["ratio"] == "full" else float(group.labels["ratio"])
    return paper_text(paper.main_number(str(group.labels["dataset"]), _name(group), ratio))


def _tests(compared: Sequence[Group]) -> dict[tuple[str, str], PairedTest]:
    """Return DANCE against other methods at every ratio; the five alone if all ran, and more.

    Variants are not compared.
    """
    others = {str(group.labels["method"]) for group in compared} - {METHOD}
    others = {*RIVALS} if others > {*RIVALS} else others
    tests = {
        (other.name(str(other.labels["method"])), f"r = {group.labels['ratio']}"): paired_test(
            group, other
        )
        for group in compared
        if group.labels["method"] == METHOD and "variant" not in group.labels
        for other in compared
        if other.labels["method"] in others
        and other.labels["ratio"] in (group.labels["ratio"], "full")
    }
    # Over the whole table, as each of its cells is a chance to be wrong.
    return corrected(tests)


def _kilobytes_up(row: Row) -> float:
    return float(row.result["bytes_up"]) / 1000


EXPERIMENT = Experiment(
    title="Main table",
    question="DANCE has the best or second-best accuracy on every data set, also at small "
    "condensation ratios (the paper's main table).",
    cells=_cells,
    render=_render,
    by_ratio=True,
    verdict=lambda rows: of_datasets(_second_best)(results(rows)[0]),
)
