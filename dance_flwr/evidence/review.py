"""`dance-flwr review`: how far reviewers of an audit page agree, and which cases to discuss."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dance_flwr.errors import UserError, counted
from dance_flwr.escaping import one_line

WORDS = ("agree", "disagree", "unsure")

# Digest of the evidence -> (node, what the model says, verdict, note).
Verdicts = Mapping[str, tuple[str, str, str, str]]


def merge(files: Sequence[Path], log: Callable[[str], None]) -> None:
    """Print agreement and kappa of reviewers, one file each, and the nodes where they differ."""
    if len(files) < 2:
        raise UserError(f"--merge: expected the verdicts of two reviewers, found {len(files)} file")
    reviews = {str(path): _read(path) for path in files}
    shared = [
        key for key in next(iter(reviews.values())) if all(key in of for of in reviews.values())
    ]
    counts = ", ".join(f"{name} {len(of):,}" for name, of in reviews.items())
    log(f"reviewers   {len(reviews)}: {counts}; {counted(len(shared), 'node')} by all of them")
    if shared:
        chosen = np.array([[WORDS.index(of[key][2]) for of in reviews.values()] for key in shared])
        agreement, name, kappa = agreement_of(chosen)
        value = "not defined, as all verdicts are the same" if np.isnan(kappa) else f"{kappa:.3f}"
        log(f"agreement   {agreement:.3f} of pairs of verdicts; {name} kappa {value}")
    every = {key: entry for of in reviews.values() for key, entry in of.items()}
    by_case = {key: {name: of[key] for name, of in reviews.items() if key in of} for key in every}
    differ = [k for k, case in by_case.items() if len({entry[2] for entry in case.values()}) > 1]
    log(f"discuss     {counted(len(differ), 'node')} with different verdicts")
    for key in differ:
        node, predicted, *_ = every[key]
        log(f"  {one_line(node)}, model says {one_line(predicted)}")
        for name, (_, _, verdict, note) in by_case[key].items():
            log(f"    {name}: {verdict}{f', {one_line(note)}' if note else ''}")


def agreement_of(chosen: NDArray[np.int64]) -> tuple[float, str, float]:
    """Return the share of equal pairs of verdicts, and Fleiss' or Cohen's kappa; NaN = not defined.

    Parameters
    ----------
    chosen : [n, k] positions in `WORDS` of the verdicts of k reviewers on the same n nodes

    Returns
    -------
    agreement; "Cohen's" for two reviewers, "Fleiss'" for more; kappa
    """
    reviewers = chosen.shape[1]
    name = "Cohen's" if reviewers == 2 else "Fleiss'"
    counts = np.stack([(chosen == word).sum(axis=1) for word in range(len(WORDS))], axis=1)
    pairs = (counts**2).sum(axis=1) - reviewers
    agreement = float(pairs.mean()) / (reviewers * (reviewers - 1))
    if len(np.unique(chosen)) == 1:
        return agreement, name, float("nan")
    # Both compare with chance agreement: of these two reviewers, or of all verdicts together.
    shares = np.stack([(chosen == word).mean(axis=0) for word in range(len(WORDS))])
    chance = shares.prod(axis=1) if reviewers == 2 else shares.mean(axis=1) ** 2
    return agreement, name, float((agreement - chance.sum()) / (1 - chance.sum()))


def _read(path: Path) -> Verdicts:
    try:
        content = json.loads(path.read_text("utf-8"))
        keys = ("node", "predicted", "verdict", "note")
        verdicts = {
            str(entry["pack_sha256"]): tuple(str(entry[key]) for key in keys)
            for entry in content["verdicts"]
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else repr(error)
        raise UserError(
            f"{path}: expected verdicts that an audit page exported, found {reason}; name the file "
            'that its button "Export as JSON" wrote'
        ) from error
    for *_, verdict, _ in verdicts.values():
        if verdict not in WORDS:
            raise UserError(f"{path}: expected one of {', '.join(WORDS)}, found {verdict!r}")
    return verdicts  # type: ignore[return-value]
