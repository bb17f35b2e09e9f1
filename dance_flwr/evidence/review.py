"""Verdicts of reviewers of an audit page: how far they agree, and the labels that follow."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from dance_flwr.errors import UserError, counted, reason_of
from dance_flwr.escaping import one_line

WORDS = ("right", "wrong", "cannot tell")
_FORMAT = 2


class Verdict(NamedTuple):
    """A reviewer's verdict on one prediction.

    Attributes
    ----------
    node, predicted : id of the node, and the class that the model says
    verdict : one of `WORDS`
    chosen : the class that is right in the reviewer's eyes; "" = not said
    note : in the reviewer's words
    """

    node: str
    predicted: str
    verdict: str
    chosen: str
    note: str

    @property
    def answer(self) -> str:
        """The class that the reviewer chose, else the verdict."""
        return self.chosen or self.verdict


def labels_of(files: Sequence[Path], log: Callable[[str], None]) -> dict[str, str]:
    """Return the class of every node that reviewers agree on; print how far they agree."""
    reviews: dict[str, Mapping[str, Verdict]] = {}
    for path in files:
        reviewer, read = _read(path)
        # Two files of one reviewer, or of nameless ones, are told apart by their names.
        reviews[reviewer if reviewer and reviewer not in reviews else str(path)] = read
    by_case: dict[str, dict[str, Verdict]] = {}
    for name, verdicts in reviews.items():
        for key, verdict in verdicts.items():
            by_case.setdefault(key, {})[name] = verdict
    if len(reviews) > 1:
        for line in _agreement(reviews, by_case):
            log(line)
    classes: dict[str, set[str]] = {}
    for case in by_case.values():
        for of in case.values():
            classes.setdefault(of.node, set()).add(of.chosen)
    agreed = {node: min(chosen) for node, chosen in classes.items() if len(chosen) == 1}
    labels = {node: name for node, name in agreed.items() if name}
    log(
        f"verdicts    on {counted(len(classes), 'node')}: {len(labels):,} with a class, "
        f"{len(agreed) - len(labels):,} without, {len(classes) - len(agreed):,} on which "
        "reviewers differ"
    )
    return labels


def _agreement(
    reviews: Mapping[str, Mapping[str, Verdict]], by_case: Mapping[str, Mapping[str, Verdict]]
) -> Iterator[str]:
    """Yield the agreement of reviewers, and the nodes with different verdicts."""
    shared = [case for case in by_case.values() if len(case) == len(reviews)]
    counts = ", ".join(f"{name} {len(of):,}" for name, of in reviews.items())
    yield f"reviewers   {len(reviews)}: {counts}; {counted(len(shared), 'node')} by all of them"
    if shared:
        pairs = [*combinations([[case[name].answer for case in shared] for name in reviews], 2)]
        same = mean(mean(map(str.__eq__, *pair)) for pair in pairs)
        kappa = "not defined, as all verdicts are the same"
        if len({answer for pair in pairs for answers in pair for answer in answers}) > 1:
            from sklearn.metrics import cohen_kappa_score

            kappa = f"{mean(float(cohen_kappa_score(*pair)) for pair in pairs):.3f}"
        yield f"agreement   {same:.3f} of pairs of verdicts; Cohen's kappa, mean of pairs: {kappa}"
    differ = [case for case in by_case.values() if len({of.answer for of in case.values()}) > 1]
    yield f"discuss     {counted(len(differ), 'node')} with different verdicts"
    for case in differ:
        one = next(iter(case.values()))
        yield f"  {one_line(one.node)}, model says {one_line(one.predicted)}"
        for name, of in case.items():
            which = f", it is {one_line(of.chosen)}" if of.verdict == "wrong" and of.chosen else ""
            note = f", {one_line(of.note)}" if of.note else ""
            yield f"    {one_line(name)}: {of.verdict}{which}{note}"


def _read(path: Path) -> tuple[str, dict[str, Verdict]]:
    """Return the reviewer's name, "" if there is none, and verdicts by digest of the evidence."""
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']!r}")
        keys = ("node", "predicted", "verdict", "class", "note")
        verdicts = {
            str(entry["pack_sha256"]): Verdict(*(str(entry[key]) for key in keys))
            for entry in content["verdicts"]
        }
        reviewer = str(content["reviewer"])
        "".join(of.node + of.chosen for of in verdicts.values()).encode()  # half a surrogate pair
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: expected verdicts that an audit page exported, found {reason_of(error)}; "
            'name the file that its button "Export as JSON" wrote'
        ) from error
    for of in verdicts.values():
        if of.verdict not in WORDS:
            raise UserError(
                f"{path}: verdict of {of.node!r}: expected one of {', '.join(WORDS)}, found "
                f"{of.verdict!r}; correct it"
            )
    return reviewer, verdicts
