"""Being told: messages leave from control itself, also while git is away."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from llmgw.catalog.notifications import Notification
from llmgw.core.notices import Notice, Told, due
from llmgw.core.problems import problems
from llmgw.core.status import FleetStatus
from llmgw.errors import OperatorError, Refused, Unreachable
from llmgw.net.http import Client
from llmgw.net.key import read_key

log = logging.getLogger(__name__)

EVERY_S = 5.0
"""Between two looks at what is wrong."""
WITHIN_S = 20.0
"""One message takes no longer: a receiver that hangs keeps the others waiting for so long and no more."""
TRIES = 5
AGAIN_S = 10.0
"""Until a message that did not arrive is tried again; it doubles."""
SAID_BYTES = 400


class Notifier:
    """Tells receivers, and remembers whom of what. After a restart of control what still is wrong is told once more."""

    def __init__(
        self,
        folder: Path | None,
        look: Callable[[], tuple[FleetStatus, Iterable[Notification], dict[str, str]] | None],
        now: Callable[[], float],
    ) -> None:
        """Tell nobody yet.

        Args:
            folder: where the URLs and programs are that receivers are named by. None: nobody is told.
            look: the status as it is now, who is to be told, and the owner of each model. None: nothing is known yet.
            now: UTC seconds.
        """
        self._folder, self._look, self._now = folder, look, now
        self._told: dict[tuple[str, str], Told] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._warned = False

    async def run(self) -> None:
        """Look and tell for ever."""
        try:
            while True:
                self.turn()
                await asyncio.sleep(EVERY_S)
        finally:
            for task in self._sending:
                task.cancel()

    def turn(self) -> None:
        """Look once, and send what is due without waiting for it to arrive."""
        found = self._look()
        if found is None:
            return
        status, receivers, owners = found
        by_name = {receiver.name: receiver for receiver in receivers}
        if by_name and self._folder is None:
            if not self._warned:
                log.warning("nobody is told of anything: server.yaml has notifications, and control no --notify-dir")
            self._warned = True
            return
        notices, self._told = due(status.cluster, by_name.values(), problems(status), owners, self._told, self._now())
        for notice in notices:
            task = asyncio.create_task(self._send(by_name[notice.receiver], notice))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, receiver: Notification, notice: Notice) -> None:
        assert self._folder is not None
        for tried in range(TRIES):
            try:
                await send(self._folder, receiver, notice)
            except Unreachable as e:
                log.warning("a message did not arrive: %s", e.sentence, extra={"receiver": receiver.name})
                await asyncio.sleep(AGAIN_S * 2**tried)
            except OperatorError as e:
                log.warning("a message was not sent: %s", e.sentence, extra={"receiver": receiver.name})
                return
            else:
                log.info("%s was told: %s", receiver.name, notice.text)
                return


async def send(folder: Path, receiver: Notification, notice: Notice) -> None:
    """One message to one receiver, within a bound.

    Raises:
        Unreachable: it may arrive later.
        Refused: it will not until somebody changes something.
    """
    body = msgspec.json.encode(notice)
    try:
        async with asyncio.timeout(WITHIN_S):
            if receiver.command is not None:
                await _run(folder / receiver.command, receiver.name, body)
            else:
                await _post(folder / str(receiver.url_ref), receiver.name, body)
    except TimeoutError:
        raise Unreachable(
            f"{receiver.name} was not told",
            why=f"it did not take the message within {WITHIN_S:.0f} s",
            do="see what is behind it",
        ) from None


async def _post(file: Path, name: str, body: bytes) -> None:
    url = read_key(file)
    if not re.match(r"https?://[^/\s]+", url):
        raise Refused(f"{name} was not told", why=f"{file} holds no http(s) URL", do="write the webhook's URL into it")
    base, path = _apart(url)
    # The URL is the secret: an error speaks of the receiver, and never of where it is.
    async with Client(base, name=f"the webhook of {name}", timeout_s=WITHIN_S, from_environment=True) as client:
        try:
            answer = await client.call("POST", path, body=body)
        except Unreachable:
            raise Unreachable(
                f"{name} was not told", why="nothing answers at its URL", do=f"see the URL in {file}, and the network"
            ) from None
    if answer.status >= 400:
        kind = Unreachable if answer.status in {408, 429} or answer.status >= 500 else Refused
        raise kind(f"{name} was not told", why=f"its webhook answers {answer.status}", do=f"see the URL in {file}")


def _apart(url: str) -> tuple[str, str]:
    found = re.fullmatch(r"(https?://[^/?#]+)(.*)", url)
    assert found is not None
    path = found[2] or "/"
    return found[1], path if path.startswith("/") else f"/{path}"


async def _run(program: Path, name: str, body: bytes) -> None:
    try:
        child = await asyncio.create_subprocess_exec(
            program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as e:
        raise Refused(
            f"{name} was not told",
            why=f"{program} cannot be run: {(e.strerror or type(e).__name__).lower()}",
            do="put a program there that may be run, and reads a message from its standard input",
        ) from None
    try:
        _, said = await child.communicate(body)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        words = " ".join(said[-SAID_BYTES:].decode("utf-8", "replace").split())
        raise Unreachable(
            f"{name} was not told", why=f"{program.name} ended with {child.returncode}: {words}", do="see the program"
        )
