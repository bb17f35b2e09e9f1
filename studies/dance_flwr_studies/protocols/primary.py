"""The primary comparisons: six questions, fixed before their runs, and what stands around them.

Each question is one number per seed, the mean of a difference over its cells, and one test; Holm's
correction is over the six. Everything else on the page is descriptive: means, intervals and counts
of signs, without a verdict.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from scipy.stats import t as student

from dance_flwr.config.options import Value
from dance_flwr.dance.config import COVERAGE, LABEL_AWARE, RANDOM_LABELLED
from dance_flwr_studies.engine.cells import (
    Cell,
    Experiment,
    Label,
    Request,
    Row,
    Section,
    dataset_name,
)
from dance_flwr_studies.protocols.variants import BY_SITE, RATIO
from dance_flwr_studies.reports.sections import HOW_BEYOND, beyond
from dance_flwr_studies.reports.significance import (
    LEVEL,
    PairedTest,
    corrected,
    corrected_test,
    paired_test,
    split_ratio,
)
from dance_flwr_studies.reports.tables import NOTHING, Group, groups, markdown, stat_of

CLEAN, TEXT, EDGES = "clean", "75 % foreign text", "100 % random edges"
SKEW, LABELS = "Dirichlet 0.1", "5 labels per class"
REGIMES: Mapping[str, Mapping[str, Value]] = {
    CLEAN: {},
    TEXT: {"foreign-text-ratio": 0.75},
    EDGES: {"random-edge-ratio": 1.0},
    SKEW: {"partition": "label-dirichlet", "dirichlet-alpha": 0.1},
    LABELS: {"labels-per-class": 5},
}
DANCE, FULL, READS, ALONE = "DANCE", "FedAvg", "FedAvg that reads as DANCE", "training alone"
RANDOM, PERSONAL = "DANCE, random labelled core", "DANCE, personal = auto"
ONCE = "a core of 2 % chosen once: "
COVER, SCORE, DRAWN = (ONCE + rule for rule in (COVERAGE, LABEL_AWARE, RANDOM_LABELLED))
_ONCE: Mapping[str, Value] = {"dance.core-refresh-every": 0, "condensation-ratio": 0.02}
# What is trained -> (method, settings).
VARIANTS: Mapping[str, tuple[str, Mapping[str, Value]]] = {
    FULL: ("fedavg-full", {}),
    READS: (
        "fedavg-full",
        {"text-pooling": "probe", "edge-gates": "probe", "class-prior": "labels"},
    ),
    DANCE: ("dance", RATIO),
    # The control changes the rule of the core alone: labelled nodes, quotas and floor are DANCE's.
    RANDOM: ("dance", {**RATIO, "dance.core-rule": RANDOM_LABELLED}),
    ALONE: ("local-only", {}),
    PERSONAL: ("dance", {**RATIO, "personal": "auto"}),
    COVER: ("dance", {**_ONCE, "dance.core-rule": COVERAGE}),
    SCORE: ("dance", {**_ONCE, "dance.core-rule": LABEL_AWARE}),
    DRAWN: ("dance", {**_ONCE, "dance.core-rule": RANDOM_LABELLED}),
}
SEEDS = tuple(range(5, 25))
_TEN, _FIVE = SEEDS[:10], SEEDS[:5]
Plan = Mapping[str, tuple[tuple[Sequence[int], tuple[str, ...]], ...]]
# Regime -> (seeds, variants): all seeds where a question is asked, fewer where rows describe.
GRAPHS: Plan = {
    CLEAN: ((SEEDS, (DANCE, COVER, DRAWN)), (_TEN, (FULL, READS, RANDOM, ALONE, SCORE))),
    TEXT: ((SEEDS, (FULL, READS, DANCE, ALONE, PERSONAL)),),
    EDGES: ((SEEDS, (FULL, READS, DANCE)),),
    SKEW: ((_FIVE, (FULL, READS, DANCE)),),
    LABELS: ((_TEN, (FULL, READS, DANCE, RANDOM)),),
}
SITES: Plan = {
    CLEAN: ((_TEN, (DANCE, RANDOM, ALONE)), (_FIVE, (FULL, READS))),
    TEXT: ((_FIVE, (FULL, READS, DANCE, ALONE)),),
    EDGES: ((_FIVE, (FULL, READS, DANCE)),),
}


@dataclass(frozen=True)
class Question:
    """One primary comparison: the mean over its cells of metric(of) - metric(to), seed by seed.

    Attributes
    ----------
    to : the other side; of several, the one with the higher mean in each cell
    cells : (data set, regime)
    """

    text: str
    of: str
    to: tuple[str, ...]
    cells: tuple[tuple[str, str], ...]
    metric: str = "test_accuracy"


def _both(*regimes: str) -> tuple[tuple[str, str], ...]:
    return tuple((data, regime) for regime in regimes for data in ("cora", "citeseer"))


# Fixed before a result of these runs was read.
QUESTIONS = (
    Question(
        "(a) in a core of 2 % that is chosen once, coverage against random labelled nodes",
        COVER,
        (DRAWN,),
        _both(CLEAN),
    ),
    Question("(b) DANCE against FedAvg, 75 % foreign text", DANCE, (FULL,), _both(TEXT)),
    Question("(c) DANCE against FedAvg, random edges", DANCE, (FULL,), _both(EDGES)),
    Question(
        "(d) DANCE against FedAvg that reads as DANCE does, in both",
        DANCE,
        (READS,),
        _both(TEXT, EDGES),
    ),
    Question(
        "(e) the worst client of personal = auto against the better of alone and global, 75 % "
        "foreign text",
        PERSONAL,
        (DANCE, ALONE),
        _both(TEXT),
        "test_worst_client",
    ),
    Question(
        "(f) macro-F1 of DANCE against training alone, Debian's teams",
        DANCE,
        (ALONE,),
        (("debian", CLEAN),),
        "test_macro_f1",
    ),
)
_POWER = 0.8
HOW = (
    "Differences in points, paired by seed: each question is one number per seed, the mean over "
    "its cells. Brackets: 95 % interval of the paired t-test with the variance correction of "
    "Nadeau and Bengio (2003) for repeated random splits; p after Holm's correction over the six. "
    f"*shows*: the difference that such a test finds with {_POWER:.0%} power at Holm's strictest "
    "step, by the spread of these seeds. The six were fixed before their runs."
)
HOW_REST = (
    "Descriptive, without verdicts: DANCE minus the other, with the interval of the same test, "
    "not corrected for their number, and the seeds in which DANCE is ahead. Each control changes "
    "one thing of DANCE."
)


def _cells(request: Request) -> list[Cell]:
    return [cell for dataset in request.datasets for cell in _cells_of(request, dataset)]


def _cells_of(request: Request, dataset: str) -> Iterator[Cell]:
    name = dataset_name(dataset)
    for regime, parts in (SITES if name in BY_SITE else GRAPHS).items():
        for seeds, variant in ((seeds, name) for seeds, names in parts for name in names):
            method, settings = VARIANTS[variant]
            values = {**BY_SITE.get(name, {}), **REGIMES[regime], **settings}
            asked = replace(request, seeds=tuple(seed for seed in seeds if seed in request.seeds))
            yield from asked.cells(dataset, method, {"regime": regime, "variant": variant}, values)


Place = tuple[str, str]  # (data set, regime)


def _places(rows: Sequence[Row]) -> dict[Place, dict[str, Group]]:
    """Return the groups by place and variant."""
    places: dict[Place, dict[str, Group]] = {}
    for group in groups(rows):
        place = str(group.labels["dataset"]), str(group.labels["regime"])
        places.setdefault(place, {})[str(group.labels["variant"])] = group
    return places


def _differences(question: Question, places: Mapping[Place, Mapping[str, Group]]) -> list[float]:
    """Return the mean difference over the cells, of each seed that has all of them."""
    by_cell: list[dict[Label, float]] = []
    for place in question.cells:
        found = places.get(place, {})
        others = [found[name].by_seed(question.metric) for name in question.to if name in found]
        if question.of not in found or len(others) < len(question.to):
            return []
        other = max(others, key=lambda scores: fmean(scores.values()) if scores else 0.0)
        mine = found[question.of].by_seed(question.metric)
        by_cell.append({seed: mine[seed] - other[seed] for seed in mine.keys() & other.keys()})
    common = sorted(set.intersection(*map(set, by_cell)), key=int)
    return [fmean(cell[seed] for cell in by_cell) for seed in common]


def shown(differences: Sequence[float], ratio: float, tests: int = len(QUESTIONS)) -> float:
    """Return the mean difference that a corrected test finds with 80 % power.

    delta = (t_{1 - a/2m} + t_{0.8}) sqrt((1/n + n_test/n_train) var(d)) with n - 1 degrees of
    freedom, m tests and level a.

    Parameters
    ----------
    ratio : n_test / n_train
    """
    n = len(differences)
    error = (1 / n + ratio) ** 0.5 * stdev(differences)
    steps = student.ppf([1 - LEVEL / (2 * tests), _POWER], n - 1)
    return float(error * steps.sum())


def _questions(places: Mapping[Place, Mapping[str, Group]]) -> str:
    tests: dict[str, PairedTest] = {}
    ends: dict[str, list[str]] = {}
    for question in QUESTIONS:
        if values := _differences(question, places):
            ratio = split_ratio(places[question.cells[0]][question.of])
            if found := corrected_test(values, ratio):
                tests[question.text] = PairedTest(stat_of(values, len(values)), found)
                ends[question.text] = [_signs(values), f"{100 * shown(values, ratio):.2f}"]
    lines = []
    for text, test in corrected(tests).items():
        signs, least = ends[text]
        p = f"{test.p_holm:.3f}" if (test.p_holm or 0.0) >= 0.001 else "< 0.001"
        word = test.verdict.replace("equivalent", "equivalent within 1 point") or "not shown"
        lines.append([text, test.interval_text, signs, p, least, word])
    return markdown(["question", "difference", "seeds above 0", "p", "shows", ""], lines)


def _signs(values: Sequence[float]) -> str:
    return f"{sum(value > 0 for value in values)} of {len(values)}"


def _render(rows: Sequence[Row]) -> Section:
    places = _places(rows)
    parts = [HOW, _questions(places), HOW_REST]
    for dataset in dict.fromkeys(dataset for dataset, _ in places):
        mine = {regime: found for (data, regime), found in places.items() if data == dataset}
        variants = dict.fromkeys(name for found in mine.values() for name in found)
        for heading, cell in (
            (f"{dataset}, accuracy %", _accuracy),
            (f"{dataset}, DANCE minus", _descriptive),
            (f"{dataset}, macro-F1/balanced/worst client/calibration error", _beyond),
        ):
            lines = [[name, *(cell(found, name) for found in mine.values())] for name in variants]
            parts.append(markdown([heading, *mine], lines))
    return Section((*parts, HOW_BEYOND), summary=f"{_questions(places)}\n\n{HOW}")


def _accuracy(found: Mapping[str, Group], variant: str) -> str:
    return found[variant].stat("test_accuracy").percent if variant in found else NOTHING


def _beyond(found: Mapping[str, Group], variant: str) -> str:
    return beyond(found[variant]) if variant in found else NOTHING


def _descriptive(found: Mapping[str, Group], variant: str) -> str:
    # Cores that are chosen once are compared with one another.
    mine = found.get(COVER if variant in (SCORE, DRAWN) else DANCE)
    other = found.get(variant)
    if mine is None or other is None or mine is other or variant == COVER:
        return NOTHING
    theirs = other.by_seed("test_accuracy")
    values = [v - theirs[s] for s, v in mine.by_seed("test_accuracy").items() if s in theirs]
    return f"{paired_test(mine, other).interval_text} {_signs(values)}" if values else NOTHING


EXPERIMENT = Experiment(
    title="Primary comparisons",
    question="What the core, the reading and personal models are worth: not a claim of the paper.",
    cells=_cells,
    render=_render,
    datasets=("cora", "citeseer", *BY_SITE),
    seeds=SEEDS,
)
