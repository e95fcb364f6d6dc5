"""A repository behind smart HTTP: one ref asked for, fetched, or moved, each within a bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from dulwich.client import HttpGitClient
from dulwich.errors import GitProtocolError, HangupException
from dulwich.objects import ObjectID, ShaFile
from dulwich.pack import UnpackedObject, pack_objects_to_data
from dulwich.refs import Ref
from urllib3.exceptions import HTTPError

from llmgw.errors import Refused, Unreachable
from llmgw.sources.branch import Busy
from llmgw.sources.objects import Damaged
from llmgw.sources.repository import refuse_clash
from llmgw.sources.wire import Wire, said
from llmgw.units import MIB

USER = "x-access-token"
"""The name a token goes under: GitHub wants this one, the others take any."""

CONTENDED = ("failed to update ref", "cannot lock ref", "failed to lock", "unable to lock")
"""How servers say that another push was there in the same moment."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one exchange with a server may take."""

    connect_s: float = 10.0
    read_s: float = 30.0
    total_s: float = 120.0
    pack_bytes: int = 64 * MIB


class Fetched(NamedTuple):
    """What an exchange brought."""

    tip: ObjectID | None
    """Where the ref points; None: it does not exist."""
    shallow: frozenset[ObjectID]
    """Commits whose parents were left out."""


class OverBudget(Exception):
    """The pack is larger than `Limits.pack_bytes`."""


class Remote:
    """One repository on a server.

    Args:
        url: http(s), without a password.
        token_file: read at each exchange, so that a new token counts at once.
        limits: of each exchange.

    Raises:
        Refused: the URL carries a password.
    """

    def __init__(self, url: str, token_file: Path | None, limits: Limits) -> None:
        parts = urlsplit(url)
        if parts.password is not None:
            raise Refused(
                "the repository's address carries a password",
                why="addresses end in logs, in errors and in the status",
                do="put the password into a file and give --git-token-file",
            )
        host = parts.netloc.rpartition("@")[2]
        self.shown = urlunsplit((parts.scheme, host, parts.path, "", ""))
        self._base = f"{parts.scheme}://{host}"
        self._path = parts.path
        self._user = unquote(parts.username) if parts.username else USER
        self._token_file = token_file
        self._limits = limits
        self._wire = Wire(self.shown, connect_s=limits.connect_s, read_s=limits.read_s)

    def refs(self, prefix: bytes) -> dict[bytes, ObjectID]:
        """The refs that begin so, and where they point."""
        with self._understood(), self._exchange() as client:
            found = client.get_refs(self._path, ref_prefix=[prefix]).refs
        return {name: tip for name, tip in found.items() if tip is not None and name.startswith(prefix)}

    def fetch(
        self,
        ref: Ref,
        into: IO[bytes],
        *,
        have: ObjectID | None = None,
        shallow: frozenset[ObjectID] = frozenset(),
        depth: int | None = None,
        only: ObjectID | None = None,
    ) -> Fetched:
        """Writes a pack of what `ref` has and `have` has not; nothing where they are the same.

        Args:
            ref: its full name.
            into: where the pack goes.
            have: the one commit that the server is told of. It need not know it.
            shallow: where our history ends.
            depth: commits of history, for a first fetch.
            only: fetch only if the ref still points here.

        Raises:
            OverBudget: the pack is too large; part of it was written.
            Damaged: the two sides did not understand each other.
            Unreachable, Refused: there was no such exchange.
        """
        tip: ObjectID | None = None
        written = 0

        def wants(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
            nonlocal tip
            del depth
            tip = refs.get(ref)
            return [] if tip is None or tip == have or only not in (None, tip) else [tip]

        def write(data: bytes) -> int:
            nonlocal written
            written += len(data)
            if written > self._limits.pack_bytes:
                raise OverBudget("what was pushed is too large to fetch with its history")
            try:
                return into.write(data)
            except OSError as e:
                raise Unreachable(
                    f"what {self.shown} sends cannot be kept",
                    why=(e.strerror or type(e).__name__).lower(),
                    do="check the disk that --state is on",
                ) from None

        with self._exchange() as client:
            result = client.fetch_pack(self._path, wants, _OneHave(have, shallow), write, depth=depth, ref_prefix=[ref])
        return Fetched(tip, frozenset(result.new_shallow or ()))

    def push(self, ref: Ref, old: ObjectID | None, new: ObjectID, objects: Sequence[ShaFile]) -> bool:
        """Moves `ref` from `old` to `new`; False: it is not at `old`, and nothing happened.

        Only `objects` are sent: working out what a server lacks would walk the
        whole history, 10 s at 50,000 commits.

        Raises:
            Busy: another push was there in the same moment.
            Unreachable, Refused: the server could not, or would not.
        """
        moved = False
        spoken: list[bytes] = []

        def update(refs: dict[Ref, ObjectID]) -> dict[Ref, ObjectID]:
            nonlocal moved
            refuse_clash(ref, refs, self.shown)
            moved = refs.get(ref) != old
            return {} if moved else {ref: new}

        def pack(*_: Any, **__: Any) -> tuple[int, Iterator[UnpackedObject]]:
            return pack_objects_to_data([(entry, None) for entry in objects])

        with self._understood(), self._exchange() as client:
            result = client.send_pack(self._path, update, pack, progress=spoken.append)
        if moved:
            return False
        why = next((text for text in (result.ref_status or {}).values() if text is not None), None)
        if why is None:
            return True
        if self.refs(ref).get(ref) != old:
            return False
        if any(word in why.lower() for word in CONTENDED):
            raise Busy
        raise Refused(
            f"{self.shown} refused the push to {ref.decode('utf-8', 'replace')}",
            why=said([why.encode(), b": " if spoken else b"", *spoken]),
            do="let the token's owner push to this branch, and no rule of the server stand before it",
        )

    def may_push(self, ref: Ref) -> None:
        """Asks for the right to push, as far as a server says that before a push.

        Raises:
            Refused: we have it not, or the name is taken.
        """

        def update(refs: dict[Ref, ObjectID]) -> dict[Ref, ObjectID]:
            refuse_clash(ref, refs, self.shown)
            return {}

        with self._understood(), self._exchange() as client:
            client.send_pack(self._path, update, lambda *_, **__: (0, iter(())))

    def close(self) -> None:
        self._wire.clear()

    @contextmanager
    def _exchange(self) -> Iterator[HttpGitClient]:
        token = self._token()
        client = HttpGitClient(
            self._base,
            pool_manager=self._wire,
            username=self._user if token is not None else None,
            password=token,
        )
        try:
            with self._wire.within(self._limits.total_s):
                yield client
        except (GitProtocolError, AssertionError, KeyError, ValueError, IndexError) as e:
            if isinstance(e, HangupException) or isinstance(e.__cause__, HTTPError):
                raise self._wire.broken() from None
            raise Damaged(said([str(e).encode()])) from e
        except OSError:
            raise self._wire.broken() from None

    @contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except Damaged as e:
            raise Unreachable(
                f"{self.shown} gave no sensible answer",
                why=str(e) or "it broke off in the middle",
                do="look at the server's log",
            ) from None

    def _token(self) -> str | None:
        if self._token_file is None:
            return None
        try:
            token = self._token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as e:
            raise Refused(
                f"the token file {self._token_file} was not read",
                why=str(getattr(e, "strerror", None) or "it is not a token").lower(),
                do="write the token into it, on one line",
            ) from None
        if not token or not token.isprintable():
            raise Refused(
                f"the token file {self._token_file} holds no token",
                why="it is empty, or has more than one line",
                do="write the token into it, on one line",
            )
        return token


class _OneHave:
    """Tells the server of one commit: the library's own walker offers all, 10 s of CPU at 50,000."""

    def __init__(self, have: ObjectID | None, shallow: frozenset[ObjectID]) -> None:
        self._have = have
        self.shallow = set(shallow)

    def __next__(self) -> ObjectID | None:
        have, self._have = self._have, None
        return have

    def ack(self, sha: ObjectID) -> None:
        """Nothing follows from it."""

    def nak(self) -> None:
        """Nothing follows from it."""
