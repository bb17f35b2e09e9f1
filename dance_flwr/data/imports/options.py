"""What a user says about files that do not say it themselves."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dance_flwr.errors import UserError

NO_LABELS = "none"
# Why (decision 28): tools write a missing class in these ways; a class of such a name is rarer.
UNLABELLED_VALUES = ("", "-1", "-1.0", "nan", "none", "null")
_CHOICES = {
    "edge-text": ("", "append"),
    "nameless": ("refuse", "drop"),
    "duplicates": ("refuse", "first", "merge"),
    "quoting": ("", "standard", "backslash", "none"),
}


@dataclass(frozen=True)
class Options:
    """Columns and rules of an import; empty for what the files say or the usual names.

    Attributes
    ----------
    text : one column, or several separated by commas, whose texts are joined by newlines
    label : column of the labels; `none` for a graph without labels
    labels : id -> class of nodes whose label another source knows better than the files
    id : column of the node ids
    source, target : columns of the two ends of an edge
    edges_from : column of a node table that names the neighbours of each node: a list of ids, ids
        separated by semicolons, commas or bars, or one id
    edge_weight : column of the weights of edges; empty leaves weights out
    edge_text : "append" keeps relation and description of each edge as its text; empty leaves
        them out
    dangling : "refuse" edges that name an unknown node, "drop" them if they are at most half of
        all, or the number of edges that may be dropped
    nameless : "refuse" nodes without an id, or "drop" them and the edges at them
    duplicates : "refuse" an id that is there twice, keep its "first" row, or "merge" its rows:
        their texts are joined by newlines, and the other values must be the same
    unlabelled : labels that mean "no label", compared without case and surrounding space
    missing : labels and texts that mean "none", such as `NA`, compared in the same way
    encoding : of text files; empty for UTF-8, or UTF-16 by its byte-order mark
    delimiter : of tables in text files; empty to detect it
    quoting : "standard" (a quote in a value is doubled), "backslash" (it is escaped) or "none"
        (quotes mean nothing) in tables in text files; empty to detect it
    header : whether tables in text files begin with the names of their columns
    split_index : index of the split if there are several masks

    Raises
    ------
    UserError : an option has another value than those above
    """

    text: str = ""
    label: str = ""
    id: str = ""
    source: str = ""
    target: str = ""
    edges_from: str = ""
    edge_weight: str = ""
    edge_text: str = ""
    dangling: str = "refuse"
    nameless: str = "refuse"
    duplicates: str = "refuse"
    unlabelled: tuple[str, ...] = UNLABELLED_VALUES
    missing: tuple[str, ...] = ()
    encoding: str = ""
    delimiter: str = ""
    quoting: str = ""
    header: bool = True
    split_index: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name.replace("-", "_"))
            if value not in allowed:
                expected = ", ".join(filter(None, allowed))
                raise UserError(f"--{name}: expected {expected}, found {value!r}; correct it")
        if self.dangling not in ("refuse", "drop") and not self.dangling.isdecimal():
            raise UserError(
                "--dangling: expected refuse or drop, or the number of edges that may be dropped, "
                f"found {self.dangling!r}; correct it"
            )
        if len(self.delimiter) > 1:
            raise UserError(
                f"--delimiter: expected one character, found {self.delimiter!r}; "
                "a tab is written as $'\\t'"
            )


DEFAULTS = Options()
