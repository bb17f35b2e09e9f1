"""What a notebook shows of evidence, predictions, cores and results: HTML without scripts."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from dance_flwr.escaping import one_line


def text_html(text: str) -> str:
    """Return escaped text that keeps its lines."""
    return Markup('<pre style="white-space:pre-wrap" dir="auto">{}</pre>').format(text)


def table_html(caption: str, rows: Iterable[Sequence[object]], names: Sequence[str]) -> str:
    """Return rows of numbers and names as a table; None is a dash."""
    # Every text is escaped, as ids and names of classes come from strangers.
    head = _row("th", names)
    body = Markup().join(_row("td", [_cell(value) for value in row]) for row in rows)
    form = Markup("<p>{}</p><table><thead>{}</thead><tbody>{}</tbody></table>")
    return form.format(one_line(caption), head, body)


def _row(tag: str, cells: Sequence[str]) -> Markup:
    form = Markup(f"<{tag}>{{}}</{tag}>")
    return Markup("<tr>{}</tr>").format(Markup().join(form.format(one_line(c)) for c in cells))


def _cell(value: object) -> str:
    if value is None:
        return "\N{EN DASH}"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
