"""What a notebook shows: evidence, predictions, cores and results as HTML without scripts.

All text of data passes Jinja2's autoescape after `escaping.escaped`, which also replaces what turns
text around or hides it. Nothing is loaded from elsewhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dance_flwr.escaping import escaped, one_line

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_NODES = 10  # of an evidence; the others are counted
_AROUND = 160  # characters of the text shown before and after a span

_TEMPLATES = {
    "evidence": """\
<div class="dance-flwr" style="max-width:60em">
{% if model_id %}<p>Evidence of {{ total }} {{ "node" if total == 1 else "nodes" }},
model <code>{{ model_id }}</code>{% if total > nodes|length %};
the first {{ nodes|length }} are shown{% endif %}. This output contains source texts.</p>{% endif %}
{% for node in nodes %}<section>
<h4><bdi>{{ node.id|line }}</bdi>: {{ node.predicted|line }}
({{ "%.3f"|format(node.probability) }})</h4>
<p>{% for view, probs in node.views.items() -%}
{{ readings.get(view, view) }}: {{ (probs|best)[0]|line }}
({{ "%.3f"|format((probs|best)[1]) }}){{ "; " if not loop.last }}
{%- endfor %}</p>
{% for part in node.neighbours %}<article dir="auto" style="border-left:3px solid #888;\
padding-left:.7em;margin:.6em 0">
<p><b>{{ hops[part.hop] }}</b>, importance {{ "%.3f"|format(part.gate) }},
<bdi>{{ part.id|line }}</bdi>
{%- if part.training_label is not none %}, training label {{ part.training_label|line }}
({{ "%+.2f"|format(part.effect) }}){% endif %}</p>
<p style="white-space:pre-wrap">{% for text, span in part|pieces(node.spans) -%}
{% if span %}<mark title="importance {{ "%.3f"|format(span.weight) }}">{{ text|plain }}</mark>\
<sup>{{ "%.2f"|format(span.weight) }}</sup>{% else %}{{ text|plain }}{% endif %}
{%- endfor %}</p>
</article>
{% endfor %}</section>
{% endfor %}</div>
""",
    "table": """\
<div class="dance-flwr"><p>{{ caption|line }}</p>
<table><thead><tr>{% for name in names %}<th scope="col">{{ name|line }}</th>{% endfor %}
</tr></thead>
<tbody>{% for row in rows %}<tr>{% for value in row %}<td>{{ value|line }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table></div>
""",
}


def evidence_html(nodes: Sequence[object], total: int, model_id: str) -> str:
    """Return the evidence of nodes as HTML, in the words of docs/glossary.md.

    Parameters
    ----------
    nodes : `node_evidence.NodeEvidence`
    total : nodes that were explained; at most `MAX_NODES` are shown
    model_id : "" = without the heading
    """
    template = _environment().get_template("evidence")
    return template.render(nodes=nodes[:MAX_NODES], total=total, model_id=model_id)


def table_html(caption: str, rows: Iterable[Sequence[object]], names: Sequence[str]) -> str:
    """Return rows of numbers and names as a table; None is a dash."""
    cells = [[_cell(value) for value in row] for row in rows]
    return _environment().get_template("table").render(caption=caption, rows=cells, names=names)


def _cell(value: object) -> str:
    if value is None:
        return "\N{EN DASH}"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


@lru_cache(maxsize=1)
def _environment() -> "Environment":
    from jinja2 import DictLoader, Environment

    from dance_flwr.evidence.render import HOP_NAMES, READINGS

    # Escaped without exception: texts, ids and names of classes are those of strangers.
    environment = Environment(loader=DictLoader(_TEMPLATES), autoescape=True)
    environment.filters |= {"plain": escaped, "line": _line, "best": _best, "pieces": _pieces}
    environment.globals |= {"readings": READINGS, "hops": HOP_NAMES}
    return environment


def _line(value: object) -> str:
    return one_line(str(value))


def _best(probs: Mapping[str, float]) -> tuple[str, float]:
    return max(probs.items(), key=lambda item: item[1])


def _pieces(part: Any, spans: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return the text of a `Neighbour` in pieces: its spans, what is near them, "…" for the rest.

    A text without a span shows its beginning.
    """
    text = part.text
    marked = sorted((span for span in spans if span.id == part.id), key=lambda span: span.start)
    if not marked:
        return [(text[: 2 * _AROUND] + (" …" if len(text) > 2 * _AROUND else ""), None)]
    pieces: list[tuple[str, Any]] = []
    at = 0
    for span in marked:
        pieces += [(_between(text[at : span.start], at == 0, False), None), (span.text, span)]
        at = span.end
    return [*pieces, (_between(text[at:], False, True), None)]


def _between(text: str, first: bool, last: bool) -> str:
    """Return text beside spans, without its middle where that is long."""
    if len(text) <= 2 * _AROUND:
        return text
    before = "" if first else text[:_AROUND]
    return f"{before} … {'' if last else text[-_AROUND:]}"
