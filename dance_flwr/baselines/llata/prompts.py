"""The prompt of LLaTA: nodes of one community, whose classes the model judges together.

A prompt holds the names of the classes, the texts of up to five nodes of a community,
and those of up to five others of it, each with its class where it is a training node.
It never holds the class of a node that it asks for, nor of a validation or test node.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.baselines.llata.soft_labels import class_sentence
from dance_flwr.llm.quoting import DATA_NOTE, as_data
from dance_flwr.llm.template import Embed, Json, Message, Template

TARGET_TOKENS, MEMBER_TOKENS = 200, 80  # of a text, by the model's own count
_STUB_TEMPERATURE = 0.05


def community_template(classes: Sequence[str], targets: int, limit: int) -> Template:
    """Return the template of a call for this number of nodes.

    Facts: `classes`, names; `targets`, texts; `members`, (text, name of its class or "") pairs.
    The reply maps "1", "2", .. to a per cent for each name of a class.

    Parameters
    ----------
    limit : most tokens of the reply
    """
    per_cent = {"type": "integer", "minimum": 0, "maximum": 100}
    one = _closed({name: per_cent for name in classes})
    schema = _closed({str(number + 1): one for number in range(targets)})
    return Template("llata-soft-labels", 1, schema, limit, _render, _stub)


def longest_reply(classes: Sequence[str], targets: int) -> str:
    """Return the reply of most tokens among those in the usual layouts, to count them."""
    one = dict.fromkeys(classes, 100)
    return json.dumps({str(number + 1): one for number in range(targets)}, indent=4)


def probabilities(value: Json, classes: Sequence[str], targets: int) -> NDArray[np.float64]:
    """Return the rows of a reply, scaled to sum 1; [targets, C] float64, a row of zeros stays."""
    rows = np.array(
        [[value[str(number + 1)][name] for name in classes] for number in range(targets)],
        dtype=np.float64,
    )
    total: NDArray[np.float64] = rows.sum(1, keepdims=True)
    return rows / np.maximum(total, 1e-300)


def _closed(properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _render(facts: Mapping[str, Any]) -> list[Message]:
    classes = ", ".join(as_data(name) for name in facts["classes"])
    lines = [f"Classes: {classes}."]
    if facts["members"]:
        lines.append("Texts of the same community:")
        lines += [
            f"- {as_data(text)}" + (f" Class: {as_data(name)}." if name else "")
            for text, name in facts["members"]
        ]
    lines.append("Texts to judge:")
    lines += [f"{number}. {as_data(text)}" for number, text in enumerate(facts["targets"], start=1)]
    lines.append(
        "How probable is each class for each numbered text? Reply with a JSON object that maps "
        'each number ("1", ..) to an object with a whole number of per cent for every class; '
        "the per cent of a text sum to 100."
    )
    system = (
        "You classify texts that are linked to each other. Linked texts often share a class, but "
        f"the text itself decides. {DATA_NOTE}"
    )
    return [Message("system", system), Message("user", "\n".join(lines))]


def _stub(facts: Mapping[str, Any], embed: Embed) -> Json:
    """Reply with the softmax of the cosines of text and class name."""
    classes = facts["classes"]
    names = np.asarray(embed([class_sentence(name) for name in classes]), np.float64)
    score = np.asarray(embed(facts["targets"]), np.float64) @ names.T / _STUB_TEMPERATURE
    weight = np.exp(score - score.max(1, keepdims=True))
    shares = np.rint(100 * weight / weight.sum(1, keepdims=True)).astype(int).tolist()
    return {
        str(number): dict(zip(classes, row, strict=True))
        for number, row in enumerate(shares, start=1)
    }
