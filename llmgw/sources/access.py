"""What we are told of a repository besides its address: how to come to it, and what of it is followed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from llmgw.errors import Refused
from llmgw.units import MIB


class Verify(StrEnum):
    """Whose signature a commit needs."""

    OFF = "off"
    HEAD = "head"
    """The last one's: who signs it vouches for all that it contains."""
    RANGE = "range"
    """Every one's since the last that was followed. What a merge button makes is signed by the server, if at all."""


class OnRewrite(StrEnum):
    """What becomes of a branch whose history was made anew."""

    FOLLOW = "follow"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one exchange with a server may take."""

    connect_s: float = 10.0
    read_s: float = 30.0
    total_s: float = 120.0
    pack_bytes: int = 64 * MIB


@dataclass(frozen=True, slots=True)
class Access:
    """How we come to a repository, and who we are there."""

    token_file: Path | None = None
    """For http(s). Read at each exchange, so that a new token counts at once."""
    token: str | None = None
    """The same, from the environment. A file wins."""
    proxy: str | None = None
    """Of http(s): where its requests go through. ssh has its own way to say that, in its configuration."""
    ssh_key_file: Path | None = None
    """None: the keys that ssh finds by itself."""
    known_hosts_file: Path | None = None
    """The keys of hosts that are believed. None: the files that ssh reads by itself."""
    limits: Limits = Limits()

    def secret(self) -> str | None:
        """The token now. None: there is none.

        Raises:
            Refused: its file cannot be read, or holds none.
        """
        if self.token_file is None:
            return self.token
        try:
            token = self.token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as e:
            raise Refused(
                f"the token file {self.token_file} was not read",
                why=str(getattr(e, "strerror", None) or "it is not a token").lower(),
                do="write the token into it, on one line",
            ) from None
        if not token or not token.isprintable():
            raise Refused(
                f"the token file {self.token_file} holds no token",
                why="it is empty, or has more than one line",
                do="write the token into it, on one line",
            )
        return token
