"""The paper's claim of 33.42 % fewer tokens: what it may mean, and a verdict for each rival."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from dance_flwr.llm.config import STUB
from dance_flwr.runs.token_ledgers import llm_tokens
from dance_flwr_studies.engine.cells import Row
from dance_flwr_studies.engine.llm_rows import asking_methods, back_end, stamp
from dance_flwr_studies.reports import verdicts
from dance_flwr_studies.reports.tables import NOTHING, Group, markdown
from dance_flwr_studies.reports.trained_nodes import (
    full_tokens_per_node,
    selected,
    tokens_of_a_refresh,
)

CLAIM = 0.3342  # of the paper's abstract; it has no table, figure, formula or list of baselines
SUMMARIES = "with summaries"  # label of DANCE's runs that summarise every core node
HOLDS, FAILS, NO_RUN = "holds", "fails", "no recorded run"
HOW_READINGS = (
    f"The paper claims {100 * CLAIM:.2f} % fewer tokens, at r = 0.08 and per condensed node, "
    "without a table, a formula or a list of baselines. Readings of it are at DANCE's largest r."
)
HOW_CLAIMS = (
    "The claim as it can be tested: DANCE's tokens of a language model, of runs that summarise "
    f"every core node, are at least {100 * CLAIM:.2f} % below those of the rival at equal or "
    "better mean accuracy over the same seeds, counted by one tokeniser."
)


@dataclass(frozen=True)
class Verdict:
    """The test of the claim against one rival.

    Attributes
    ----------
    seeds : that both have
    tokens, theirs : means over these seeds
    gain : mean difference of the accuracies, DANCE's minus the rival's
    counted_by : names of tokenisers
    """

    seeds: int
    tokens: float
    theirs: float
    gain: float
    counted_by: Sequence[str]

    @property
    def change(self) -> float:
        """DANCE's tokens over the rival's, minus 1."""
        return self.tokens / self.theirs - 1

    @property
    def text(self) -> str:
        """Return "holds", "fails" with the reason, or that the two cannot be compared."""
        # Counts of two tokenisers are in different units.
        if len(self.counted_by) != 1:
            return f"{NO_RUN} with one tokeniser"
        reasons = []
        if self.change > -CLAIM:
            reasons.append("too few tokens saved")
        if self.gain < 0:
            reasons.append("less accurate")
        return f"{FAILS}: {', '.join(reasons)}" if reasons else HOLDS


def judge(dance: Sequence[Row], rival: Sequence[Row]) -> Verdict | None:
    """Return the verdict over the seeds that both have; None without one."""
    mine, theirs = ({row.labels["seed"]: row for row in side} for side in (dance, rival))
    pairs = [(mine[seed], theirs[seed]) for seed in mine if seed in theirs]
    if not pairs:
        return None
    rows = [row for pair in pairs for row in pair]
    names = {name for row in rows for name in row.result["tokens"]["llm"].get("tokenisers", ())}
    return Verdict(
        len(pairs),
        fmean(llm_total(row) or 0.0 for row, _ in pairs),
        fmean(llm_total(row) or 0.0 for _, row in pairs),
        fmean(a.result["test_accuracy"] - b.result["test_accuracy"] for a, b in pairs),
        sorted(names),
    )


def llm_total(row: Row) -> float | None:
    """Return tokens of the language model, prompts and replies, fresh and cached; None for none."""
    return float(llm_tokens(row.result["tokens"])) or None


def usable(row: Row) -> bool:
    """Whether a row's tokens count: a model answered; a rival's only where the row is a result."""
    if not row.result or not llm_total(row):
        return False
    return back_end(row) != STUB if row.labels["method"] == "dance" else not stamp(row)


def claims(compared: Sequence[Group], beside: Sequence[Row]) -> list[str]:
    """Return the table of verdicts, and which rivals in the registry have none."""
    dance = _summarising(compared)
    headings = ["rival", "tokens of DANCE", "of the rival", "change %", "accuracy, points"]
    headings += ["seeds", "verdict"]
    lines, unrecorded = [], list[str]()
    for name in asking_methods():
        verdict = judge(dance, _rows_of(name, compared, beside))
        if verdict is None:
            unrecorded.append(name)
            continue
        numbers = [_number(verdict.tokens), _number(verdict.theirs), _percent(verdict.change)]
        lines.append(
            [name, *numbers, f"{100 * verdict.gain:+.2f}", str(verdict.seeds), verdict.text]
        )
    table = [markdown(headings, lines)] if lines else []
    return table + ([f"Rivals with {NO_RUN}: {', '.join(unrecorded)}."] if unrecorded else [])


def claim_verdict(parts: Mapping[str, tuple[Sequence[Group], Sequence[Row]]]) -> str:
    """Return in Markdown whether the claim holds against every rival that it can be tested with.

    Parameters
    ----------
    parts : by data set its groups, and the rows of other experiments beside them
    """
    known = {
        f"against {name} on {dataset}": found.text
        for dataset, (compared, beside) in parts.items()
        for name in asking_methods()
        if (found := judge(_summarising(compared), _rows_of(name, compared, beside)))
        and not found.text.startswith(NO_RUN)
    }
    if not known:
        return f"**{verdicts.UNTESTED}**: {NO_RUN} of a rival that asks a language model."
    word = verdicts.HOLDS if set(known.values()) == {HOLDS} else verdicts.FAILS
    return f"**{word}**: {'; '.join(f'{name} it {text}' for name, text in known.items())}."


def readings(compared: Sequence[Group], beside: Sequence[Row]) -> list[str]:
    """Return the readings of the claim, each a ratio of means; empty without DANCE's rows."""
    plain = [g for g in compared if g.labels["method"] == "dance" and "variant" not in g.labels]
    plain = [group for group in plain if any(row.result for row in group.rows)]
    if not plain:
        return []
    # The claim is of r = 0.08, the largest.
    group = max(plain, key=lambda group: float(group.labels["ratio"]))
    evidence = group.stat(partial(selected, "tokens")).mean
    refresh = group.stat(tokens_of_a_refresh).mean
    local = group.stat(lambda row: float(sum(row.result["encoder_tokens"]))).mean
    packs = [row.analysis["compactness"] for row in beside if "compactness" in row.analysis]
    pack = [fmean(counts[name] for counts in packs) if packs else None for name in _PACK]
    lines = [
        _reading(
            "evidence of a condensed node, against a node's own text",
            *(evidence, group.stat(full_tokens_per_node).mean),
        ),
        _reading("evidence of a test node, against its pool of hops 0 to 2", *pack),
        _reading("evidence of one refresh, against all local text", refresh, local),
    ]
    lines.append(["the paper's number", NOTHING, NOTHING, f"{-100 * CLAIM:+.2f}"])
    return [markdown(["reading", "tokens", "against", "change %"], lines)]


_PACK = ("tokens", "pool-tokens")


def _reading(what: str, tokens: float | None, against: float | None) -> list[str]:
    change = tokens / against - 1 if tokens is not None and against else None
    return [what, _number(tokens), _number(against), _percent(change)]


def _summarising(compared: Sequence[Group]) -> list[Row]:
    matches = [group for group in compared if group.labels.get("variant") == SUMMARIES]
    return [row for group in matches for row in group.rows if usable(row)]


def _rows_of(method: str, compared: Sequence[Group], beside: Sequence[Row]) -> list[Row]:
    rows = [row for group in compared for row in group.rows] + list(beside)
    return [row for row in rows if row.labels["method"] == method and usable(row)]


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.1f}"


def _percent(change: float | None) -> str:
    return NOTHING if change is None else f"{100 * change:+.1f}"
