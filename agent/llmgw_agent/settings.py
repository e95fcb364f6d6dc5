"""What an agent is told when it starts: its flags, and the machine's own file of permissions."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from llmgw_agent.errors import Refused

KINDS = ("command", "binary", "env")
"""What an allow file may name, besides `path:/prefix`."""


@dataclass(frozen=True)
class Pace:
    """How often it looks and how long it waits, in seconds."""

    watch_s: float = 5.0
    """Between two looks at an engine that serves. llama-server overlooks clients
    that left while it is asked more often than about every 2 s."""
    start_s: float = 0.25
    """Between two looks at one that loads: nobody else talks to it yet."""
    measure_s: float = 1.0
    """Between two looks at what one that loads reads and prints."""
    idle_gap_s: float = 2.0
    """Between two looks at a draining one. Idle is what both find."""
    wedged_after_s: float = 180.0
    """An engine without any sign of progress for this long is wedged. A prompt of
    thousands of tokens on a slow CPU keeps one quiet for a minute or two."""
    term_s: float = 10.0
    """From asking a process to end to ending it."""
    kill_s: float = 15.0
    """From ending it to giving up on a process that the kernel does not let go."""
    probe_s: float = 30.0
    """Between two looks at the machine."""
    measure_memory_after_s: float = 10.0
    """From its start until it measures how fast memory is read."""


@dataclass(frozen=True)
class Settings:
    """One agent's settings, read once."""

    control: str
    """Control's URL."""
    node: str
    key_file: Path
    state: Path
    ca_file: Path | None = None
    allow: tuple[str, ...] = ()
    engine_paths: tuple[Path, ...] = ()
    """Where engines are looked for before `path`."""
    path: tuple[Path, ...] = ()
    """The folders of PATH."""
    reserve_bytes: int = 1 << 30
    """Host memory that is never an engine's."""
    stop_engines: bool = False
    """Whether the engines end with the agent."""
    pace: Pace = field(default_factory=Pace)

    @property
    def weights(self) -> Path:
        return self.state / "weights"


def read_allow(file: Path) -> tuple[str, ...]:
    """What the machine's owner allows, from `allow` of a TOML or JSON file, sorted.

    Raises:
        Refused: the file cannot be read, or names what does not exist.
    """
    do = 'write for example: allow = ["env", "path:/mnt/models"]'
    try:
        text = file.read_text()
        values = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as e:
        raise Refused(f"the allow file {file} cannot be read", why=e.strerror or str(e), do=do) from None
    except (ValueError, RecursionError) as e:
        raise Refused(f"the allow file {file} does not parse", why=str(e), do=do) from None
    allow = values.get("allow") if isinstance(values, dict) and set(values) == {"allow"} else None
    if not isinstance(allow, list) or not all(isinstance(a, str) for a in allow):
        raise Refused(f"the allow file {file} is not understood", why="it has one key, allow, a list of text", do=do)
    for one in allow:
        if (one not in KINDS and not one.startswith("path:/")) or "\0" in one:
            known = ", ".join(KINDS)
            raise Refused(f"the allow file {file} allows {one!r}", why=f"there are {known} and path:/prefix", do=do)
    return tuple(sorted(set(allow)))
