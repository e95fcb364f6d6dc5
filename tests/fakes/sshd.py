"""A real sshd on loopback, for a key of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from llmgw.sources.access import Access, Limits

QUICK = Limits(connect_s=4, read_s=2, total_s=8)


class Sshd:
    """Lets one key in, as whoever runs the tests. `around` set, every command is run inside it."""

    def __init__(self, at: Path) -> None:
        at.mkdir()
        self.at = at
        for name in ("host", "other-host", "client", "stranger"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(at / name)]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        self.port = _free_port()
        (at / "authorized").write_text((at / "client.pub").read_text())
        self.known("host")
        self._child: subprocess.Popen[bytes] | None = None
        self.around = ""

    def __enter__(self) -> Self:
        # sshd wants its empty folder, and to be called by its whole path.
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
        settings = {
            "ListenAddress": f"127.0.0.1:{self.port}",
            "HostKey": self.at / "host",
            "AuthorizedKeysFile": self.at / "authorized",
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "yes",
            "AcceptEnv": "GIT_PROTOCOL",
            "PermitUserEnvironment": "no",
            "ForceCommand": self.at / "command",
        }
        (self.at / "settings").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        self.runs("")
        program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
        assert program is not None
        with (self.at / "log").open("wb") as log:
            self._child = subprocess.Popen([program, "-D", "-e", "-f", str(self.at / "settings")], stderr=log)
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert time.monotonic() < until, (self.at / "log").read_text()
                time.sleep(0.02)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        assert self._child is not None
        self._child.terminate()
        self._child.wait(timeout=20)

    def runs(self, before: str) -> None:
        """What the server does before the git program that is asked for."""
        (self.at / "command").write_text(f'#!/bin/sh\n{before}\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n')
        (self.at / "command").chmod(0o755)

    def known(self, *names: str) -> None:
        """The keys of the host that a client believes."""
        lines = [f"[127.0.0.1]:{self.port} {(self.at / f'{name}.pub').read_text()}" for name in names]
        (self.at / "known").write_text("".join(lines))

    def url(self, path: Path) -> str:
        return f"ssh://root@127.0.0.1:{self.port}{path}"

    def access(self, key: str = "client", limits: Limits = QUICK) -> Access:
        return Access(ssh_key_file=self.at / key, known_hosts_file=self.at / "known", limits=limits)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
