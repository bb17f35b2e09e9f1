"""Soft labels by the language model: the prompt, which calls there are, and their answers.

A prompt holds the names of the classes, the texts of up to five nodes of a community,
and those of up to five others of it, each with its class where it is a training node.
It never holds the class of a node that it asks for, nor of a validation or test node.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.llm.config import LlmConfig
from dance_flwr.llm.session import Session, open_session
from dance_flwr.llm.template import DATA_NOTE, Embed, Json, Message, Prompt, Template, as_data
from dance_flwr_rivals.llata import LlataConfig
from dance_flwr_rivals.llata.nodes import LocalNodes, class_sentence, local_nodes
from dance_flwr_rivals.llata.tree import communities_of

# The text that is judged gets more room than those beside it.
TARGET_TOKENS, MEMBER_TOKENS = 200, 80  # of a text, by the model's own count
_STUB_TEMPERATURE = 0.05
Count = Callable[[str], int]  # tokens of a text


def community_template(classes: Sequence[str], targets: int, limit: int) -> Template:
    """Return the template of a call for this number of nodes.

    Facts: `classes`, names; `targets`, texts; `members`, (text, name of its class or "") pairs.
    The reply maps "1", "2", .. to a per cent for each name of a class.

    Parameters
    ----------
    limit : maximum number of tokens of the reply
    """
    per_cent = {"type": "integer", "minimum": 0, "maximum": 100}
    one = _closed({name: per_cent for name in classes})
    schema = _closed({str(number + 1): one for number in range(targets)})
    return Template("llata-soft-labels", 1, schema, limit, _render, _stub)


def longest_reply(classes: Sequence[str], targets: int) -> str:
    """Return the longest reply among those in the usual layouts, for counting its tokens."""
    # Three digits for every class and the widest layout: a limit below it would cut replies off.
    one = dict.fromkeys(classes, 100)
    return json.dumps({str(number + 1): one for number in range(targets)}, indent=4)


def probabilities(value: Json, classes: Sequence[str], targets: int) -> NDArray[np.float64]:
    """Return the rows of a reply scaled to sum 1, rows of zeros unchanged; [targets, C] float64."""
    rows = np.array(
        [[value[str(number + 1)][name] for name in classes] for number in range(targets)],
        dtype=np.float64,
    )
    total: NDArray[np.float64] = rows.sum(1, keepdims=True)
    # A row of zeros stays: the caller uses its fallback for the node, instead of uniform labels.
    return rows / np.maximum(total, 1e-300)


def _closed(properties: Json) -> Json:
    return {
        "type": "object",
        # Closed: a reply must name every class and no other, so that rows have the same order.
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
            # Texts and names are data of strangers, hence quoted; only training nodes have a name.
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


class Question(NamedTuple):
    """One call of the language model, about [t] int64 nodes of one community."""

    targets: Tensor
    prompt: Prompt


def planned_calls(data: ClientData, config: RunConfig) -> tuple[int, int]:
    """Return the maximum number of calls and tokens of this client in a run.

    Tokens are those of the prompts under the model's tokeniser, and the limits of the replies.
    Calls that the cache will answer are included, and the caps of the run are not applied.
    """
    # The same tree and prompts as in the run, so that the announced numbers are an upper bound of
    # it.
    nodes = local_nodes(data)
    community = communities_of(nodes.pairs, nodes.size)
    model = open_session(data, config, "").model
    calls = tokens = 0
    for question in questions(nodes, community, config, model.count):
        calls += 1
        tokens += model.count(question.prompt.text) + question.prompt.template.limit
    return calls, tokens


def model_labels(
    nodes: LocalNodes, community: Tensor, config: RunConfig, session: Session, fallback: Tensor
) -> Tensor:
    """Return soft labels by the language model, [n, C] float64.

    A node has the fallback's label if a cap was reached, or if the reply was unusable or all zeros.
    """
    labels = fallback.clone()
    for question in questions(nodes, community, config, session.model.count):
        answer = session.ask(question.prompt)
        if answer is None:
            continue
        # A reply of zeros says nothing of its node, which then has the label of the fallback.
        rows = probabilities(answer, nodes.class_names, len(question.targets))
        labelled = torch.from_numpy(rows.sum(1) > 0)
        labels[question.targets[labelled]] = torch.from_numpy(rows)[labelled]
    return labels


def questions(
    nodes: LocalNodes, community: Tensor, config: RunConfig, count: Count
) -> Iterator[Question]:
    """Yield the calls for all nodes, community by community, in the order of the nodes.

    A call asks for at most half of a community, rounded up, so that it has members to show.
    """
    limit = max_targets(nodes.class_names, config, count)
    # Stable: nodes of a community in the order of their ids, so that prompts and cache keys repeat.
    order = torch.sort(community, stable=True).indices
    sizes = torch.bincount(community).tolist()

    # A text is shown in several prompts, and counting its tokens costs a call of the tokeniser.
    @cache
    def cut(node: int, limit: int) -> str:
        return beginning(nodes.texts[node], limit, count)

    for members in torch.split(order, sizes):
        # Half of a community at most, so that the other half can be shown.
        step = min(limit, -(-len(members) // 2))
        for targets in torch.split(members, max(step, 1)):
            if len(targets):
                yield _question(nodes, members, targets, config, cut, count)


def max_targets(classes: tuple[str, ...], config: RunConfig, count: Count) -> int:
    """Return the maximum number of nodes per call, at least 1, so that the longest prompt fits."""
    settings, context = LlataConfig.of(config), LlmConfig.of(config).context
    # The fixed part, and the longest members and targets; 8 tokens for marks and numbers around a
    # text.
    frame = community_template(classes, 0, 0).fill(classes=classes, targets=[], members=[("", "")])
    fixed = count(frame.text) + settings.members * (
        MEMBER_TOKENS + max((count(as_data(name)) for name in classes), default=0) + 8
    )
    # Fewer nodes per call rather than shorter texts where the context is small.
    for targets in range(settings.targets, 1, -1):
        room = fixed + targets * (TARGET_TOKENS + 8) + _reply_limit(classes, targets, count)
        if room <= context:
            return targets
    return 1


def _reply_limit(classes: tuple[str, ...], targets: int, count: Count) -> int:
    # Held to a schema, a small model spells spaces and digits one by one: half as many again.
    return 2 * count(longest_reply(classes, targets)) + 16


def _question(
    nodes: LocalNodes,
    members: Tensor,
    targets: Tensor,
    config: RunConfig,
    cut: Callable[[int, int], str],
    count: Count,
) -> Question:
    # What is asked for is never among the members, whose classes are shown.
    others = members[~torch.isin(members, targets)]
    closest = closest_members(nodes, targets, others, LlataConfig.of(config).members)
    names = {-1: "", **dict(enumerate(nodes.class_names))}
    limit = _reply_limit(nodes.class_names, len(targets), count)
    prompt = community_template(nodes.class_names, len(targets), limit).fill(
        classes=nodes.class_names,
        targets=[cut(node, TARGET_TOKENS) for node in targets.tolist()],
        members=[
            (cut(node, MEMBER_TOKENS), names[int(nodes.labels[node])]) for node in closest.tolist()
        ],
    )
    return Question(targets, prompt)


def closest_members(nodes: LocalNodes, targets: Tensor, others: Tensor, limit: int) -> Tensor:
    """Return the members whose texts are closest to the mean of the targets, at most `limit`.

    Half of them, rounded up, are training nodes if there are so many.
    """
    # Closest texts first; ties to the lower number.
    near = nodes.features[others] @ nodes.features[targets].mean(0)
    ranked = others[torch.sort(near, descending=True, stable=True).indices]
    labelled = nodes.labels[ranked] >= 0
    # Half of them with a class, if there are so many: the others show the community.
    first = ranked[labelled][: -(-limit // 2)]
    rest = ranked[~torch.isin(ranked, first)][: limit - len(first)]
    chosen = torch.cat([first, rest])
    return ranked[torch.isin(ranked, chosen)]


def beginning(text: str, limit: int, count: Count) -> str:
    """Return the longest beginning in whole words that has at most `limit` tokens, quoted."""
    words = text.split()
    low, high = 0, min(len(words), limit)  # a word has at least one token
    while low < high:
        middle = (low + high + 1) // 2
        # Counted as it is quoted: escaping may add tokens.
        if count(as_data(" ".join(words[:middle]))) <= limit:
            low = middle
        else:
            high = middle - 1
    return " ".join(words[:low])
