"""Errors that a user can mend: one line each, never a traceback."""


class UserError(Exception):
    """What was expected, what was found, what to do. The CLI prints it and exits with 2."""


class DataError(UserError):
    """A graph, a partition or a text bank on disk is not what it should be."""


class ConfigError(UserError):
    """One or more configuration values cannot be used; the message lists all of them."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class QuorumError(UserError):
    """Fewer valid replies arrived in a round than the run requires."""


class ResumeError(UserError):
    """A run cannot go on from where it stopped."""


class CodeMismatchError(UserError):
    """A client runs other code than the server."""
