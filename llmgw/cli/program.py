"""How this installation's command is called, so that a line it prints can be pasted."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def installed() -> Path:
    """The command beside this Python, which need not be on anybody's PATH."""
    beside = Path(sys.executable).with_name("llmgw")
    return beside if beside.exists() else Path(shutil.which("llmgw") or "/usr/local/bin/llmgw")


def called() -> str:
    """As a shell on this machine finds it: by its name where that means this one, else by its path."""
    found, path = shutil.which("llmgw"), installed()
    return "llmgw" if found and Path(found).resolve() == path.resolve() else shlex.quote(str(path))
