"""`dance-flwr review`: how far reviewers of an audit page agree, and which cases to discuss."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dance_flwr.errors import UserError, counted
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
        """The class that is right, where it was said, else the verdict."""
        return self.chosen or self.verdict


Verdicts = Mapping[str, Verdict]  # by the digest of the evidence


def merge(files: Sequence[Path], log: Callable[[str], None]) -> None:
    """Print agreement and kappa of reviewers, one file each, and the nodes where they differ."""
    if len(files) < 2:
        raise UserError(f"--merge: expected the verdicts of two reviewers, found {len(files)} file")
    reviews: dict[str, Verdicts] = {}
    for path in files:
        reviewer, verdicts = _read(path)
        # Two files of one reviewer, or of nameless ones, are told apart by their names.
        name = reviewer if reviewer and reviewer not in reviews else str(path)
        reviews[name] = verdicts
    shared = [
        key for key in next(iter(reviews.values())) if all(key in of for of in reviews.values())
    ]
    counts = ", ".join(f"{name} {len(of):,}" for name, of in reviews.items())
    log(f"reviewers   {len(reviews)}: {counts}; {counted(len(shared), 'node')} by all of them")
    if shared:
        answers = np.array([[of[key].answer for of in reviews.values()] for key in shared])
        chosen = np.unique(answers, return_inverse=True)[1].reshape(answers.shape)
        agreement, name, kappa = agreement_of(chosen)
        value = "not defined, as all verdicts are the same" if np.isnan(kappa) else f"{kappa:.3f}"
        log(f"agreement   {agreement:.3f} of pairs of verdicts; {name} kappa {value}")
    every = {key: entry for of in reviews.values() for key, entry in of.items()}
    by_case = {key: {name: of[key] for name, of in reviews.items() if key in of} for key in every}
    differ = [
        k for k, case in by_case.items() if len({entry.answer for entry in case.values()}) > 1
    ]
    log(f"discuss     {counted(len(differ), 'node')} with different verdicts")
    for key in differ:
        log(f"  {one_line(every[key].node)}, model says {one_line(every[key].predicted)}")
        for name, of in by_case[key].items():
            which = f", it is {one_line(of.chosen)}" if of.verdict == "wrong" and of.chosen else ""
            note = f", {one_line(of.note)}" if of.note else ""
            log(f"    {one_line(name)}: {of.verdict}{which}{note}")


def labels_of(files: Sequence[Path], log: Callable[[str], None]) -> dict[str, str]:
    """Return the class of every node that reviewers agree on, and print how many have none."""
    classes: dict[str, set[str]] = {}
    for path in files:
        for of in _read(path)[1].values():
            classes.setdefault(of.node, set()).add(of.chosen)
    agreed = {node: min(chosen) for node, chosen in classes.items() if len(chosen) == 1}
    labels = {node: name for node, name in agreed.items() if name}
    log(
        f"verdicts    on {counted(len(classes), 'node')}: {len(labels):,} with a class, "
        f"{len(agreed) - len(labels):,} without, {len(classes) - len(agreed):,} on which "
        "reviewers differ"
    )
    return labels


def agreement_of(chosen: NDArray[np.int64]) -> tuple[float, str, float]:
    """Return the share of equal pairs of verdicts, and Fleiss' or Cohen's kappa; NaN = not defined.

    Parameters
    ----------
    chosen : [n, k] numbers, from 0, of the answers of k reviewers on the same n nodes

    Returns
    -------
    agreement; "Cohen's" for two reviewers, "Fleiss'" for more; kappa
    """
    reviewers, words = chosen.shape[1], int(chosen.max()) + 1
    name = "Cohen's" if reviewers == 2 else "Fleiss'"
    counts = np.stack([(chosen == word).sum(axis=1) for word in range(words)], axis=1)
    pairs = (counts**2).sum(axis=1) - reviewers
    agreement = float(pairs.mean()) / (reviewers * (reviewers - 1))
    if len(np.unique(chosen)) == 1:
        return agreement, name, float("nan")
    # Both compare with chance agreement: of these two reviewers, or of all verdicts together.
    shares = np.stack([(chosen == word).mean(axis=0) for word in range(words)])
    chance = shares.prod(axis=1) if reviewers == 2 else shares.mean(axis=1) ** 2
    return agreement, name, float((agreement - chance.sum()) / (1 - chance.sum()))


def _read(path: Path) -> tuple[str, Verdicts]:
    """Return the reviewer's name, "" if there is none, and the verdicts."""
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
        reason = error.strerror if isinstance(error, OSError) else repr(error)
        raise UserError(
            f"{path}: expected verdicts that an audit page exported, found {reason}; name the file "
            'that its button "Export as JSON" wrote'
        ) from error
    for of in verdicts.values():
        if of.verdict not in WORDS:
            raise UserError(f"{path}: expected one of {', '.join(WORDS)}, found {of.verdict!r}")
    return reviewer, verdicts
