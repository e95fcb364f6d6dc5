"""Engines on the node, found without running anything."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
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


BUILD = re.compile(r"(?:^|[-_.])(b\d{3,6})(?=$|[-_.])")
"""How llama.cpp names its builds, in the name of a folder: `llama-b11549`."""
WITHIN = ("", "bin", "build/bin")
"""Where a build's archive, or a build of one's own, has its programs."""


def look(folders: Iterable[Path]) -> tuple[InstalledEngine, ...]:
    """Every engine in these folders and in those below them that are named after a build, and the embedded one.

    In the order of the folders: what comes first is taken where nothing else decides.
    """
    found: dict[str, InstalledEngine] = {}
    for program in _programs(folders):
        if usable(program):
            engine = InstalledEngine(
                "llamacpp", build_of(program), path=str(program), accelerators=accelerators(program)
            )
            found.setdefault(os.path.realpath(program), engine)
    embedded = _embedded()
    more = (InstalledEngine("llamacpp", embedded, "embedded", accelerators=("cpu",)),) if embedded else ()
    return (*found.values(), *more)


def _programs(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        yield folder / "llama-server"
        try:
            builds = sorted(below for below in folder.iterdir() if BUILD.search(below.name))
        except OSError:
            continue
        yield from (build / within / "llama-server" for build in builds for within in WITHIN)


def build_of(program: Path) -> str:
    """A llama-server's build, from the library it loads or the name of a folder it is in. Empty: neither says it."""
    real = Path(os.path.realpath(program))
    for folder in (real.parent, real.parent.parent / "lib"):
        # Older libraries may be left beside it: the loader takes the one that this name leads to.
        loaded = Path(os.path.realpath(folder / "libllama.so.0")).name
        if number := re.fullmatch(r"libllama\.so\.0\.0\.([1-9]\d{2,5})", loaded):
            return f"b{number[1]}"
    folders = (*reversed(real.parts[:-1]), *reversed(program.parts[:-1]))
    return next((tag[1] for name in folders if (tag := BUILD.search(name))), "")


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
