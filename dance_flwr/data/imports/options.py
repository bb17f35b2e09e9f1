"""What a user says about files that do not say it themselves."""

from dataclasses import dataclass

from dance_flwr.errors import UserError

NO_LABELS = "none"
# Why (decision 28): tools write a missing class in these ways; a class of such a name is rarer.
UNLABELLED_VALUES = ("", "-1", "-1.0", "nan", "none", "null")


@dataclass(frozen=True)
class Options:
    """Columns and rules of an import; empty for what the files say or the usual names.

    Attributes
    ----------
    text : one column, or several separated by commas, whose texts are joined by newlines
    label : column of the labels; `none` for a graph without labels
    id : column of the node ids
    source, target : columns of the two ends of an edge
    edge_weight : column of the weights of edges; empty leaves weights out
    edge_text : "append" keeps relation and description of each edge as its text; empty leaves
        them out
    dangling : "refuse" or "drop" edges of which an end is no node
    unlabelled : labels that mean "no label", compared without case and surrounding space
    encoding : of text files; empty for UTF-8, or UTF-16 by its byte-order mark
    delimiter : of tables in text files; empty to detect it
    split_index : index of the split if there are several masks

    Raises
    ------
    UserError : `edge_text`, `dangling` or `delimiter` has another value
    """

    text: str = ""
    label: str = ""
    id: str = ""
    source: str = ""
    target: str = ""
    edge_weight: str = ""
    edge_text: str = ""
    dangling: str = "refuse"
    unlabelled: tuple[str, ...] = UNLABELLED_VALUES
    encoding: str = ""
    delimiter: str = ""
    split_index: int = 0

    def __post_init__(self) -> None:
        choices = {"edge-text": ("", "append"), "dangling": ("refuse", "drop")}
        for name, allowed in choices.items():
            value = getattr(self, name.replace("-", "_"))
            if value not in allowed:
                expected = " or ".join(filter(None, allowed))
                raise UserError(f"--{name}: expected {expected}, found {value!r}; correct it")
        if len(self.delimiter) > 1:
            raise UserError(
                f"--delimiter: expected one character, found {self.delimiter!r}; "
                "a tab is written as $'\\t'"
            )


DEFAULTS = Options()
