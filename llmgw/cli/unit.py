"""`llmgw unit`: a systemd unit for a process, so that a machine's reboot brings it back."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from llmgw.errors import Misused


@dataclass(frozen=True, slots=True)
class Process:
    """What is particular to one process's unit."""

    words: tuple[str, ...]
    """The command."""
    description: str
    flags: tuple[str, ...]
    """What it needs, where the person gives nothing else."""
    writable: str
    """The folder below /var/lib that is its own."""


PROCESSES = {
    "control": Process(
        ("control",),
        "llmgw control: makes the fleet as its repository asks",
        ("--repo", "https://git.example/fleet.git", "--cluster", "lab", "--state", "/var/lib/llmgw-control"),
        "llmgw-control",
    ),
    "gateway": Process(
        ("gateway",),
        "llmgw gateway: one OpenAI-compatible endpoint",
        (
            *("--control", "http://127.0.0.1:8083", "--name", "g1"),
            *("--key-file", "/etc/llmgw/gateway.key", "--state", "/var/lib/llmgw-gateway"),
        ),
        "llmgw-gateway",
    ),
    "mirror": Process(
        ("mirror", "serve"),
        "llmgw mirror: holds weights and serves their bytes",
        ("--root", "/var/lib/llmgw-mirror"),
        "llmgw-mirror",
    ),
}

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
# It ends by itself within seconds; nothing that runs elsewhere ends with it.
TimeoutStopSec=30
LimitNOFILE=65536
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
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


def text(process: str, flags: tuple[str, ...]) -> str:
    """The unit's text."""
    known = PROCESSES[process]
    command = shlex.join((_program(), *known.words, *(flags or known.flags)))
    return UNIT.format(name=process, description=known.description, command=command, writable=known.writable)


def _program() -> str:
    """The installed command beside this Python, which need not be on the PATH of systemd."""
    beside = Path(sys.executable).with_name("llmgw")
    return str(beside) if beside.exists() else shutil.which("llmgw") or "/usr/local/bin/llmgw"
