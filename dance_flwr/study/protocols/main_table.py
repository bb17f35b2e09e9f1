"""The main table: accuracy of every method at each condensation ratio."""

from collections.abc import Sequence
from functools import partial
from statistics import mean

from dance_flwr.config.plugins import METHODS
from dance_flwr.methods import get_spec
from dance_flwr.study.engine.cells import (
    Cell,
    Experiment,
    Label,
    Request,
    Row,
    Section,
    dataset_name,
    default_methods,
)
from dance_flwr.study.engine.llm_rows import NEEDS, asking_methods, missing, results
from dance_flwr.study.protocols import ablation, paired
from dance_flwr.study.reports import paper_values as paper
from dance_flwr.study.reports.tables import (
    NOTHING,
    Group,
    by_label,
    difference,
    groups,
    markdown,
    paper_text,
    shared_settings,
)
from dance_flwr.study.reports.trained_nodes import (
    class_counts,
    labelled_nodes,
    nodes_trained_on,
    tokens_per_node,
)

HOW = (
    "Accuracy is that of the global model of the best validation round on each client's real, "
    "uncondensed local graph, correct test nodes over test nodes of all clients together (micro "
    "average); the test nodes are read once. Mean ± sample standard deviation over seeds; a seed "
    "decides partition, split, first model and training. r is the number of condensed nodes over "
    "all local nodes of a client; the paper gives no other definition. Methods that do not "
    "condense train on the full local graphs and have one row."
)
LLM_HOW = (
    "A method that asks a language model has a number only where a model behind an endpoint "
    "answered, and its tokens and the digest of its replies are in the row; otherwise its line "
    "has the paper's number alone. Its controls, which ask none, have rows as every method."
)
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
    """Return the cells of every method, and of DANCE without labels at the largest ratio."""
    cells = every_ratio(request)
    for dataset in request.datasets if paired.METHOD in _methods(request) else ():
        largest = (max(_ratios(request, dataset)),)  # as in the ablation, which shares the runs
        cells += method_cells(request, dataset, paired.METHOD, largest, variant=WITHOUT_LABELS)
    return cells


def every_ratio(request: Request) -> list[Cell]:
    """Return the cells of every method at every ratio."""
    return [
        cell
        for dataset in request.datasets
        for method in _methods(request)
        for cell in method_cells(request, dataset, method, _ratios(request, dataset))
    ]


def _methods(request: Request) -> tuple[str, ...]:
    return request.methods or default_methods()


def _ratios(request: Request, dataset: str) -> tuple[float, ...]:
    return request.ratios or paper.main_ratios(dataset_name(dataset))


def method_cells(
    request: Request,
    dataset: str,
    method: str,
    ratios: Sequence[float],
    curve: bool = False,
    variant: str = "",
) -> list[Cell]:
    """Return one cell per seed, and per ratio if `condensation-ratio` applies to the method.

    Other experiments share these runs.

    Parameters
    ----------
    curve : keep the validation accuracy of every round in exported rows
    variant : name in `ablation.VARIANTS`, also a label; empty = the method as it is
    """
    own = ablation.VARIANTS[variant] if variant else {}
    cells = []
    for ratio in ratios if get_spec(method).card.by_ratio else ("full",):
        # A method without a ratio keeps the default ratio: its run has one name.
        settings = dict(own) if ratio == "full" else {"condensation-ratio": ratio, **own}
        for seed in request.seeds:
            labels: dict[str, Label] = {"dataset": dataset_name(dataset), "method": method}
            labels |= {"variant": variant} if variant else {}
            labels |= {"ratio": ratio, "seed": seed}
            config = request.config(dataset, method, seed, settings)
            cells.append(Cell(labels, config, curve=curve))
    return cells


def _render(asked: Sequence[Row]) -> Section:
    rows, refused = results(asked)
    methods = {str(row.labels["method"]) for row in rows}
    personalised = ", ".join(sorted(name for name in methods if _personalised(name)))
    parts = [HOW]
    if personalised:
        parts.append(f"Personalised, so that each client's own model is scored: {personalised}.")
    rotating = ", ".join(sorted(name for name in methods if get_spec(name).card.rotates))
    if rotating:
        parts.append(
            "On the full local graphs, with labelled nodes that change in every round and whose "
            f"number follows r: {rotating}."
        )
    if any("variant" in row.labels for row in rows):
        parts.append(
            f"{paired.METHOD} {WITHOUT_LABELS}: training labels enter the loss alone, not the "
            "prediction, as in the ablation."
        )
    if asking_methods():
        parts.append(LLM_HOW)
    parts += [refused] if refused else []
    found = sorted(groups(rows, ablation.VARIANTS[WITHOUT_LABELS]), key=_place)
    for dataset, compared in by_label(found, "dataset").items():
        shared = shared_settings([row for group in compared for row in group.rows], SHARED)
        parts += [f"**{dataset}** ({shared})", _accuracies(str(dataset), compared)]
        tests = paired.comparisons(compared)
        parts += [paired.HOW, tests] if tests else []
        parts.append(_costs(compared))
        parts += _pairs(compared)
    seconds = [row.result["seconds_total"] for row in rows if row.result]
    parts.append(
        f"{len(seconds)} of {len(rows)} runs are done, {sum(seconds):,.0f} s in all, "
        "each on one core."
    )
    return Section(tuple(parts))


def _place(group: Group) -> tuple[int, str, float]:
    """Return the position of a line.

    Methods are in the order of the registry, each before its variant, larger cores first.
    """
    ratio = group.labels["ratio"]
    position = list(METHODS).index(str(group.labels["method"]))
    size = 0.0 if ratio == "full" else float(ratio)
    return position, str(group.labels.get("variant", "")), -size


def _name(group: Group) -> str:
    """Return the method, with its variant."""
    return f"{group.labels['method']} {group.labels.get('variant', '')}".strip()


def _personalised(method: str) -> bool:
    return get_spec(method).card.evaluation == "personalised"


def _accuracies(dataset: str, compared: Sequence[Group]) -> str:
    headings = ["method", "r", "accuracy %", "seeds", "paper %", "difference"]
    headings += ["macro-F1 %", "validation %"]
    lines: list[tuple[tuple[int, str, float], list[str]]] = []
    for group in compared:
        name, ratio = _name(group), group.labels["ratio"]
        theirs = paper.main_number(dataset, name, None if ratio == "full" else float(ratio))
        ours = group.stat("test_accuracy")
        line = [group.name(name), f"{ratio}", ours.percent, ours.seeds, paper_text(theirs)]
        line += [difference(ours, theirs), group.stat("test_macro_f1").percent]
        lines.append((_place(group), [*line, group.stat("val_accuracy").percent]))
    for method in missing(row for group in compared for row in group.rows):
        theirs = paper.main_number(dataset, method, None)
        place = list(METHODS).index(method), "", 0.0
        lines.append((place, [method, "full", NEEDS, NOTHING, paper_text(theirs), *[NOTHING] * 3]))
    return markdown(headings, [line for _, line in sorted(lines, key=lambda pair: pair[0])])


def _costs(compared: Sequence[Group]) -> str:
    """Return what each method trains on, what it costs and what leaves the client."""
    headings = ["method", "r", "trained on", "K per client", "K per client and class"]
    headings += ["labelled nodes per round", "tokens per node trained on"]
    headings += ["kB up per client and round", "leaves the client"]
    lines = []
    for group in compared:
        card = get_spec(str(group.labels["method"])).card
        line = [group.name(_name(group)), f"{group.labels['ratio']}", card.trains_on]
        line += [group.mean_text(nodes_trained_on, 1), _per_class(group)]
        line += [group.mean_text(metric, 1) for metric in (labelled_nodes, tokens_per_node)]
        lines.append([*line, group.mean_text(_kilobytes_up, 1), card.leaves_client])
    return markdown(headings, lines)


def _pairs(compared: Sequence[Group]) -> list[str]:
    """Return a sentence on each method that averages similar clients alone."""
    sentences = []
    for group in compared:
        asked, accepted = (group.stat(partial(_count, f"pairs-{end}")) for end in _PAIRS)
        if asked.mean and accepted.mean is not None:
            sentences.append(
                f"{group.labels['method']} takes {accepted.text(1)} of {asked.mean:g} ordered "
                "pairs of clients as similar, mean of the rounds."
            )
    return sentences


_PAIRS = ("asked", "accepted")


def _count(name: str, row: Row) -> float | None:
    """Return a count of the server, mean of the rounds; None where the method has none."""
    value = row.result.get("counts_per_round", {}).get(name)
    return None if value is None else float(value)


def _kilobytes_up(row: Row) -> float:
    return float(row.result["bytes_up"]) / 1000


def _per_class(group: Group) -> str:
    """Return mean nodes per class over clients and seeds, in the data set's order of classes."""
    card = get_spec(str(group.labels["method"])).card
    clients = [client for row in group.rows if row.result for client in class_counts(row)]
    if not clients:
        return NOTHING
    names = dict.fromkeys(name for client in clients for name in client if name)
    means = " / ".join(f"{mean(client.get(name, 0) for client in clients):.1f}" for name in names)
    if card.condenses:
        return means
    return f"{'drawn from' if card.rotates else 'all labelled'}: {means}"


EXPERIMENT = Experiment(
    name="main-table",
    title="Main table",
    question="DANCE has the best or second-best accuracy on every data set, also at small "
    "condensation ratios (the paper's main table).",
    cells=_cells,
    render=_render,
    by_ratio=True,
)
