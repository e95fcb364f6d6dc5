"""Weights on the node: fetched once a version, checked against the orders, removed only when told to."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from llmgw_agent import durable, folder_id
from llmgw_agent.dossier import Fault
from llmgw_agent.fetch.download import Connections, DownloadCancelled, DownloadFailed, download
from llmgw_agent.probe import disk
from llmgw_agent.protocol import HeldVersion, Progress, VersionOrder, WeightFile
from llmgw_agent.version_folder import MARKER, NAME, check_names, content, whole, whole_ones

LOG = logging.getLogger(__name__)

INCOMING = ".incoming"
TRASH = ".trash"

AHEAD = "prefetch"
"""The action of a version that nothing here needs yet."""

AT_ONCE = 4
"""Versions fetched at the same time."""
STALL_S = 60.0
AGAIN_AFTER_S = 60.0
"""Before a version that is only to be held is fetched again after a passing failure."""
SPACE_SHARE = 1.05


@dataclass
class Arrival:
    """One version on its way, or how that ended."""

    order: VersionOrder
    total_bytes: int
    task: asyncio.Future[None] | None = None
    done_bytes: int = 0
    unwanted: threading.Event = field(default_factory=threading.Event)
    fault: Fault | None = None
    lasting: bool = False
    ended: float = 0.0


class Weights:
    """The versions on this node."""

    def __init__(
        self, root: Path, *, pool: Connections, in_use: Callable[[], Collection[str]], writer: str = "w"
    ) -> None:
        """Look at what is there.

        Args:
            root: the folder of the weights; made if it is not there. Agents of other nodes may share it.
            pool: connections to the mirror.
            in_use: keys of the versions some engine runs on.
            writer: tells this agent from the others: no two write into one file.
        """
        self.root, self._pool, self._in_use, self._writer = root, pool, in_use, writer
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="weights")
        self._arrivals: dict[str, Arrival] = {}
        self._held: dict[str, int] = {}
        self._id = ""
        self.fetched_gbs: float | None = None
        """10^9 bytes a second of the last fetch that was large enough to say it."""
        self._spare: list[str] = []
        """Keys of what may go where room is needed, the first first."""
        self.look()
        for left in (root / TRASH).iterdir():
            self._threads.submit(shutil.rmtree, left, ignore_errors=True)

    def look(self) -> None:
        """See what is here, at the beginning and when the folder has become another. Raises OSError."""
        for folder in (self.root, self.root / INCOMING, self.root / TRASH):
            folder.mkdir(parents=True, exist_ok=True)
        folder_id.mark(self.root)
        self._id = folder_id.of(self.root)
        self._held = whole_ones(self.root)

    async def look_again(self) -> bool:
        """See what other agents have brought here or taken away. Whether anything is different."""
        before = dict(self._held)
        same, found = await asyncio.to_thread(lambda: (folder_id.of(self.root) == self._id, whole_ones(self.root)))
        # Another folder, most likely since the disk is unmounted, says nothing of what this one
        # holds; and what this agent itself brought or took away meanwhile is known better here.
        if not same or found == before or self._held != before:
            return False
        self._held = found
        return True

    def report(self) -> tuple[HeldVersion, ...]:
        """Every version here, whole or not, sorted."""
        versions: dict[str, HeldVersion] = {}
        for key, size in self._held.items():
            name, version = key.split("/")
            versions[key] = HeldVersion(name, version, "held", size, size)
        for key, a in self._arrivals.items():
            state, why = ("failed", a.fault.sentence) if a.fault else ("arriving", "")
            if key not in self._held or not a.fault:
                versions[key] = HeldVersion(a.order.name, a.order.version, state, a.done_bytes, a.total_bytes, why)
        return tuple(versions[key] for key in sorted(versions))

    @property
    def arriving(self) -> bool:
        """Whether any version is on its way."""
        return any(not a.fault for a in self._arrivals.values())

    def largest(self) -> Path | None:
        """The largest file of a version that is here whole."""
        files = [path for key in self._held for path in (self.root / key).rglob("*") if path.is_file()]
        return max(files, key=lambda path: (path.stat().st_size, path), default=None)

    def key_of(self, file: Path) -> str:
        """The version a file is of; empty when it is none of ours."""
        if not file.is_relative_to(self.root):
            return ""
        parts = file.relative_to(self.root).parts
        return "/".join(parts[:2]) if len(parts) > 2 and not parts[0].startswith(".") else ""

    def progress(self, key: str) -> Progress | None:
        """How far a version is that is arriving."""
        a = self._arrivals.get(key)
        return Progress("weights", a.done_bytes, a.total_bytes) if a and not a.fault else None

    def obey(self, orders: Iterable[VersionOrder]) -> None:
        """Fetch what should be here, remove what may go. A version that is not spoken of stays as it is."""
        orders = tuple(orders)
        self._spare = [o.key for o in orders if o.action == "spare" and o.key in self._held]
        for order in orders:
            if order.action == "may_remove":
                try:
                    self._remove(order)
                except OSError as e:
                    LOG.warning("%s cannot be removed", order.key, extra={"why": str(e)})
            elif order.action == "hold" and order.key not in self._held and self._worth_trying(order):
                self._begin(order)
        self._fetch_ahead([o for o in orders if o.action == AHEAD])

    def _fetch_ahead(self, orders: list[VersionOrder]) -> None:
        """One at a time, and only while nothing is on its way that is to be here: that has the line for itself."""
        under_way = [a for a in self._arrivals.values() if not a.fault]
        busy = any(a.order.action != AHEAD for a in under_way)
        for arrival in under_way:
            if arrival.order.action == AHEAD and (busy or arrival.order not in orders):
                arrival.unwanted.set()
        if under_way:
            return
        worth = (o for o in orders if o.key not in self._held and self._worth_trying(o))
        if (order := next(worth, None)) is not None:
            self._begin(order)

    async def folder(self, order: VersionOrder) -> Path:
        """The folder of a whole version, fetched first when it is not here. Whoever asks meanwhile joins.

        Raises:
            Fault: it cannot be had, in the words of an operator.
        """
        arrival = self._arrivals.get(order.key)
        if arrival is None or arrival.fault or arrival.order != order:
            arrival = self._begin(order)
        assert arrival.task is not None
        await asyncio.shield(arrival.task)
        if arrival.fault:
            raise arrival.fault
        return self._folder(order)

    async def close(self) -> None:
        """End every fetch; what has arrived stays for the next start."""
        tasks = [a.task for a in self._arrivals.values() if a.task]
        for arrival in self._arrivals.values():
            arrival.unwanted.set()
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _worth_trying(self, order: VersionOrder) -> bool:
        last = self._arrivals.get(order.key)
        if last is None or last.order != order:
            return bool(order.files)
        return bool(last.fault) and not last.lasting and time.monotonic() - last.ended > AGAIN_AFTER_S

    def _folder(self, order: VersionOrder) -> Path:
        return self.root / order.name / order.version

    def _incoming(self, order: VersionOrder) -> Path:
        return self.root / INCOMING / f"{order.name}@{order.version}-{content(order.files)}.{self._writer}"

    def _begin(self, order: VersionOrder) -> Arrival:
        before = self._arrivals.get(order.key)
        arrival = Arrival(order, sum(f.bytes for f in order.files))
        if before is not None:
            before.unwanted.set()
        self._arrivals[order.key] = arrival
        arrival.task = asyncio.ensure_future(self._bring(arrival, before))
        arrival.task.add_done_callback(partial(_broken, arrival))
        return arrival

    async def _bring(self, arrival: Arrival, before: Arrival | None) -> None:
        if before is not None and before.task is not None:
            # One writer for a version, also when its order changed under way.
            await asyncio.wait([before.task])
        order, loop = arrival.order, asyncio.get_running_loop()
        try:
            self._held[order.key] = await loop.run_in_executor(self._threads, self._fetch, arrival)
        except DownloadCancelled:
            arrival.fault = _fault(order, "it is not wanted any more", "nothing")
            if order.action == AHEAD and self._arrivals.get(order.key) is arrival:
                del self._arrivals[order.key]  # it waits for its turn, and has not failed
        except DownloadFailed as e:
            arrival.fault, arrival.lasting = _fault(order, f"{e.what}, {e.why}", e.do), e.lasting
        except OSError as e:
            arrival.fault = _fault(order, f"{e.strerror or e}: {e.filename or self.root}", "look at the node's disk")
        except Fault as e:
            arrival.fault, arrival.lasting = e, True
        arrival.ended = time.monotonic()
        if self._arrivals.get(order.key) is arrival and not arrival.fault:
            del self._arrivals[order.key]

    def _fetch(self, arrival: Arrival) -> int:
        """Bring one version here; in a thread. The bytes it has."""
        try:
            return self._fetch_here(arrival)
        except (OSError, DownloadFailed):
            # Another agent that shares this folder may have been quicker, and then it is here.
            order = arrival.order
            there = whole(self._folder(order))
            if not there or set(there) != set(order.files):
                raise
            self._throw_away(self._incoming(order))
            return sum(f.bytes for f in there)

    def _fetch_here(self, arrival: Arrival) -> int:
        order = arrival.order
        check_names(order)
        final = self._folder(order)
        # Looked at in this order: what another agent publishes in between is seen to be whole.
        exists, there = final.exists(), whole(final)
        if there and (not order.files or set(there) == set(order.files)):
            return sum(f.bytes for f in there)
        if not order.files or not order.sources:
            missing = "files" if not order.files else "source"
            raise _fault(
                order, f"it is not on this node, and its orders name no {missing}", "look at the mirror's state"
            )
        if there and order.key in self._in_use():
            why = "this node runs other files under that name and version"
            raise _fault(order, why, "give a new build a new version")
        incoming = self._incoming(order)
        if exists:
            # Copied by hand, or damaged: what is right of it is kept, since every byte is checked.
            if incoming.exists():
                self._throw_away(incoming)
            final.rename(incoming)
            (incoming / MARKER).unlink(missing_ok=True)
        self._make_space(arrival, incoming)
        had, began = sum(f.stat().st_size for f in incoming.rglob("*") if f.is_file()), time.monotonic()
        for file in sorted(order.files):
            self._one(arrival, file, incoming)
        self._publish(order, incoming, final)
        self.fetched_gbs = disk.rate(arrival.total_bytes - had, time.monotonic() - began) or self.fetched_gbs
        return arrival.total_bytes

    def _make_space(self, arrival: Arrival, incoming: Path) -> None:
        """See that there is room, where need be by letting go of what is spare."""
        short = self._short(arrival, incoming)
        if short > 0:
            for left in (self.root / TRASH).iterdir():
                shutil.rmtree(left, ignore_errors=True)  # now, and not in its time
            short = self._short(arrival, incoming)
        while short > 0 and arrival.order.action != AHEAD and self._spare:
            self._let_go(self._spare.pop(0), arrival.order.key)
            short = self._short(arrival, incoming)
        if short > 0:
            why = f"the disk of {self.root} is {short / 10**9:.1f} GB short"
            raise DownloadFailed("disk full", why=why, do="free space there", cause="disk_full", lasting=False)

    def _short(self, arrival: Arrival, incoming: Path) -> int:
        have = sum(f.stat().st_size for f in incoming.rglob("*") if f.is_file())
        return int((arrival.total_bytes - have) * SPACE_SHARE) - shutil.disk_usage(self.root).free

    def _let_go(self, key: str, wanted: str) -> None:
        folder = self.root / key
        if key in self._in_use() or not folder.exists():
            return
        LOG.info("%s is removed: nothing refers to it, and %s has no room", key, wanted)
        self._held.pop(key, None)
        away = self._away(folder)
        shutil.rmtree(away, ignore_errors=True)

    def _one(self, arrival: Arrival, file: WeightFile, incoming: Path) -> None:
        """One file, from the first source that has it right."""
        part = incoming / file.path
        part.parent.mkdir(parents=True, exist_ok=True)
        before = arrival.done_bytes
        failed: DownloadFailed | None = None
        for source in arrival.order.sources:

            def came(here: int) -> None:
                arrival.done_bytes = before + here

            def stay(url: str, source: str = source) -> None:
                _stay(url, source)

            try:
                download(
                    source + quote(file.path),
                    part,
                    expect_bytes=file.bytes,
                    expect_sha256=file.sha256,
                    on_bytes=came,
                    cancelled=arrival.unwanted.is_set,
                    check_hop=stay,
                    pool=self._pool,
                    stall_s=STALL_S,
                )
            except DownloadFailed as e:
                # The disk is the same for every source. Otherwise the first source's
                # failure is said, unless a later one may pass by itself.
                if e.cause in {"disk_full", "disk"}:
                    raise
                failed = e if failed is None or (failed.lasting and not e.lasting) else failed
            else:
                arrival.done_bytes = before + file.bytes
                return
        assert failed is not None
        raise failed

    def _publish(self, order: VersionOrder, incoming: Path, final: Path) -> None:
        """Make it whole at one moment: everything on disk, then the marker, then its name."""
        wanted = {incoming / f.path for f in order.files}
        for path in incoming.rglob("*"):
            if path.is_file() and path not in wanted:
                path.unlink()
        for folder in (incoming, *(p for p in incoming.rglob("*") if p.is_dir())):
            durable.sync_folder(folder)
        durable.write(incoming / MARKER, msgspec.json.encode(sorted(order.files)), mode=0o644)
        final.parent.mkdir(parents=True, exist_ok=True)
        incoming.rename(final)
        durable.sync_folder(final.parent)
        durable.sync_folder(self.root)
        for old in (self.root / INCOMING).glob(f"{order.name}@{order.version}-*"):
            # What another agent still writes is left to it: it finds that this one was quicker.
            if old.name.rpartition("-")[2].partition(".")[2] in ("", self._writer):
                self._throw_away(old)

    def _remove(self, order: VersionOrder) -> None:
        if order.key in self._in_use() or not NAME.fullmatch(order.name) or not NAME.fullmatch(order.version):
            return
        arrival = self._arrivals.get(order.key)
        if arrival is not None and arrival.task is not None and not arrival.task.done():
            # Ended first; the orders are looked at again.
            arrival.unwanted.set()
            return
        self._arrivals.pop(order.key, None)
        self._held.pop(order.key, None)
        for folder in (self._folder(order), *(self.root / INCOMING).glob(f"{order.name}@{order.version}-*")):
            if folder.exists():
                self._throw_away(folder)

    def _throw_away(self, folder: Path) -> None:
        """Gone at once by name; its bytes follow in a thread."""
        self._threads.submit(shutil.rmtree, self._away(folder), ignore_errors=True)

    def _away(self, folder: Path) -> Path:
        away = self.root / TRASH / f"{folder.name}-{secrets.token_hex(8)}"
        with suppress(FileNotFoundError):  # another agent took it away
            folder.rename(away)
        return away


def _broken(arrival: Arrival, task: asyncio.Future[None]) -> None:
    """A bug of ours ended a fetch: that version has failed, and the others go on."""
    if not task.cancelled() and (error := task.exception()):
        LOG.error("a bug in the agent ended the fetch of %s", arrival.order.key, exc_info=error)
        arrival.fault, arrival.lasting = _fault(arrival.order, "a bug in the agent", "look at its log"), True


def _fault(order: VersionOrder, why: str, do: str) -> Fault:
    return Fault("weights", f"{order.key} is not on this node", why=why, do=do)


def _stay(url: str, source: str) -> None:
    """The mirror does not redirect, and nothing but the source it names is asked."""
    if not url.startswith(source) or urlsplit(url).scheme not in {"http", "https"}:
        raise DownloadFailed(
            "a source was refused",
            why="it leads away from the mirror, or is neither http nor https",
            do="name the mirror's byte listener in server.yaml",
            cause="refused",
            lasting=True,
        )
