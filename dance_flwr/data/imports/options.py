"""What a user says about files that do not say it themselves."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from dance_flwr.config.options import option
from dance_flwr.errors import UserError

NO_LABELS = "none"
# Why (decision 28): tools write a missing class in these ways; a class of such a name is rarer.
UNLABELLED_VALUES = ("", "-1", "-1.0", "nan", "none", "null")


@dataclass(frozen=True)
class Options:
    """Columns and rules of an import; empty for what the files say or the usual names.

    Attributes
    ----------
    header : whether tables in text files begin with the names of their columns
    labels : id -> class of nodes whose label another source knows better than the files

    Raises
    ------
    UserError : an option has a value that it does not accept
    """

    text: str = option(
        "", "column or attribute of the texts; several, separated by commas, are joined by newlines"
    )
    label: str = option("", "column or attribute of the labels; `none` for no labels")
    id: str = option("", "column or attribute of the node ids")
    source: str = option("", "column of the first end of an edge")
    target: str = option("", "column of the second end of an edge")
    edges_from: str = option(
        "",
        "column of a node table with each node's neighbours: a list of ids, one, or several "
        "separated by semicolons, commas or bars",
    )
    edge_weight: str = option("", "column of the weights of edges; left out by default")
    edge_text: str = option(
        "",
        "`append` keeps relation and description of edges as texts",
        choices=("", "append"),
    )
    dangling: str = option(
        "refuse",
        "edges that name an unknown node: refuse, drop (at most half), or the number to drop",
    )
    nameless: str = option(
        "refuse",
        "nodes without an id: refuse, or drop with their edges",
        choices=("refuse", "drop"),
    )
    duplicates: str = option(
        "refuse",
        "nodes with the same id: refuse, keep the first, or merge their texts, where all other "
        "values are the same",
        choices=("refuse", "first", "merge"),
    )
    unlabelled: tuple[str, ...] = option(
        UNLABELLED_VALUES,
        "labels that mean no label, separated by commas, compared without case and space",
    )
    missing: tuple[str, ...] = option(
        (), "labels and texts that mean none, separated by commas, such as NA"
    )
    encoding: str = option("", "of text files that are not UTF-8 or UTF-16, such as latin-1")
    delimiter: str = option("", "of CSV files; detected by default")
    quoting: str = option(
        "",
        "of CSV files: a quote in a value is doubled (standard), maybe escaped, too (backslash), "
        "or quotes mean nothing (none); detected by default",
        choices=("", "standard", "backslash", "none"),
    )
    split_index: int = option(0, "index of the mask to use as the split")
    header: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for item in fields(self):
            choices, value = item.metadata.get("choices"), getattr(self, item.name)
            if choices and value not in choices:
                expected = ", ".join(filter(None, choices))
                name = item.name.replace("_", "-")
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
