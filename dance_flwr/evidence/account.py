"""Account of an answer: steps from the class sizes to the log-odds of the answer, which add up."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dance_flwr.dance.inference import DEPLOYED
from dance_flwr.evidence.pack import PARTS, PERSONAL, SMOOTHED, Packs
from dance_flwr.nn.calibration import MIN_PROB

# Kinds of steps beside the stages of `_LATER`, in their order.
START, TEXT, LABELS, GRAPH = "start", "text", "labels", "graph"
_LATER = (DEPLOYED, SMOOTHED, PERSONAL)


class Step(NamedTuple):
    """One step of an account.

    Attributes
    ----------
    kind : "start" = before anything is read; "text" = the text of `node`, marked passages and the
        whole; "labels" = training labels of neighbours; "graph" = all texts around the node, none
        marked; or the stage whose probabilities this step leads to
    node : local number of the node whose text was read; -1 in other steps
    logits : [C] float64 what the step adds to each class; only differences of classes count
    """

    kind: str
    node: int
    logits: NDArray[np.float64]


def account(packs: Packs, row: int) -> list[Step]:
    """Return steps whose sum over classes a, b is log p(a) - log p(b) of the last stage.

    The steps up to "graph" are the summands of the stage "fused", exact (`FusedLogits`). What later
    stages change is one step each, in the order of their computation; a temperature divides all.
    """
    near, spans = packs.neighbours_of(row), packs.chunks_of(row)
    parts = dict(zip(PARTS, packs.parts[row].astype(np.float64), strict=True))
    nodes, chunk_nodes = packs.neighbours[near], packs.chunk_nodes[spans]
    steps = [Step(START, -1, parts["constant"] + parts["prior"])]
    for node, whole in zip(nodes, packs.neighbour_text_logits[near], strict=True):
        of_node = packs.chunk_logits[spans][chunk_nodes == node]
        steps.append(Step(TEXT, int(node), whole + of_node.sum(axis=0, dtype=np.float64)))
    steps += [Step(LABELS, -1, parts["labels"]), Step(GRAPH, -1, parts["graph"])]
    # The parts are kept in float32: what they miss of the text is in no other step.
    reached = sum((step.logits for step in steps), np.zeros(packs.probs.shape[2]))
    logs = {
        stage: np.log(np.maximum(packs.probs[at, row].astype(np.float64), MIN_PROB))
        for at, stage in enumerate(packs.stages)
    }
    last = [stage for stage in _LATER if stage in logs][-1:]
    for stage in last:
        logs[stage] = logs[stage] * packs.temperature
    for stage in _LATER:
        if stage in logs:
            steps.append(Step(stage, -1, logs[stage] - reached))
            reached = logs[stage]
    return [step._replace(logits=step.logits / packs.temperature) for step in steps]


def log_odds(steps: list[Step], first: int, second: int) -> list[float]:
    """Return what each step adds to log p(first) - log p(second).

    Examples
    --------
    >>> steps = [Step(START, -1, np.array([0.5, 0.0])), Step(GRAPH, -1, np.array([1.0, 2.0]))]
    >>> log_odds(steps, 0, 1)
    [0.5, -1.0]
    """
    return [float(step.logits[first] - step.logits[second]) for step in steps]
