"""What a source holds, looked at by the mirror: with its own token, its own reach, and what it keeps itself."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from llmgw.catalog.origin import Place, origin
from llmgw.core.holdings import Holding, HoldingState
from llmgw.core.resolved import Ask, Resolved, ResolvedFile
from llmgw.errors import Refused, Unreachable
from llmgw.mirror.sources import Sources
from llmgw.mirror.store import Store
from llmgw.sources import selecting
from llmgw.sources.header import facts_of, read_file
from llmgw.sources.hub import Hub
from llmgw.sources.upstream import Upstream
from llmgw.sources.web import Web

AT_ONCE = 4
"""Sources looked at at the same time; one more is told to come back."""


class Resolver:
    """Answers `POST /v1/resolve`. It reads, and changes nothing. Any thread may call it."""

    def __init__(self, store: Store, sources: Sources) -> None:
        self._store = store
        self._web = Web(check_hop=sources.check, addresses=sources.addresses)
        hub = Hub(self._web, endpoint=sources.hub, token_file=sources.token_file)
        self._upstream = Upstream(self._web, hub, check_path=sources.check_path)
        self._turns = threading.Semaphore(AT_ONCE)

    def close(self) -> None:
        """End what is under way within a second."""
        self._web.close()

    def resolve(self, ask: Ask) -> Resolved:
        """What the source holds.

        Raises:
            Refused: it is not there, or may not be had.
            Unreachable: it cannot be asked now.
            OperatorError: what answers is not what it should be.
        """
        if not isinstance(ask.source.get("from"), str):
            raise Refused("no source is named", why="it has no `from`", do="send the source as the catalog has it")
        if not self._turns.acquire(blocking=False):
            raise Unreachable(
                "the mirror does not look now", why=f"it looks at {AT_ONCE} sources already", do="call again"
            )
        try:
            found = origin(ask.source)
            if found is not None and found.place is Place.MIRROR:
                return self._held(found.at, facts=ask.facts)
            return self._upstream.resolve(ask.source, facts=ask.facts)
        finally:
            self._turns.release()

    def _held(self, key: str, *, facts: bool) -> Resolved:
        version = self._store.version(key)
        holding: Holding | None = version.holding if version else None
        if holding is None or holding.state is not HoldingState.PRESENT:
            state = f"it is {holding.state}" if holding else "it is not there"
            raise Refused(
                f"the mirror does not hold {key[:160]!a}", why=state, do="ask for it first, or write where it is from"
            )
        files = tuple(sorted(ResolvedFile(f.path, f.bytes, f.sha256) for f in holding.files))
        main = selecting.main_file([file.path for file in files]) if facts else None
        found = Resolved(files)
        if main is None:
            return found
        folder: Path = self._store.root / key
        sizes = {file.path: file.bytes for file in files}
        said = facts_of(main, lambda path, start, end: read_file(folder / path, start, end), sizes)
        return msgspec.structs.replace(found, facts=said)
