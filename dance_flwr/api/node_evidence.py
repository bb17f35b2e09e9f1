"""`Evidence`: what predictions of nodes rest on, with the texts, in Python and in a notebook."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

from markupsafe import Markup

from dance_flwr.errors import UserError, counted
from dance_flwr.evidence.json_lines import evidence_lines
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.render import pack_text

_MAX_SHOWN = 3  # nodes in a notebook


@dataclass(frozen=True)
class Span:
    """A piece of a source text that a prediction rests on.

    Attributes
    ----------
    id : the node whose text it is; hop : its distance from the explained node, 0 = itself
    start, end : characters of the node's text; text : those characters
    weight : pi in (0, 1]; the weights of a node's spans sum to 1
    sha256 : hex, of the UTF-8 text
    """

    id: str
    hop: int
    start: int
    end: int
    text: str
    weight: float
    sha256: str


@dataclass(frozen=True)
class Neighbour:
    """A node that a prediction draws on.

    Attributes
    ----------
    id, hop : of the node; gate : alpha in (0, 1], the gates of a hop sum to 1
    text : its whole source text
    training_label : its class where that is a training label that was read, else None
    effect : what that label added to the log-odds of the predicted class against the second one
    """

    id: str
    hop: int
    gate: float
    text: str
    training_label: str | None
    effect: float


@dataclass(frozen=True, repr=False)
class NodeEvidence:
    """What the prediction of one node rests on.

    Attributes
    ----------
    id : of the node
    predicted, probability : the class that the model deploys, calibrated as in `predict`
    views : by stage ("plain", "fused", "deployed", ..), the probability of each class; the last one
        is calibrated
    neighbours : by hop, the node itself first; spans : heaviest first
    """

    id: str
    predicted: str
    probability: float
    views: Mapping[str, Mapping[str, float]]
    neighbours: tuple[Neighbour, ...]
    spans: tuple[Span, ...]

    def __repr__(self) -> str:
        return (
            f"NodeEvidence({self.id!r}, {self.predicted!r}, {self.probability:.3f}, "
            f"{counted(len(self.neighbours), 'node')}, {counted(len(self.spans), 'span')})"
        )


class Evidence(Sequence[NodeEvidence]):
    """The evidence of some nodes under one model: a sequence of `NodeEvidence`.

    A notebook displays what `dance-flwr evidence show` prints: predictions, gates, and source texts
    with their spans marked.

        for node in evidence:
            for span in node.spans:
                print(node.id, span.weight, span.text)

    Attributes
    ----------
    model_id : fingerprint of the model
    class_names : of the model
    packs : the same as arrays, as clients keep them
    """

    def __init__(
        self, packs: Packs, ids: Sequence[str], texts: Sequence[str], class_names: Sequence[str]
    ) -> None:
        self.packs, self.model_id, self.class_names = packs, packs.model_id, tuple(class_names)
        self._ids, self._texts = ids, texts
        lines = evidence_lines(packs, list(ids), class_names)
        self._nodes = [
            _node(packs, row, line, texts, self.class_names) for row, line in enumerate(lines)
        ]
        self._rows = {node.id: row for row, node in enumerate(self._nodes)}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[NodeEvidence]:
        return iter(self._nodes)

    @overload
    def __getitem__(self, key: int | str) -> NodeEvidence: ...
    @overload
    def __getitem__(self, key: slice) -> list[NodeEvidence]: ...
    def __getitem__(self, key: int | str | slice) -> NodeEvidence | list[NodeEvidence]:
        """Return the evidence of a node by its id or its place, or several by a slice.

        Raises
        ------
        UserError : no node of this id was explained
        """
        if isinstance(key, str):
            if key not in self._rows:
                raise UserError(f"expected the id of an explained node, found {key!r}")
            key = self._rows[key]
        return self._nodes[key]

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python: `model`, `class_names`, and one entry per node in `nodes`.

        An entry has the keys of the lines that `dance-flwr predict --evidence` writes (`id`,
        `model`, `views`, `neighbours`, `spans`), with the texts. It can be written as JSON.
        """
        nodes = [{"model": self.model_id, **asdict(node)} for node in self._nodes]
        return {"model": self.model_id, "class_names": list(self.class_names), "nodes": nodes}

    def __repr__(self) -> str:
        spans = sum(len(node.spans) for node in self._nodes)
        return (
            f"Evidence({counted(len(self), 'node')}, {counted(spans, 'span')}, model "
            f"{self.model_id})"
        )

    def _repr_html_(self) -> str:
        parts = [
            pack_text(self.packs, row, self._ids, self._texts, self.class_names)
            for row in range(min(len(self), _MAX_SHOWN))
        ]
        shown = f", the first {_MAX_SHOWN} are shown" if len(self) > _MAX_SHOWN else ""
        head = f"{counted(len(self), 'node')}{shown}. This output contains source texts."
        form = Markup('<pre style="white-space:pre-wrap" dir="auto">{}</pre>')  # escapes its text
        return form.format("\n\n".join([head, *parts]))


def _node(
    packs: Packs, row: int, line: Mapping[str, Any], texts: Sequence[str], names: Sequence[str]
) -> NodeEvidence:
    best, rival = int(packs.predicted[row]), int(packs.rival[row])
    near, chunks = packs.neighbours_of(row), packs.chunks_of(row)
    logits = packs.neighbour_label_logits[near]
    neighbours = tuple(
        Neighbour(
            text=texts[node],
            training_label=names[label] if label >= 0 else None,
            effect=float(effect),
            **entry,
        )
        for entry, node, label, effect in zip(
            line["neighbours"],
            packs.neighbours[near],
            packs.neighbour_labels[near],
            logits[:, best] - logits[:, rival],
            strict=True,
        )
    )
    hops = {neighbour.id: neighbour.hop for neighbour in neighbours}
    spans = tuple(
        Span(hop=hops[entry["id"]], text=texts[node][entry["start"] : entry["end"]], **entry)
        for entry, node in zip(line["spans"], packs.chunk_nodes[chunks], strict=True)
    )
    sure = float(packs.confidence[row])
    return NodeEvidence(line["id"], names[best], sure, line["views"], neighbours, spans)
