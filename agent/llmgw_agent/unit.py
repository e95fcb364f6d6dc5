"""The systemd unit of an agent."""

from __future__ import annotations

import re
from collections.abc import Sequence

# KillMode: engines are children in the unit's own group, and are taken up by
# the next agent; with the default they would end at each restart of it.
# OOMPolicy: the kernel ending one engine must not end the agent and the others.
# RestartPreventExitStatus: refused, or used wrongly; both need a person.
# No PrivateDevices, DeviceAllow or MemoryDenyWriteExecute: each takes the cards
# from an engine, or its compiled kernels.
UNIT = """\
[Unit]
Description=llmgw agent
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
ExecStart={command}
Restart=always
RestartSec=2
RestartPreventExitStatus=4 64
KillMode=process
OOMPolicy=continue
TimeoutStopSec=60
LimitMEMLOCK=infinity
LimitNOFILE=1048576
NoNewPrivileges=yes
ProtectSystem=full

[Install]
WantedBy=multi-user.target
"""


def text(command: Sequence[str]) -> str:
    """The unit that runs this command line."""
    return UNIT.format(command=" ".join(_quoted(word) for word in command))


def _quoted(word: str) -> str:
    """A word as systemd reads it: percent and dollar mean something to it, a space and a quote end a word."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = escaped == word and word and not re.search(r"[\s';]", word)
    return word if plain else f'"{escaped}"'
