"""The rules of labels and names, the same for every format.

- **No label.** A label that is one of `UNLABELLED_VALUES` ("", -1, nan, none, null), in any case
  and with any space around it, means that the node has none. `--unlabelled` gives another list.
- **One label.** A list or an object as label or text is refused: a node has one label, one text.
- **Names are kept.** Ids and class names keep their zeros, their case and the space around them.
  Names that differ only in Unicode form, case or surrounding space stay different; a warning names
  examples, since they usually mean the same.
- **Our own folders.** What this project wrote (its metadata say so) is read as it stands.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_EXAMPLES = 3


def without_missing(labels: Any, unlabelled: Sequence[str]) -> Any:
    """Return labels with "" for every value that means "no label".

    Parameters
    ----------
    labels : large_string array
    unlabelled : values that mean it, compared without case and surrounding space
    """
    words = {value.strip().casefold() for value in unlabelled}
    missing = [name for name in pc.unique(labels).to_pylist() if name.strip().casefold() in words]
    if not missing:
        return labels
    is_missing = pc.is_in(labels, value_set=pa.array(missing, labels.type))
    return pc.if_else(is_missing, pa.scalar("", labels.type), labels)


def look_alikes(names: Any, what: str) -> str:
    """Return a warning that names differ only in Unicode form, case or surrounding space.

    Parameters
    ----------
    names : large_string array of different names
    what : what they name, for the message

    Returns
    -------
    the warning, "" if all names differ in more
    """
    plain = pc.utf8_lower(pc.utf8_trim_whitespace(pc.utf8_normalize(names, form="NFC")))
    counts = pc.value_counts(plain)
    repeated = pc.filter(counts.field(0), pc.greater(counts.field(1), 1))
    if not len(repeated):
        return ""
    examples = []
    for name in repeated[:_EXAMPLES]:
        alike = pc.filter(names, pc.equal(plain, name)).to_pylist()
        # ASCII, as two forms of one character look the same.
        examples.append(" and ".join(map(ascii, alike[:_EXAMPLES])))
    more = f"; and {len(repeated) - _EXAMPLES:,} more" if len(repeated) > _EXAMPLES else ""
    return (
        f"{what} that differ only in Unicode form, case or surrounding space stay different: "
        f"{'; '.join(examples)}{more}; rename them if they mean the same"
    )


def is_empty(texts: Any) -> Any:
    """Return for each text whether it has no character but white space."""
    return pc.equal(pc.utf8_trim_whitespace(texts), "")
