"""Process 1, put together: the repository, the fleet's API, the loop and the status.

Everything this process is told is read here, once. Nothing of it is lost with
its disk: what runs is reported by the nodes, and what a restart must know
besides is in the status branch.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from llmgw.catalog.notifications import Notification
from llmgw.control.callers import CallerId, LocalKeys, Role, callers, read_local, sha256_of
from llmgw.control.follow import Followed, Follower
from llmgw.control.hooks import Hooks
from llmgw.control.loop import Loop
from llmgw.control.notify import Notifier
from llmgw.control.operators import Operators
from llmgw.control.tables import Tables
from llmgw.control.writer import LOOK_S, Writer
from llmgw.core.history import Known, Line, taken_up
from llmgw.core.memory import Memory
from llmgw.core.status import FleetStatus
from llmgw.core.wanted import Wanted
from llmgw.errors import OperatorError, Refused
from llmgw.net.answers import refusal
from llmgw.net.clock import steady
from llmgw.net.listen import is_loopback
from llmgw.net.port import IDLE_S, Port
from llmgw.sources import signing
from llmgw.sources.access import Access, OnRewrite, Verify
from llmgw.sources.admission import Admission
from llmgw.sources.fleet import LARGEST_REPORT_BYTES, Reports
from llmgw.sources.git import Source, local_path, open_source
from llmgw.sources.history_files import read_lines
from llmgw.sources.resumed import observed, remembered
from llmgw.sources.several import Several
from llmgw.sources.signatures import Signers
from llmgw.sources.status_branch import StatusBranch
from llmgw.sources.status_files import Recorded, from_files

log = logging.getLogger(__name__)

ENDING_S = 0.2
"""What a call may take that is under way when control stops. The others wait for news that will not come."""
LAST_FILES = 2
"""Of history are read at the start: the youngest may have begun a minute ago."""
DEFAULT_PORT = 8083
MAX_CONNECTIONS = 30_000
"""One waits here of every agent and gateway; fewer where the process may have fewer descriptors."""

Handler = Callable[[web.Request, CallerId], Awaitable[web.Response]]


@dataclass(frozen=True, slots=True)
class ControlConfig:
    """What control must know before it can read the repository."""

    repo: str
    cluster: str
    state: Path
    """Caches, and nothing that is missed."""
    branch: str = "main"
    mode: str = "head"
    """head | worktree: what is committed, or the files as they are."""
    listen: tuple[str, int] = ("127.0.0.1", DEFAULT_PORT)
    local_keys: Path | None = None
    also: tuple[str, ...] = ()
    """Other places of the repository, followed in this order while the ones before are away."""
    access: Access = field(default_factory=Access)
    """To the repository, wherever it is."""
    verify: Verify = Verify.OFF
    signers: Signers | None = None
    on_rewrite: OnRewrite = OnRewrite.FOLLOW
    hook_secret_file: Path | None = None
    """Holds what git servers sign their calls of `/hooks/git` with. None: it is not served."""
    notify_dir: Path | None = None
    """Where the URLs and programs are that notifications name. None: nobody is told."""
    mirror_key_file: Path | None = None
    status_sign_key: Path | None = None
    """Holds the private SSH key that status commits are signed with. None: they are not."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    """Listen beyond loopback without TLS."""
    poll_s: float = 30.0
    look_s: float = LOOK_S
    """How soon it is noticed that somebody else wrote to the status branch or deleted it."""


async def serve(config: ControlConfig, *, ready: Callable[[tuple[str, int]], None] | None = None) -> None:
    """Run until told to stop.

    Args:
        config: all it is told.
        ready: called with the bound address.

    Raises:
        Refused: it cannot start as it is told to: the repository is not there, the port is in use.
    """
    _check(config)
    config.state.mkdir(parents=True, exist_ok=True)
    process = Control(config, *await asyncio.to_thread(_recorded, config))
    await process.run(ready)


def _check(config: ControlConfig) -> None:
    host = config.listen[0]
    if not is_loopback(host) and config.tls_cert is None and not config.insecure:
        raise Refused(
            f"control does not listen on {host} without TLS",
            why="keys of nodes and operators would cross the network readable",
            do="give --tls-cert and --tls-key, or --insecure where the network is trusted",
        )
    status = f"llmgw/status/{config.cluster}"
    if config.branch.removeprefix("refs/heads/") == status:
        raise Refused(
            f"control does not follow {status}",
            why="it is the branch that control writes the status to, and not what anybody asks for",
            do="name the branch of the catalog: --branch main",
        )
    if config.status_sign_key is not None:
        signing.check(config.status_sign_key)


def _recorded(config: ControlConfig) -> tuple[Recorded | None, str, list[Line]]:
    """What the status branch says, which commit that is and its last lines. None: nothing that can be used."""
    branch = _status_branch(config)
    commit, lines = "", list[Line]()
    try:
        tree = branch.read()
        commit = tree.commit if tree else ""
        lines = read_lines(branch.history(commit, last=LAST_FILES))[0] if tree else []
        recorded = from_files(tree.files, whole=False) if tree else None
    except OperatorError as e:
        # Control goes on without it: nodes report what runs, and the next commit writes it anew.
        log.warning("the status branch was not taken up: %s", e.sentence)
    except Exception:
        # Whoever may push may write there: no file of it is worth a control that does not start.
        log.exception("the status branch was not taken up")
    else:
        for problem in recorded.problems if recorded else ():
            log.warning("a file of the status branch was not taken up: %s", problem)
        return recorded, commit, lines
    finally:
        branch.close()
    return None, commit, lines


def _source(config: ControlConfig, last: Wanted | None) -> Source:
    """The repository, in all its places. Each place judges its commits by itself, from the last one carried out."""
    places = [
        open_source(
            place,
            branch=config.branch,
            state=config.state / "repository",
            mode=config.mode,
            access=config.access,
            admission=Admission(
                signers=config.signers,
                verify=config.verify,
                on_rewrite=config.on_rewrite,
                since=last.applied if last and last.applied else None,
            ),
        )
        for place in (config.repo, *config.also)
    ]
    return places[0] if len(places) == 1 else Several(places)


def _status_branch(config: ControlConfig) -> StatusBranch:
    return StatusBranch(
        config.repo, config.cluster, config.state / "status", config.access, sign_key=config.status_sign_key
    )


class Control:
    """One running control."""

    def __init__(self, config: ControlConfig, recorded: Recorded | None, tip: str, lines: Sequence[Line]) -> None:
        """Wire the parts; nothing runs yet. `tip` is the status branch's last commit, `lines` its last ones."""
        self._config = config
        now = steady()
        self._local = read_local(config.local_keys) if config.local_keys else LocalKeys()
        self._callers: Mapping[str, CallerId] = {}
        self._source = _source(config, recorded.wanted if recorded else None)
        news = asyncio.Event()
        self._reports = Reports(on_news=news.set)
        self._tables = Tables(on_demand=news.set)
        self._branch = _status_branch(config)
        self._writer = Writer(
            self._branch,
            cluster=config.cluster,
            committed=recorded.status if recorded else None,
            tip=tip,
            now=now,
            look_s=config.look_s,
        )
        if recorded:
            self._reports.seed(observed(recorded).nodes)
        self.loop = Loop(
            memory=remembered(recorded, now=now()) if recorded else Memory(started_at=now()),
            news=news,
            reports=self._reports,
            tables=self._tables,
            writer=self._writer,
            known=taken_up(recorded.status, lines) if recorded else Known(),
            mirror_key_file=config.mirror_key_file,
            before_first=self._judge_again,
            now=now,
            troubles=lambda: (*self._follower.conditions, *self._writer.conditions),
        )
        self._follower = Follower(
            self._source,
            cluster=config.cluster,
            local=local_path(config.repo) is not None,
            last=recorded.wanted if recorded else None,
            running=self.loop.running,
            held=self.loop.held,
            nodes=lambda: self.loop.observe().nodes,
            poll_s=config.poll_s,
            on_trouble=news.set,
        )
        self._operators = Operators(self.loop, self._writer, self._follower)
        self._notifier = Notifier(config.notify_dir, self._to_tell, now)
        self._hooks = Hooks(config.hook_secret_file, self._follower.look_soon, now)

    async def run(self, ready: Callable[[tuple[str, int]], None] | None) -> None:
        """Serve, follow and pass until told to stop; then commit what is left and end."""
        port = Port(
            self._app(), who="control", most=MAX_CONNECTIONS, idle_s=IDLE_S, ends_with_client=True, ending_s=ENDING_S
        )
        try:
            await self._follower.first_look(self._found)
            where = await port.open("control", self._config.listen, flag="--listen", tls=self._tls())
            if ready is not None:
                ready(where)
            await self._work(_stop_event())
        finally:
            await self._writer.flush()
            await port.close()
            await self.loop.close()
            self._branch.close()
            self._source.close()

    async def _work(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            work = [
                tasks.create_task(self._follower.follow(self._found)),
                tasks.create_task(self.loop.watch_mirror()),
                tasks.create_task(self.loop.run()),
                tasks.create_task(self._writer.run()),
                tasks.create_task(self._notifier.run()),
            ]
            await stop.wait()
            for task in work:
                task.cancel()

    def _to_tell(self) -> tuple[FleetStatus, Sequence[Notification], dict[str, str]] | None:
        """What is wrong, who is told of that, and whose each model is. None: nothing is known yet."""
        wanted = self.loop.followed.wanted if self.loop.followed else None
        if wanted is None or self.loop.said is None or not self.loop.said.settled:
            return None
        owners = {name: entry.model.owner for name, entry in wanted.models.items()}
        return self.loop.said, wanted.server.notifications, owners

    async def _judge_again(self) -> None:
        await self._follower.judge_again(self._found)

    def _found(self, followed: Followed) -> None:
        if followed.wanted is not None:
            self._callers = callers(followed.wanted.server, self._local)
        self.loop.found(followed)

    def _tls(self) -> ssl.SSLContext | None:
        if self._config.tls_cert is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self._config.tls_cert, self._config.tls_key)
        except (OSError, ssl.SSLError) as e:
            raise Refused(
                "the certificate of control cannot be used", why=str(e), do="name a PEM certificate and its key"
            ) from None
        return context

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_REPORT_BYTES)
        routes = app.router
        routes.add_post("/agent/v1/report", self._for(Role.NODE, lambda r, c: self._reports.handle(r, c.name)))
        routes.add_get("/gateway/v1/table", self._for(Role.GATEWAY, lambda r, _: self._tables.get(r)))
        routes.add_post("/gateway/v1/demand", self._for(Role.GATEWAY, lambda r, c: self._tables.demand(r, c.name)))
        routes.add_post("/hooks/git", self._hooks.pushed)
        routes.add_get("/v1/health", self._operators.health)
        routes.add_get("/metrics", self._for(Role.OPERATOR, lambda r, _: self._operators.metrics(r)))
        routes.add_get("/v1/status", self._for(Role.OPERATOR, lambda r, _: self._operators.status(r)))
        routes.add_get("/v1/figures/{model}", self._for(Role.OPERATOR, lambda r, _: self._operators.figures(r)))
        routes.add_get("/v1/seen", self._for(Role.OPERATOR, lambda r, _: self._operators.seen(r)))
        return app

    def _for(self, role: Role, handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def checked(request: web.Request) -> web.Response:
            if not self._callers:
                return refusal(503, "control has not read its repository yet", "it has just started", "try again")
            sent = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
            caller = self._callers.get(sha256_of(sent))
            if caller is None:
                return refusal(
                    401,
                    "this key is not known here",
                    "server.yaml lists the sha256 of every key that may call",
                    "make one with `llmgw key new`, and merge what it prints",
                )
            if caller.role is not role:
                return refusal(
                    403, f"this is the key of a {caller.role}", f"this path is for a {role}", f"use a {role}'s key"
                )
            return await handler(request, caller)

        return checked


def _stop_event() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
