"""What an audit page says about one prediction, in sentences."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dance_flwr.dance.inference import DEPLOYED
from dance_flwr.evidence.leave_out import Effects
from dance_flwr.evidence.pack import FUSED, Packs
from dance_flwr.pages.node_choice import LOW_MARGIN

# Log-odds below which a text passage counts as without effect: 0.05 turns 50 % into 51 %.
NO_EFFECT = 0.05
_CLEAR_LEAD = 0.5  # then the second class has less than a quarter


def share(probability: float) -> str:
    """Return a probability in percent, never 0 or 100, of which no model can be sure.

    Examples
    --------
    >>> share(0.414), share(0.9991)
    ('41 %', 'over 99 %')
    """
    if probability < 0.005:
        return "under 1 %"
    return "over 99 %" if probability >= 0.995 else f"{100 * probability:.0f} %"


def signed(effect: float) -> str:
    """Return an effect with two digits and its sign, a minus as wide as the plus."""
    return f"{effect:+z.2f}".replace("-", "\u2212")


def answer(
    packs: Packs, effects: Effects, row: int, names: Sequence[str], label: int
) -> dict[str, Any]:
    """Return what the model says, how that compares with the label, warnings, and the control.

    Parameters
    ----------
    names : of the classes, safe to print; label : class of the node, -1 = unknown
    """
    best, rival = int(packs.predicted[row]), int(packs.rival[row])
    says = f"The model says {names[best]}, {share(packs.decisive[row, best])}"
    # With one class there is no second.
    if rival != best:
        lead = float(packs.decisive[row, best] - packs.decisive[row, rival])
        how = "barely " if lead < LOW_MARGIN else "" if lead < _CLEAR_LEAD else "far "
        says += f", {how}before {names[rival]}, {share(packs.decisive[row, rival])}"
    of_label = "No label is known."
    if label >= 0:
        of_label = "The label is the same." if label == best else f"The label is {names[label]}."
    return {
        "says": f"{says}.",
        "wrong": label >= 0 and label != best,
        "label": of_label,
        "warning": _warning(packs, effects, row, names),
        "control": _control(packs, effects, row),
    }


def _warning(packs: Packs, effects: Effects, row: int, names: Sequence[str]) -> str:
    """Return where the marked text points, if that is not to the predicted class; else ""."""
    best, rival = int(packs.predicted[row]), int(packs.rival[row])
    with_text = int(packs.probs[packs.stages.index(FUSED), row].argmax())
    reasons = []
    if effects.all_chunks[row] < -NO_EFFECT:  # False where it is not known
        reasons.append(f"it speaks for {names[rival]} and against {names[best]}")
    if with_text != best:
        reasons.append(f"the reading that uses it says {names[with_text]}")
    return f"The marked text points elsewhere: {'; '.join(reasons)}." if reasons else ""


def _control(packs: Packs, effects: Effects, row: int) -> str:
    if not packs.chunk_ptr[row + 1] - packs.chunk_ptr[row]:
        return "No text is marked, so none can be left out."
    if not effects.done[row]:
        return (
            "What the answer is without the marked text was not computed, for the time it takes; "
            "a page that names this node first with --nodes has it."
        )
    before, without, control = (
        float(of[row]) for of in (effects.before, effects.without, effects.control)
    )
    line = f"Without the marked text: {share(before)} → {share(without)}; "
    if packs.stages[-1] != DEPLOYED:
        line = f"Before smoothing and personal models, w{line[1:]}"
    if np.isnan(control):
        return f"{line}there is not as much other text to compare with."
    line += f"without as much other text: {share(before)} → {share(control)}."
    if abs(before - without) <= abs(before - control):
        line += " The marked text makes no more difference than other text."
    return line
