"""The program `llmgw-agent`: reads its flags, and runs a node until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from llmgw_agent import __version__, log, unit
from llmgw_agent.control import Control
from llmgw_agent.errors import OperatorError, Refused
from llmgw_agent.hold import Hold
from llmgw_agent.node import Node
from llmgw_agent.settings import Settings, read_allow

LOG = logging.getLogger(__name__)

USAGE = 64
DESCRIPTION = "Runs on each node: starts the engines control orders, fetches their weights, reports what is."


class Flags(argparse.ArgumentParser):
    """The flags of the agent. Wrong usage ends with 64, as in every llmgw command."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line, and end."""
        what = "error: llmgw-agent cannot be called like this"
        self.exit(USAGE, f"{what}\n  because {message}\n  next: llmgw-agent --help\n")


def parser() -> argparse.ArgumentParser:
    usage = "llmgw-agent [unit | stop] --control URL --node NAME --key-file FILE --state DIR [options]"
    more = (
        "With the same options, `llmgw-agent unit …` prints a systemd unit, and `llmgw-agent stop …` ends what is left."
    )
    flags = Flags(prog="llmgw-agent", usage=usage, description=DESCRIPTION, epilog=more, allow_abbrev=False)
    add = flags.add_argument
    add("--control", required=True, metavar="URL", help="control's URL")
    add("--node", required=True, metavar="NAME", help="this node's name in server.yaml")
    add("--key-file", required=True, type=Path, metavar="FILE", help="the file with this node's key")
    add("--state", required=True, type=Path, metavar="DIR", help="where weights, logs and records are kept")
    add("--ca-file", type=Path, metavar="FILE", help="certificates that control's and the mirror's are checked by")
    add("--allow-file", type=Path, metavar="FILE", help="what this machine's owner allows, TOML or JSON")
    add("--engine-path", type=Path, metavar="DIR", action="append", default=[], help="looked at before PATH; repeat it")
    add("--reserve-gib", type=float, default=1.0, metavar="GIB", help="memory that is never an engine's (1)")
    add("--stop-engines", action="store_true", help="end the engines with the agent; by default they go on")
    add("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    add("--version", action="version", version=f"llmgw-agent {__version__}")
    return flags


def settings(flags: argparse.Namespace, path: str) -> Settings:
    """Settings from flags and PATH. Raises Refused for what cannot be meant."""
    control = urlsplit(flags.control)
    if control.scheme not in {"http", "https"} or not control.hostname:
        do = "write it as https://control:8083"
        raise Refused(f"--control {flags.control} was not understood", why="it is no http or https URL", do=do)
    if not 0 <= flags.reserve_gib <= 1 << 20:
        raise Refused("--reserve-gib was not understood", why="it is below zero", do="give GiB, for example 1.5")
    for name, file in (("--key-file", flags.key_file), ("--ca-file", flags.ca_file)):
        if file is not None and not file.is_file():
            raise Refused(
                f"{name} {file} cannot be used", why="there is no such file", do="name the file, or put it there"
            )
    return Settings(
        control=flags.control.rstrip("/"),
        node=flags.node,
        key_file=flags.key_file,
        state=flags.state.absolute(),
        ca_file=flags.ca_file,
        allow=read_allow(flags.allow_file) if flags.allow_file else (),
        engine_paths=tuple(p.absolute() for p in flags.engine_path),
        path=tuple(Path(p) for p in path.split(":") if p.startswith("/")),
        reserve_bytes=int(flags.reserve_gib * 2**30),
        stop_engines=flags.stop_engines,
    )


def as_words(flags: argparse.Namespace) -> list[str]:
    """The same flags as a command line that means the same from every folder."""
    words: list[str] = []
    for name, value in vars(flags).items():
        flag = f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, list) else [value]:
            match one:
                case None | False:
                    continue
                case True:
                    words.append(flag)
                case Path():
                    words += [flag, str(one.absolute())]
                case _:
                    words += [flag, str(one)]
    return words


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def run(to: Settings, hold: Hold, *, only_stop: bool = False) -> int:
    """Run a node until SIGTERM or SIGINT. The exit code.

    Args:
        to: what it is told.
        hold: its state folder.
        only_stop: take up what an earlier agent left, end it, and end.
    """
    stop = asyncio.Event()
    if only_stop:
        stop.set()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    control = Control(to)
    try:
        node = Node(to, hold)
    except OSError as e:
        do = "free space there, or look at its rights"
        raise OperatorError(f"--state {to.state} cannot be used", why=str(e), do=do) from None
    where = urlsplit(to.control)
    if where.scheme == "http" and where.hostname not in {"localhost", "::1"} and not _is_loopback(where.hostname or ""):
        LOG.warning("this node's key goes to control unencrypted; use https beyond one machine")
    LOG.info("the agent of %s runs", to.node, extra={"control": to.control, "version": __version__})
    work, told = asyncio.ensure_future(node.run(control)), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({work, told}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()  # the folder is another agent's now, or a bug: it ends the agent and the engines go on
        stuck = await node.end_engines() if to.stop_engines or only_stop else ()
    finally:
        for task in (work, told):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(work, told, return_exceptions=True)
        await node.close()
        await control.close()
    if stuck:
        LOG.error("engines could not be ended: %s", ", ".join(stuck))
        return 1
    LOG.info("the agent ends; %s", "its engines have ended" if to.stop_engines or only_stop else "its engines go on")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line and do it; the exit code, which means the same in every llmgw command."""
    words = list(sys.argv[1:] if argv is None else argv)
    word = words.pop(0) if words[:1] in (["unit"], ["stop"]) else ""
    flags = parser().parse_args(words)
    try:
        if word == "unit":
            print(unit.text([sys.executable, "-I", "-m", "llmgw_agent", *as_words(flags)]), end="")
            return 0
        log.setup(flags.log_level)
        to = settings(flags, os.environ.get("PATH", os.defpath))
        with Hold(to.state) as hold:
            return asyncio.run(run(to, hold, only_stop=word == "stop"))
    except OperatorError as e:
        print(f"error: {e}", file=sys.stderr)
        return e.code
