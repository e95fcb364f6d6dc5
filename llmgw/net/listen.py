"""Listening on an address, or saying who is there already."""

from __future__ import annotations

import errno
import socket
from ipaddress import ip_address
from pathlib import Path

from llmgw.errors import Refused


def parse_address(text: str, *, port: int) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `HOST` or `[V6]:PORT`.

    Args:
        text: as it was written.
        port: where none is.

    Raises:
        Refused: it is no address.
    """
    host, colon, number = text.strip().rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        host, number = text.strip(), ""
    host = host.removeprefix("[").removesuffix("]")
    if not host or (number and not (number.isdecimal() and int(number) <= 65_535)):
        raise Refused(f"{text!r} is no address to listen on", why="it is HOST:PORT", do=f"write 127.0.0.1:{port}")
    return host, int(number) if number else port


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it. A name other than localhost may be anywhere."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listener(who: str, address: tuple[str, int], *, flag: str) -> socket.socket:
    """A bound socket.

    Args:
        who: what listens, as errors say it.
        address: host and port; port 0 is any free one.
        flag: the option that changes it.

    Raises:
        Refused: the address is in use, or is none of this machine's.
    """
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(1024)
    except OSError as e:
        sock.close()
        raise _refused(who, host, port, flag, e) from None
    sock.setblocking(False)
    return sock


def _refused(who: str, host: str, port: int, flag: str, error: OSError) -> Refused:
    what = f"{who} cannot listen on {host}:{port}"
    if error.errno == errno.EADDRINUSE:
        holder = _holder(port)
        why = f"{holder} listens there already" if holder else "another process listens there already"
        return Refused(what, why=why, do=f"stop it, or give another port with {flag}")
    return Refused(what, why=error.strerror or str(error), do=f"give an address of this machine with {flag}")


def _holder(port: int) -> str:
    """`python (pid 123)`, as far as /proc tells."""
    inodes = {
        fields[9]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for fields in _rows(table)
        if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port
    }
    for directory in Path("/proc").iterdir() if inodes else ():
        if directory.name.isdigit() and _has_socket(directory / "fd", inodes):
            try:
                return f"{(directory / 'comm').read_text().strip()} (pid {directory.name})"
            except OSError:
                continue
    return ""


def _rows(table: str) -> list[list[str]]:
    try:
        return [line.split() for line in Path(table).read_text(encoding="ascii").splitlines()[1:]]
    except OSError:
        return []


def _has_socket(descriptors: Path, inodes: set[str]) -> bool:
    try:
        return any(str(fd.readlink()) in {f"socket:[{i}]" for i in inodes} for fd in descriptors.iterdir())
    except OSError:
        return False
