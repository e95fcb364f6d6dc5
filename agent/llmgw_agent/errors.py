"""What went wrong, why, and what to do next; the class says what happens next.

The agent and the rest of llmgw raise the same errors, and this is the one
definition: `llmgw.errors` adds the exit codes of its commands to it.
"""

from __future__ import annotations


class OperatorError(Exception):
    """A failure a person can act on. A bug is never one of these.

    Built from our own values, never from a request or a URL with credentials:
    its text ends in logs, in status commits and in pull requests.
    """

    code = 1
    """The exit code of a command that ends with it."""

    def __init__(self, what: str, *, why: str, do: str) -> None:
        super().__init__(what)
        self.what, self.why, self.do = what, why, do

    def __str__(self) -> str:
        return f"{self.what}\n  because {self.why}\n  next: {self.do}"

    @property
    def sentence(self) -> str:
        """The same on one line, for a log and a table's cell."""
        return f"{self.what}: {self.why}; {self.do}"


class Unreachable(OperatorError):
    """Retried with backoff: the world may change by itself."""

    code = 3


class Refused(OperatorError):
    """Not retried until the commit changes: somebody has to change something."""

    code = 4
