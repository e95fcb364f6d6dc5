"""Process 2, put together: the store, the fetches, the byte port and the management API.

Nothing here is lost with the process: what it holds is in its folder, and a
fetch under way goes on from its journal.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llmgw.core.holdings import Failure
from llmgw.errors import Refused
from llmgw.mirror import api_app, bytes_app, instance
from llmgw.mirror.fetches import AT_ONCE, SPARE_BYTES, Fetches
from llmgw.mirror.resolving import Resolver
from llmgw.mirror.sources import Sources
from llmgw.mirror.store import SETTLE_S, Store
from llmgw.mirror.verifying import verify_one
from llmgw.net.listen import is_loopback
from llmgw.net.port import Port
from llmgw.sources.hub import ENDPOINT

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
"""How soon a folder that was copied in, changed or taken away is noticed."""


@dataclass(frozen=True)
class MirrorConfig:
    """All a mirror is told."""

    root: Path
    """Where versions are, NAME/VERSION/; on one filesystem."""
    listen: tuple[str, int]
    """The byte port: read-only, for anybody who reaches it."""
    api: tuple[str, int]
    """The management API."""
    allow_files: tuple[Path, ...] = ()
    """Folders that file:// sources may lie in."""
    allow_hosts: tuple[str, ...] = ()
    """Hosts it may talk to, plain http included."""
    usual_hosts: bool = True
    """It may talk to Hugging Face too, and to where its files are."""
    hub: str = ENDPOINT
    """Where `hf://` leads."""
    hub_token_file: Path | None = None
    """Holds the token for it."""
    api_key_sha256: str | None = None
    """Of the bearer key of the management API."""
    insecure: bool = False
    """The management API may listen beyond loopback without a key."""
    spare_bytes: int = SPARE_BYTES
    """What a fetch leaves free on the disk."""
    settle_s: float = SETTLE_S
    """How long nothing may have changed in a folder that was copied in before it is taken up."""


async def serve(config: MirrorConfig, *, ready: Callable[[dict[str, tuple[str, int]]], None] | None = None) -> None:
    """Run until cancelled or told to stop by SIGTERM or SIGINT.

    Args:
        config: all it is told.
        ready: called once it serves, with the bound addresses under `listen` and `api`.

    Raises:
        Refused: it cannot start as it is told to.
    """
    _check(config)
    store = Store(config.root, settle_s=config.settle_s)
    sources = Sources(
        folders=config.allow_files,
        hosts=config.allow_hosts,
        usual=config.usual_hosts,
        hub=config.hub,
        token_file=config.hub_token_file,
    )
    resolver = Resolver(store, sources)
    fetches = Fetches(store, sources, spare_bytes=config.spare_bytes)
    store.make_folders()
    try:
        mine = instance.claim(store.state / "instance.json")
    except OSError as e:
        raise store.unusable(e) from e
    try:
        try:
            await asyncio.to_thread(store.open)
            await asyncio.to_thread(fetches.open)
        except OSError as e:
            raise store.unusable(e) from e
        await _serve(config, store, fetches, resolver, ready)
    finally:
        fetches.close()
        resolver.close()
        instance.release(store.state / "instance.json", mine)


async def _serve(
    config: MirrorConfig,
    store: Store,
    fetches: Fetches,
    resolver: Resolver,
    ready: Callable[[dict[str, tuple[str, int]]], None] | None,
) -> None:
    data = Port(bytes_app.bytes_app(store), who="the mirror", most=bytes_app.MAX_CONNECTIONS, each=2)
    management = api_app.api_app(store, fetches, resolver, boot=secrets.token_hex(8), key_sha256=config.api_key_sha256)
    api = Port(management, who="the mirror", most=api_app.MAX_CONNECTIONS)
    over = threading.Event()
    try:
        addresses = {
            "listen": await data.open("the mirror's byte port", config.listen, flag="--listen"),
            "api": await api.open("the mirror's management API", config.api, flag="--api"),
        }
        workers = [lambda: _fetch(fetches)] * AT_ONCE + [lambda: _look(store, over), lambda: _verify(store, over)]
        for work in workers:
            # Daemons: one may wait in the system's resolver, and nothing it does is lost with it.
            threading.Thread(target=work, daemon=True).start()
        log.info("the mirror serves", extra={"addresses": addresses, "versions": len(store.versions())})
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        with suppress(ValueError, RuntimeError):  # not the main thread: whoever called cancels
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop.set)
        if ready is not None:
            ready(addresses)
        await stop.wait()
    finally:
        over.set()
        fetches.close()
        resolver.close()
        await asyncio.gather(data.close(), api.close())


def _check(config: MirrorConfig) -> None:
    key = config.api_key_sha256
    if key is not None and not re.fullmatch(r"[0-9a-f]{64}", key):
        raise Refused(
            "the sha256 of the management API's key cannot be used",
            why="it is not 64 of 0-9 and a-f",
            do="give what `llmgw key new` prints as key_sha256",
        )
    if key is None and not config.insecure and not is_loopback(config.api[0]):
        raise Refused(
            f"the management API does not listen on {config.api[0]} without a key",
            why="anybody who reaches it could remove every version",
            do="give it a key, or --insecure where the network is trusted",
        )


def _fetch(fetches: Fetches) -> None:
    while (job := fetches.next()) is not None:
        try:
            fetches.run(job)
        except Exception:
            log.exception("a fetch ended in an internal error", extra={"model": job.request.name})
            fetches.fail(job, Failure("upstream", "internal error: the mirror has a bug here", "look into its log"))


def _look(store: Store, over: threading.Event) -> None:
    while not over.is_set():
        try:
            store.look()
            store.sweep()
        except OSError as e:
            store.cannot_look(e)
        except Exception:
            log.exception("looking at the folder ended in an internal error")
        over.wait(min(LOOK_EVERY_S, store.settle_s))


def _verify(store: Store, over: threading.Event) -> None:
    while not over.is_set():
        try:
            worked = verify_one(store, stop=over.is_set)
        except Exception:
            log.exception("hashing ended in an internal error")
            worked = False
        if not worked:
            over.wait(min(1.0, store.settle_s))
