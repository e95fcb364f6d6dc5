"""`llmgw unit`: a systemd unit for a process, so that a machine's reboot brings it back."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from llmgw.cli import serve
from llmgw.cli.ending import misused
from llmgw.cli.program import installed
from llmgw.errors import Misused
from llmgw.sources.git import local_path


@dataclass(frozen=True, slots=True)
class Process:
    """What is particular to one process's unit."""

    words: tuple[str, ...]
    """The command."""
    function: Any
    """What reads its flags."""
    description: str
    usual: dict[str, str]
    """The flags that are the same on every machine, unless the person gives others."""
    writes: str
    """The flag that names its folder."""
    writable: str
    """The folder below /var/lib that systemd makes for it."""


PROCESSES = {
    "control": Process(
        ("control",),
        serve.control,
        "llmgw control: makes the fleet as its repository asks",
        {"--state": "/var/lib/llmgw-control"},
        "state",
        "llmgw-control",
    ),
    "gateway": Process(
        ("gateway",),
        serve.gateway,
        "llmgw gateway: one OpenAI-compatible endpoint",
        {
            "--control": "http://127.0.0.1:8083",
            "--key-file": "/etc/llmgw/gateway.key",
            "--state": "/var/lib/llmgw-gateway",
        },
        "state",
        "llmgw-gateway",
    ),
    "mirror": Process(
        ("mirror", "serve"),
        serve.mirror,
        "llmgw mirror: holds weights and serves their bytes",
        {"--root": "/var/lib/llmgw-mirror"},
        "root",
        "llmgw-mirror",
    ),
}

HIDES = {
    "ProtectHome": (Path("/home"), Path("/root"), Path("/run/user")),
    "PrivateTmp": (Path("/tmp"), Path("/var/tmp")),  # noqa: S108 - what systemd hides, not where we write
}
"""What each setting takes from the process's sight."""

# RestartPreventExitStatus: refused, or used wrongly; both need a person.
UNIT = """\
# /etc/systemd/system/llmgw-{name}.service
# The user is made by: useradd --system --home-dir /var/lib/{writable} llmgw
[Unit]
Description={description}
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={command}
User=llmgw
StateDirectory={writable}
Restart=always
RestartSec=2
RestartPreventExitStatus=4 64
# It ends by itself within seconds; nothing that runs elsewhere ends with it.
TimeoutStopSec=30
LimitNOFILE=65536
NoNewPrivileges=yes
ProtectSystem=strict
{folders}
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
CapabilityBoundingSet=

[Install]
WantedBy=multi-user.target
"""


def unit(
    process: Annotated[str, typer.Argument(help="control, gateway or mirror. An agent's: llmgw-agent unit.")],
    flags: Annotated[list[str] | None, typer.Argument(help="Its flags, after `--`.")] = None,
) -> None:
    """Print a systemd unit: `llmgw unit control -- --repo URL --cluster lab > /etc/systemd/system/…`."""
    if process not in PROCESSES:
        raise Misused(
            f"there is no unit for {process!r}",
            why="the processes are control, gateway and mirror; the agent has its own",
            do="name one of them, or run: llmgw-agent unit",
        )
    print(text(process, tuple(flags or ())), end="")


def text(process: str, flags: Sequence[str]) -> str:
    """The unit's text.

    Raises:
        Misused: the process would not start with these flags.
    """
    known = PROCESSES[process]
    given = {flag.partition("=")[0] for flag in flags}
    usual = [word for flag, value in known.usual.items() if flag not in given for word in (flag, value)]
    words = [*usual, *flags]
    values = _values(process, words)
    return UNIT.format(
        name=process,
        description=known.description,
        command=" ".join(quoted(word, dollars=True) for word in (str(installed()), *known.words, *words)),
        writable=known.writable,
        folders="\n".join(_folders(known, values)),
    )


def quoted(word: str, *, dollars: bool = False) -> str:
    """A word as systemd reads it: percent, and in a command a dollar, mean something to it.

    Args:
        word: what is meant.
        dollars: whether it is part of a command.
    """
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = escaped.replace("$", "$$") if dollars else escaped
    plain = escaped == word and word and not re.search(r"[\s'\";]", word)
    return word if plain else f'"{escaped}"'


def _values(process: str, words: list[str]) -> dict[str, Any]:
    """The flags as the process itself will read them."""
    known = PROCESSES[process]
    app = typer.Typer(add_completion=False)
    app.command()(known.function)
    try:
        values = get_command(app).make_context(f"llmgw {' '.join(known.words)}", list(words)).params
    except TyperException as e:
        wrong = misused(e)
        raise Misused(f"llmgw {process} would not start", why=wrong.why, do=_example(process)) from None
    for name, value in values.items():
        for path in value if isinstance(value, list | tuple) else (value,):
            if isinstance(path, Path) and not path.is_absolute():
                flag = f"--{name.replace('_', '-')}"
                why = f"{flag} {path} is below the folder you are in, and systemd starts it in /"
                raise Misused(f"llmgw {process} would not find a file", why=why, do=f"write {flag} {path.absolute()}")
    return values


def _example(process: str) -> str:
    needs = {"control": "--repo URL --cluster NAME", "gateway": "--name NAME"}.get(process, "FLAGS")
    return f"llmgw unit {process} -- {needs}"


def _folders(known: Process, values: dict[str, Any]) -> Iterator[str]:
    """What of the disk the process sees, and where it may write."""
    own = Path("/var/lib") / known.writable
    writes = [path for path in (values[known.writes],) if path != own and own not in path.parents]
    # The status is written to the first; the others are only read.
    repo = local_path(values["repo"][0]) if values.get("repo") else None
    if repo is not None:
        writes.append(repo)
    if writes:
        yield "# They have to be there, and the user llmgw has to own them."
        yield f"ReadWritePaths={' '.join(quoted(str(path)) for path in writes)}"
    named = [p for v in values.values() for p in (v if isinstance(v, list | tuple) else (v,)) if isinstance(p, Path)]
    program = [installed(), Path(sys.executable).resolve(), Path(sys.base_prefix), *writes]
    for setting, hidden in HIDES.items():
        below = _below((*program, *named), hidden)
        if below is None:
            yield f"{setting}=yes"
        else:
            yield f"# No {setting}: {below} would not be seen. The user llmgw has to be able to read it."


def _below(paths: Iterable[Path], hidden: Iterable[Path]) -> Path | None:
    """The first that is below one of them."""
    return next((p for p in paths if any(h in (p, *p.parents) for h in hidden)), None)
