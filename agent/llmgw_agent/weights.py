"""Weights on the node: fetched once a version, checked against the orders, removed only when told to."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from llmgw_agent import durable
from llmgw_agent.dossier import Fault
from llmgw_agent.fetch.download import Connections, DownloadCancelled, DownloadFailed, download
from llmgw_agent.protocol import HeldVersion, Progress, VersionOrder, WeightFile

LOG = logging.getLogger(__name__)

MARKER = ".llmgw-complete"
"""Written last into a version's folder: without it the folder is not whole, whatever it holds."""
INCOMING = ".incoming"
TRASH = ".trash"

AT_ONCE = 4
"""Versions fetched at the same time."""
STALL_S = 60.0
AGAIN_AFTER_S = 60.0
"""Before a version that is only to be held is fetched again after a passing failure."""
SPACE_SHARE = 1.05

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
PATH = re.compile(r"[A-Za-z0-9+_-][A-Za-z0-9._+-]*(/[A-Za-z0-9+_-][A-Za-z0-9._+-]*){0,3}")


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

    def __init__(self, root: Path, *, pool: Connections, in_use: Callable[[], Collection[str]]) -> None:
        """Look at what is there.

        Args:
            root: the folder of the weights; made if it is not there.
            pool: connections to the mirror.
            in_use: keys of the versions some engine runs on.
        """
        self.root, self._pool, self._in_use = root, pool, in_use
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="weights")
        self._arrivals: dict[str, Arrival] = {}
        self._held: dict[str, int] = {}
        self.look()
        for left in (root / TRASH).iterdir():
            self._threads.submit(shutil.rmtree, left, ignore_errors=True)

    def look(self) -> None:
        """See what is here, at the beginning and when the folder has become another. Raises OSError."""
        for folder in (self.root, self.root / INCOMING, self.root / TRASH):
            folder.mkdir(parents=True, exist_ok=True)
        self._held.clear()
        for marker in self.root.glob(f"[!.]*/[!.]*/{MARKER}"):
            # One that no order could name is none, and its name might not even be text.
            named = NAME.fullmatch(marker.parent.name) and NAME.fullmatch(marker.parent.parent.name)
            if named and (files := whole(marker.parent)):
                self._held[f"{marker.parent.parent.name}/{marker.parent.name}"] = sum(f.bytes for f in files)

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
        for order in orders:
            if order.action == "may_remove":
                try:
                    self._remove(order)
                except OSError as e:
                    LOG.warning("%s cannot be removed", order.key, extra={"why": str(e)})
            elif order.key not in self._held and self._worth_trying(order):
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
        order = arrival.order
        _check_names(order)
        final = self._folder(order)
        there = whole(final)
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
        incoming = self.root / INCOMING / f"{order.name}@{order.version}-{_content(order.files)}"
        if final.exists():
            # Copied by hand, or damaged: what is right of it is kept, since every byte is checked.
            if incoming.exists():
                self._throw_away(incoming)
            final.rename(incoming)
            (incoming / MARKER).unlink(missing_ok=True)
        self._check_space(arrival, incoming)
        for file in sorted(order.files):
            self._one(arrival, file, incoming)
        self._publish(order, incoming, final)
        return arrival.total_bytes

    def _check_space(self, arrival: Arrival, incoming: Path) -> None:
        have = sum(f.stat().st_size for f in incoming.rglob("*") if f.is_file())
        short = int((arrival.total_bytes - have) * SPACE_SHARE) - shutil.disk_usage(self.root).free
        if short > 0:
            why = f"the disk of {self.root} is {short / 10**9:.1f} GB short"
            raise DownloadFailed("disk full", why=why, do="free space there", cause="disk_full", lasting=False)

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
        away = self.root / TRASH / f"{folder.name}-{time.monotonic_ns()}"
        folder.rename(away)
        self._threads.submit(shutil.rmtree, away, ignore_errors=True)


def whole(folder: Path) -> tuple[WeightFile, ...] | None:
    """The files of a version that is complete, or None. Sizes are compared; sums were, when it came."""
    try:
        files = durable.decode((folder / MARKER).read_bytes(), tuple[WeightFile, ...])
        if files and all((folder / f.path).stat().st_size == f.bytes for f in files):
            return files
    except (OSError, ValueError):  # a name with a NUL in it is a ValueError, and so is Damaged
        pass
    return None


def in_place(path: str, allow: Collection[str]) -> Path:
    """Weights that are on the machine already, where its owner allows them to be read.

    Raises:
        Fault: not allowed, or not there.
    """
    what = f"{path} was not loaded"
    real = Path(os.path.realpath(path))
    prefixes = [Path(os.path.realpath(a.removeprefix("path:"))) for a in allow if a.startswith("path:/")]
    if not path.startswith("/") or not any(real.is_relative_to(prefix) for prefix in prefixes):
        shown = ", ".join(str(p) for p in prefixes) or "no path"
        do = f'add "path:{Path(path).parent}" to the agent\'s allow file, or use a source the mirror fetches'
        raise Fault("refused", what, why=f"this node's allow file allows {shown}", do=do)
    if not real.exists():
        raise Fault("weights", what, why="there is nothing at that path", do="put it there, or mount its filesystem")
    if not os.access(real, os.R_OK):
        raise Fault("weights", what, why="the agent's user may not read it", do="give it the right to read")
    return real


def _broken(arrival: Arrival, task: asyncio.Future[None]) -> None:
    """A bug of ours ended a fetch: that version has failed, and the others go on."""
    if not task.cancelled() and (error := task.exception()):
        LOG.error("a bug in the agent ended the fetch of %s", arrival.order.key, exc_info=error)
        arrival.fault, arrival.lasting = _fault(arrival.order, "a bug in the agent", "look at its log"), True


def _fault(order: VersionOrder, why: str, do: str) -> Fault:
    return Fault("weights", f"{order.key} is not on this node", why=why, do=do)


def _content(files: Iterable[WeightFile]) -> str:
    """Names the content, so that a part is never continued with another's bytes."""
    return hashlib.sha256(msgspec.json.encode(sorted(files))).hexdigest()[:16]


def _check_names(order: VersionOrder) -> None:
    """Refuse what would leave its folder, or be two files that are one on some disks."""
    bad = [n for n in (order.name, order.version) if not NAME.fullmatch(n)]
    bad += [f.path for f in order.files if not PATH.fullmatch(f.path) or len(f.path) > 200]
    folded = [f.path.casefold() for f in order.files]
    if bad or len(set(folded)) != len(folded):
        why = f"{bad[0]!r} is no name for a file here" if bad else "two of its files have one name"
        raise Fault("weights", "a version was refused", why=why, do="rename it at the source")


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
