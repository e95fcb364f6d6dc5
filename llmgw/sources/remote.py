"""A repository on a server: one ref asked for, fetched, or moved, each within a bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from dulwich.objects import ObjectID, ShaFile
from dulwich.pack import UnpackedObject, pack_objects_to_data
from dulwich.refs import Ref

from llmgw.errors import Refused, Unreachable
from llmgw.sources.access import Limits
from llmgw.sources.branch import Busy
from llmgw.sources.objects import Damaged
from llmgw.sources.repository import refuse_clash
from llmgw.sources.transport import Transport
from llmgw.sources.wire import said

CONTENDED = ("failed to update ref", "cannot lock ref", "failed to lock", "unable to lock")
"""How servers say that another push was there in the same moment."""


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
        way: to it.
        limits: of what it sends.
    """

    def __init__(self, way: Transport, limits: Limits) -> None:
        self.shown = way.shown
        self._way = way
        self._path = way.path
        self._limits = limits

    def refs(self, prefix: bytes) -> dict[bytes, ObjectID]:
        """The refs that begin so, and where they point."""
        with self._understood(), self._way.exchange() as client:
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

        with self._way.exchange() as client:
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

        with self._understood(), self._way.exchange() as client:
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

        with self._understood(), self._way.exchange() as client:
            client.send_pack(self._path, update, lambda *_, **__: (0, iter(())))

    def close(self) -> None:
        self._way.close()

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
