"""Errors that a user can fix: one line each, never a traceback."""

from dance_flwr.escaping import escaped


class UserError(Exception):
    """A mistake that the user can correct; the command line prints it and exits with code 2.

    The message is one line: what was expected, what was found, and what to do.
    """

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook prints instead of a traceback: IPython asks for this method."""
        return [f"{type(self).__name__}: {escaped(str(self))}"]


class DataError(UserError):
    """A graph, a partition or a text bank on disk is missing, malformed or altered."""


class ConfigError(UserError):
    """One or more configuration values are invalid.

    Attributes
    ----------
    problems : one line per value; the message joins them with semicolons
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class QuorumError(UserError):
    """A round received fewer valid replies than the run requires."""


class ResumeError(UserError):
    """A run cannot be resumed from where it stopped."""


class ProtocolError(UserError):
    """A client speaks another protocol than the server."""
