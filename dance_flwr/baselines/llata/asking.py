"""Soft labels by the language model: which calls there are, what they cost, and their answers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dance_flwr.baselines.llata.config import LlataConfig
from dance_flwr.baselines.llata.local_nodes import LocalNodes, local_nodes
from dance_flwr.baselines.llata.prompts import (
    MEMBER_TOKENS,
    TARGET_TOKENS,
    community_template,
    longest_reply,
    probabilities,
)
from dance_flwr.baselines.llata.tree import Tree, community_tree
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.llm.config import LlmConfig
from dance_flwr.llm.factory import open_session
from dance_flwr.llm.quoting import as_data
from dance_flwr.llm.session import Session
from dance_flwr.llm.template import Prompt

Count = Callable[[str], int]  # tokens of a text


@dataclass(frozen=True)
class Question:
    """One call.

    Attributes
    ----------
    targets : [t] int64, nodes that it asks for, of one community
    prompt : what is asked
    """

    targets: Tensor
    prompt: Prompt


def planned_calls(data: ClientData, config: RunConfig) -> tuple[int, int]:
    """Return (calls, tokens) of this client in a run, at most, before any is spent.

    Tokens are those of the prompts by the model's own count, and the limits of the replies; what
    the cache answers is among them. `llm.max-calls` and `llm.max-tokens` bound both further.

    Raises
    ------
    UserError : the client has no language model
    """
    nodes = local_nodes(data)
    tree = community_tree(nodes.pairs, nodes.size, LlataConfig.of(config).height)
    model = open_session(data, config, "").model
    calls = tokens = 0
    for question in questions(nodes, tree, config, model.count):
        calls += 1
        tokens += model.count(question.prompt.text) + question.prompt.template.limit
    return calls, tokens


def asked_labels(
    nodes: LocalNodes, tree: Tree, config: RunConfig, session: Session, fallback: Tensor
) -> tuple[Tensor, int]:
    """Return soft labels by the language model, and how many nodes have those of `fallback`.

    A node has them where the cap was reached, or the reply was unusable or gave it no probability.

    Parameters
    ----------
    session : open
    fallback : [n, C] float64

    Returns
    -------
    [n, C] float64 and a count
    """
    labels, answered = fallback.clone(), torch.zeros(nodes.size, dtype=torch.bool)
    for question in questions(nodes, tree, config, session.model.count):
        answer = session.ask(question.prompt)
        if answer is None:
            continue
        rows = probabilities(answer.value, nodes.class_names, len(question.targets))
        given = torch.from_numpy(rows.sum(1) > 0)
        labels[question.targets[given]] = torch.from_numpy(rows)[given]
        answered[question.targets[given]] = True
    return labels, int((~answered).sum())


def questions(nodes: LocalNodes, tree: Tree, config: RunConfig, count: Count) -> Iterator[Question]:
    """Yield the calls for all nodes, community by community, in the order of the nodes.

    A call asks for at most half of a community, rounded up, so that it has members to show.

    Parameters
    ----------
    count : the model's own count of tokens
    """
    most = most_targets(nodes.class_names, config, count)
    order = torch.sort(tree.community, stable=True).indices
    sizes = torch.bincount(tree.community, minlength=tree.communities).tolist()
    cut = _Cut(nodes, count)
    for members in torch.split(order, sizes):
        step = min(most, -(-len(members) // 2))
        for targets in torch.split(members, max(step, 1)):
            if len(targets):
                yield _question(nodes, members, targets, config, cut)


def most_targets(classes: tuple[str, ...], config: RunConfig, count: Count) -> int:
    """Return the most nodes per call whose longest prompt and reply fit the context; at least 1."""
    settings, context = LlataConfig.of(config), LlmConfig.of(config).context
    frame = community_template(classes, 0, 0).fill(classes=classes, targets=[], members=[("", "")])
    fixed = count(frame.text) + settings.members * (
        MEMBER_TOKENS + max((count(as_data(name)) for name in classes), default=0) + 8
    )
    for targets in range(settings.targets, 1, -1):
        room = fixed + targets * (TARGET_TOKENS + 8) + _reply_limit(classes, targets, count)
        if room <= context:
            return targets
    return 1


def _reply_limit(classes: tuple[str, ...], targets: int, count: Count) -> int:
    # Held to a schema, a small model spells spaces and digits one by one: half as many again.
    return 2 * count(longest_reply(classes, targets)) + 16


def _question(
    nodes: LocalNodes, members: Tensor, targets: Tensor, config: RunConfig, cut: "_Cut"
) -> Question:
    others = members[~torch.isin(members, targets)]
    shown = shown_members(nodes, targets, others, LlataConfig.of(config).members).tolist()
    names = {-1: "", **dict(enumerate(nodes.class_names))}
    limit = _reply_limit(nodes.class_names, len(targets), cut.count)
    prompt = community_template(nodes.class_names, len(targets), limit).fill(
        classes=nodes.class_names,
        targets=[cut.text(node, TARGET_TOKENS) for node in targets.tolist()],
        members=[(cut.text(node, MEMBER_TOKENS), names[int(nodes.labels[node])]) for node in shown],
    )
    return Question(targets, prompt)


def shown_members(nodes: LocalNodes, targets: Tensor, others: Tensor, most: int) -> Tensor:
    """Return the members that a call shows: those with the texts closest to the mean of its
    targets; half of them, rounded up, training nodes where there are so many. At most `most`.
    """
    near = nodes.features[others] @ nodes.features[targets].mean(0)
    ranked = others[torch.sort(near, descending=True, stable=True).indices]
    labelled = nodes.labels[ranked] >= 0
    first = ranked[labelled][: -(-most // 2)]
    rest = ranked[~torch.isin(ranked, first)][: most - len(first)]
    chosen = torch.cat([first, rest])
    return ranked[torch.isin(ranked, chosen)]


class _Cut:
    """Texts of at most so many tokens, in whole words, as a prompt quotes them."""

    def __init__(self, nodes: LocalNodes, count: Count) -> None:
        self._nodes, self.count = nodes, count
        self._known: dict[tuple[int, int], str] = {}

    def text(self, node: int, most: int) -> str:
        """Return the longest beginning of a node's text that has at most `most` tokens."""
        if (node, most) not in self._known:
            self._known[node, most] = beginning(self._nodes.texts[node], most, self.count)
        return self._known[node, most]


def beginning(text: str, most: int, count: Count) -> str:
    """Return the longest beginning in whole words that has at most `most` tokens, quoted."""
    words = text.split()
    low, high = 0, min(len(words), most)  # a word has at least one token
    while low < high:
        middle = (low + high + 1) // 2
        if count(as_data(" ".join(words[:middle]))) <= most:
            low = middle
        else:
            high = middle - 1
    return " ".join(words[:low])
