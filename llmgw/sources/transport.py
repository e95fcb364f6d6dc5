"""The two ways to a git server: smart HTTP, and ssh.

Each gives one exchange at a time, bounded, and raises errors of ours alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO, Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from dulwich.client import HttpGitClient, SSHGitClient
from dulwich.errors import GitProtocolError, HangupException
from dulwich.protocol import Protocol as PktLines
from urllib3.exceptions import HTTPError

from llmgw.errors import Refused
from llmgw.sources.access import Access
from llmgw.sources.objects import Damaged
from llmgw.sources.ssh import Ssh, address
from llmgw.sources.wire import said, wire

USER = "x-access-token"
"""The name a token goes under: GitHub wants this one, the others take any."""

NONSENSE = (GitProtocolError, AssertionError, KeyError, ValueError, IndexError)
"""What an answer that makes no sense is to the library."""


Client = HttpGitClient | SSHGitClient


class Transport(Protocol):
    """The way to one repository."""

    shown: str
    """The repository, as errors and logs name it: never with a secret in it."""
    path: bytes
    """The repository, as its server names it."""

    def exchange(self) -> AbstractContextManager[Client]:
        """One exchange, within its bound.

        Raises:
            Unreachable: it did not take place, or not to the end.
            Refused: the server knows us not, or not this repository.
            Damaged: the two sides did not understand each other.
        """

    def close(self) -> None: ...


def transport(url: str, access: Access) -> Transport:
    """The way that an address asks for.

    Raises:
        Refused: it carries a password.
    """
    found = address(url)
    if found is not None:
        return OverSsh(Ssh(found, access))
    parts = urlsplit(url)
    if parts.password is not None:
        raise Refused(
            "the repository's address carries a password",
            why="addresses end in logs, in errors and in the status",
            do="put the password into a file and give --git-token-file",
        )
    return OverHttp(parts, access)


class OverHttp:
    """Smart HTTP, on connections of ours."""

    def __init__(self, parts: SplitResult, access: Access) -> None:
        host = parts.netloc.rpartition("@")[2]
        self.shown = urlunsplit((parts.scheme, host, parts.path, "", ""))
        self.path = parts.path.encode()
        self._base = f"{parts.scheme}://{host}"
        self._user = unquote(parts.username) if parts.username else USER
        self._access = access
        self._wire = wire(self.shown, access)

    @contextmanager
    def exchange(self) -> Iterator[Client]:
        token = self._access.secret()
        client = HttpGitClient(
            self._base,
            pool_manager=self._wire,
            username=self._user if token is not None else None,
            password=token,
        )
        try:
            with self._wire.within(self._access.limits.total_s):
                yield client
        except NONSENSE as e:
            if isinstance(e, HangupException) or isinstance(e.__cause__, HTTPError):
                raise self._wire.broken() from None
            raise Damaged(said([str(e).encode()])) from e
        except OSError:
            raise self._wire.broken() from None

    def close(self) -> None:
        self._wire.clear()


class _SshClient(SSHGitClient):
    """The library's, which leaves the pipes open where a server hangs up before it said a word."""

    def __init__(self, host: str, **how: Any) -> None:
        super().__init__(host, **how)
        self._begun: list[PktLines] = []

    def _connect(self, *asked: Any, **how: Any) -> tuple[PktLines, Callable[[], bool], IO[bytes] | None]:
        found = super()._connect(*asked, **how)
        self._begun.append(found[0])
        return found

    def end(self) -> None:
        for lines in self._begun:
            lines.close()


class OverSsh:
    """The ssh program, one process for each exchange."""

    def __init__(self, ssh: Ssh) -> None:
        self.shown = ssh.shown
        self.path = ssh.at.path.encode()
        self._ssh = ssh

    @contextmanager
    def exchange(self) -> Iterator[Client]:
        at = self._ssh.at
        client = _SshClient(at.host, port=at.port, username=at.user, vendor=self._ssh)
        try:
            with self._ssh.within():
                yield client
        except NONSENSE as e:
            raise Damaged(said([str(e).encode()])) from e
        finally:
            client.end()

    def close(self) -> None:
        self._ssh.close()
