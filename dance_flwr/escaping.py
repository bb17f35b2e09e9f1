"""Text of strangers on a terminal, in Markdown or in a spreadsheet: shown, never obeyed.

Source texts, class names, ids, error lines and names of devices come from data or from other
machines. A terminal obeys the control characters in them: it copies to the clipboard (OSC 52),
changes its title, moves the cursor over lines that were printed before.
"""

import logging
import re

MARKS = "⟦⟧"  # around the selected spans of an evidence pack

# C0 without tab and line feed, DEL, C1, what reorders or breaks lines, and single surrogates.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Of Markdown with HTML, tables and mathematics; a colon or the dot after `www` would begin a link.
_MARKDOWN = re.compile(r"[&<>|\\]|([`*_{}\[\]()#!~:@$\"^=+]|(?<=www)\.)", re.IGNORECASE)
# What spreadsheets take for the start of a formula, the last four in East Asian versions.
_FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_CONTROLS_AND_MARKS = re.compile(f"{_CONTROLS.pattern[:-1]}{MARKS}]")


def escaped(text: str, *, marks: bool = False) -> str:
    """Return text with each control character as the sequence that stands for it in Python.

    Parameters
    ----------
    marks : also escape the marks of evidence, in text that stands between them
    """
    pattern = _CONTROLS_AND_MARKS if marks else _CONTROLS
    return pattern.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str, *, marks: bool = False) -> str:
    """Return escaped text with every run of white space as one space."""
    return escaped(" ".join(text.split()), marks=marks)


def markdown(text: str) -> str:
    """Return text as one line that Markdown shows unchanged, also in the cell of a table."""
    # References for those five: a backslash does not end HTML, nor keep a cell together everywhere.
    return _MARKDOWN.sub(
        lambda match: f"\\{match[1]}" if match[1] else f"&#{ord(match[0])};", one_line(text)
    )


def spreadsheet_cell(text: str) -> str:
    """Return text for a cell of a CSV file, with an apostrophe in front where it begins a formula.

    As OWASP recommends against CSV injection. Numbers stay: they compute nothing.
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


class EscapingFilter(logging.Filter):
    """Escape the message and the traceback of every record of a logger."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace message and traceback; keep the record."""
        if record.exc_info and not record.exc_text:  # handlers print this text where there is one
            record.exc_text = escaped(logging.Formatter().formatException(record.exc_info))
        message = record.getMessage()
        # Left as it is where nothing is escaped, so that handlers keep its arguments.
        if (plain := escaped(message)) != message:
            record.msg, record.args = plain, None
        return True
