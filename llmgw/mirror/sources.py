"""Where the mirror may read from: named hosts and named folders, asked about at every step."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote, unquote, urlsplit

from llmgw.catalog.origin import COMMIT, Place, origin
from llmgw.errors import Refused
from llmgw.net.key import read_key
from llmgw.sources.hub import ENDPOINT
from llmgw_agent.fetch.download import Address, DownloadFailed, Source, system_addresses

DEFAULT_HOSTS = ("huggingface.co", "*.huggingface.co", "*.hf.co")
"""Hugging Face, and where its files are redirected to."""

_PORTS = {"http": 80, "https": 443}


class _Host(NamedTuple):
    """One `--allow-host`: a name, `*.name` for every name below it, or an address; and a port."""

    name: str
    port: int | None
    """None is the port of the scheme."""

    @classmethod
    def of(cls, text: str) -> Self:
        try:
            split = urlsplit(f"//{text}")
            name, port = (split.hostname or "").rstrip("."), split.port
        except ValueError:
            name, port = "", None
        if not name or split.path or split.query or "@" in text:
            raise Refused(
                f"--allow-host {text!r} is not a host",
                why="it is a name, *.name or an address, and may end in :PORT",
                do="write it like huggingface.co, *.hf.co, 10.0.0.7:8000 or [::1]:8000",
            )
        return cls(name, port)

    def covers(self, host: str, port: int, scheme: str) -> bool:
        below = self.name.startswith("*.") and host.endswith(self.name[1:])
        return (below or host == self.name) and port == (self.port or _PORTS[scheme])


class Sources:
    """What is allowed, and the checks that `download` is given."""

    def __init__(
        self,
        *,
        folders: Sequence[Path] = (),
        hosts: Sequence[str] = (),
        usual: bool = True,
        hub: str = ENDPOINT,
        token_file: Path | None = None,
    ) -> None:
        """Allow nothing that is not named.

        Args:
            folders: that files of this machine may lie in.
            hosts: to talk to. They may speak plain http.
            usual: talk to the usual ones too. They all speak TLS.
            hub: where `hf://` leads. Whoever names another allows it by that.
            token_file: holds the token that the hub, and no other host, is sent.
        """
        self.hub, self.token_file = hub.rstrip("/"), token_file
        named = urlsplit(self.hub).netloc.lower() if self.hub != ENDPOINT else ""
        self._own_hub = (urlsplit(self.hub).hostname or "").rstrip(".") if named else None
        self._folders = tuple(folder.resolve() for folder in folders)
        self._named = tuple(_Host.of(text.lower()) for text in (*hosts, *([named] if named else [])))
        self._hosts = (*self._named, *(_Host.of(text) for text in (DEFAULT_HOSTS if usual else ())))

    def problem(self, url: str) -> str:
        """Why this URL may not be read, or empty. Touches no network."""
        try:
            split = urlsplit(url)
            port = split.port
        except ValueError:
            return "it is not a URL"
        if split.scheme == "hf":
            return self._hub_problem(url)
        if split.scheme == "file":
            return self._file_problem(split.netloc, Path(unquote(split.path)))
        if split.scheme not in _PORTS:
            return "it is none of hf://, https://, http:// and file://"
        if split.username is not None or split.password is not None:
            return "it carries a user name or a password"
        host = (split.hostname or "").rstrip(".")
        asked = host, port or _PORTS[split.scheme], split.scheme
        if not any(h.covers(*asked) for h in self._hosts):
            at = f"{host}:{port}" if port else host
            return f"{at} is not among the hosts the mirror may talk to; start it with --allow-host {at}"
        if split.scheme == "http" and not any(h.covers(*asked) for h in self._named):
            return f"{host} is read over https only"
        return ""

    def located(self, url: str) -> str:
        """Where a file is had from: its address at the hub, for one that is named by repository and commit."""
        found = origin({"from": url})
        if found is None or found.place is not Place.HUB:
            return url
        return f"{self.hub}/{found.at}/resolve/{quote(found.revision, safe='')}/{quote(found.patterns[0])}"

    def private(self, url: str) -> dict[str, str]:
        """What is sent beside the request for a located URL, to its own host alone.

        Raises:
            Refused: the token cannot be read.
        """
        if self.token_file is None or not url.startswith(f"{self.hub}/"):
            return {}
        return {"Authorization": f"Bearer {read_key(self.token_file)}"}

    def check(self, url: str) -> None:
        """The same as an error, for a download that is under way.

        Raises:
            DownloadFailed: it may not be read.
        """
        if problem := self.problem(url):
            raise _refused(url, problem)

    def addresses(self, host: str, port: int) -> Sequence[Address]:
        """Where a host may be reached: what it resolves to, if all of that is public.

        A name that leads to this machine or into its network would make the mirror
        a way in (a metadata service, a database). An address that somebody named
        as such, and `localhost`, are meant. What is checked is what is connected to.

        Raises:
            DownloadFailed: it leads where it may not.
        """
        found = system_addresses(host, port)
        plain = host.strip("[]").rstrip(".").lower()
        if plain in {"localhost", self._own_hub} or _ip(plain) is not None:
            return found  # only here if it was named: `check` came first
        for _, address in found:
            ip = _ip(str(address[0]).partition("%")[0])
            if ip is None or not _is_public(ip):
                raise _refused(f"//{host}", f"{host} resolves to {address[0]}, which is not a public address")
        return found

    def check_path(self, path: Path) -> None:
        """Whether a path of this machine may be read.

        Raises:
            Refused: it may not.
        """
        if problem := self._file_problem("", path):
            raise Refused(
                f"{path} may not be read", why=problem, do="start the mirror with --allow-files, or lock on a node"
            )

    def _hub_problem(self, url: str) -> str:
        found = origin({"from": url})
        if found is None or not COMMIT.fullmatch(found.revision) or found.needs_lock:
            return "a file of a hub is named by its commit: run llmgw lock"
        return self.problem(self.located(url))

    def _file_problem(self, netloc: str, path: Path) -> str:
        if netloc not in {"", "localhost"}:
            return "a file:// URL names a file of this machine: write file:///path"
        if "\0" in str(path) or not path.is_absolute():
            return "a file:// URL names an absolute path: write file:///path"
        if not self._folders:
            return "the mirror reads no files; start it with --allow-files DIR"
        real = Path(os.path.realpath(path))
        if not any(real.is_relative_to(folder) for folder in self._folders):
            return f"it is not below {' or '.join(map(str, self._folders))}; start the mirror with --allow-files DIR"
        return ""


def _refused(url: str, problem: str) -> DownloadFailed:
    return Source(url).failed("refused", problem, "correct the source, or what the mirror is allowed")


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_public(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    inner = None
    if isinstance(ip, ipaddress.IPv6Address):
        # An IPv4 address in IPv6 clothes: mapped, 6to4, or behind NAT64.
        nat64 = ip in ipaddress.ip_network("64:ff9b::/96")
        inner = ip.ipv4_mapped or ip.sixtofour or (ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF) if nat64 else None)
    if inner is not None:
        return _is_public(inner)
    return ip.is_global and not ip.is_multicast
