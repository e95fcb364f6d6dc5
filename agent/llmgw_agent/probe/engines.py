"""Engines on the node, found without running anything."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from llmgw_agent.protocol import InstalledEngine

BACKENDS = {
    "libggml-cuda": ("nvidia",),
    "libggml-hip": ("amd",),
    "libggml-sycl": ("intel",),
    "libggml-vulkan": ("amd", "intel", "nvidia"),
}
"""What a library beside llama-server lets it use."""


def look(folders: Iterable[Path]) -> tuple[InstalledEngine, ...]:
    """Every engine in these folders, in their order the first of each, and the embedded one. Sorted."""
    found = []
    program = next((p for folder in folders if usable(p := folder / "llama-server")), None)
    if program is not None:
        found.append(InstalledEngine("llamacpp", path=str(program), accelerators=accelerators(program)))
    if version := _embedded():
        found.append(InstalledEngine("llamacpp", version, "embedded", accelerators=("cpu",)))
    return tuple(sorted(found, key=lambda e: (e.name, e.build, e.path)))


def usable(program: Path) -> bool:
    """Whether it is a program that only its owner can change: we are about to run it with our rights."""
    try:
        str(program).encode()  # a path that is no text could not be reported, or written down
        real = program.resolve(strict=True)
        modes = [real.stat().st_mode, real.parent.stat().st_mode]
    except (OSError, RuntimeError, UnicodeEncodeError):
        return False
    # The sticky bit keeps strangers from replacing a file in a folder all may write to.
    open_folder = modes[1] & stat.S_IWOTH and not modes[1] & stat.S_ISVTX
    return stat.S_ISREG(modes[0]) and os.access(real, os.X_OK) and not modes[0] & stat.S_IWOTH and not open_folder


def accelerators(program: Path) -> tuple[str, ...] | None:
    """What a llama-server can use, from the libraries beside it. None: it has none beside it and does not say."""
    real = program.resolve()
    names = [p.name for folder in (real.parent, real.parent.parent / "lib") for p in folder.glob("libggml-*.so*")]
    if not names:
        return None
    able = {a for name in names for library, devices in BACKENDS.items() if name.startswith(library) for a in devices}
    return tuple(sorted({"cpu", *able}))


def _embedded() -> str:
    """The version of the wheel with llama.cpp's server, or empty."""
    try:
        return metadata.version("xllamacpp")
    except metadata.PackageNotFoundError:
        return ""
