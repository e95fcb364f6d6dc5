"""Weights that are on the machine already, and are read where they lie."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from llmgw_agent.dossier import Fault


def allowed(path: str, allow: Collection[str]) -> Path:
    """The path as it really is, where its owner allows it to be read.

    Raises:
        Fault: not allowed, or not there.
    """
    what = f"{path} was not loaded"
    real = Path(os.path.realpath(path))
    prefixes = [Path(os.path.realpath(a.removeprefix("path:"))) for a in allow if a.startswith("path:/")]
    if not path.startswith("/") or not any(real.is_relative_to(prefix) for prefix in prefixes):
        shown = ", ".join(str(p) for p in prefixes) or "no path"
        do = f'add "path:{Path(path).parent}" to the agent\'s allow file, or use a source the mirror fetches'
        raise Fault("refused", what, why=f"this node's allow file allows {shown}", do=do)
    if not real.exists():
        raise Fault("weights", what, why="there is nothing at that path", do="put it there, or mount its filesystem")
    if not os.access(real, os.R_OK):
        raise Fault("weights", what, why="the agent's user may not read it", do="give it the right to read")
    return real
