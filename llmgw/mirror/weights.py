"""What counts as weights: files that hold numbers and text, and none that run code when they are opened."""

from __future__ import annotations

from pathlib import PurePosixPath

RUNS_CODE = frozenset(
    {".bin", ".ckpt", ".dill", ".h5", ".hdf5", ".joblib", ".keras", ".mar", ".npy", ".npz", ".pb"}
    | {".pickle", ".pkl", ".pt", ".pt2", ".pth", ".py", ".pyc", ".so", ".zip"}
)
"""Formats whose readers run, or may run, what is inside. Most are pickles under another name."""

_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors library itself."""


def name_problem(path: str) -> str:
    """Why a file is refused for its name, or empty."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in RUNS_CODE:
        return f"file {path}: {suffix} files can run code when they are opened; use GGUF or safetensors"
    return ""


def head_problem(path: str, head: bytes, size: int | None) -> str:
    """Why a file is refused for its first bytes, or empty.

    Args:
        path: its name, which says what it should be.
        head: its first 64 bytes, or all of a shorter file.
        size: of the whole, where that is known.
    """
    if head.startswith(_ZIP):
        return f"{path} is a zip archive, which can hold code; use GGUF or safetensors"
    if head[:1] == b"\x80" and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}:
        return f"{path} is a Python pickle, which runs code when it is opened; use GGUF or safetensors"
    match PurePosixPath(path).suffix.lower():
        case ".gguf":
            return _gguf_problem(path, head)
        case ".safetensors":
            return _safetensors_problem(path, head, size)
        case _:
            return ""


def _gguf_problem(path: str, head: bytes) -> str:
    if head[:4] != b"GGUF":
        return f"{path} is not a GGUF file: it begins with {head[:4]!r} and not with GGUF"
    version = int.from_bytes(head[4:8], "little")
    if len(head) < 24 or version not in {2, 3}:
        return f"{path} is GGUF of version {version}, and llama.cpp reads 2 and 3"
    return ""


def _safetensors_problem(path: str, head: bytes, size: int | None) -> str:
    length = int.from_bytes(head[:8], "little")
    fits = 2 <= length <= _MAX_HEADER_BYTES and (size is None or 8 + length <= size)
    if len(head) < 10 or not fits or head[8:9] != b"{":
        return f"{path} is not a safetensors file: its first bytes are not a header of one"
    return ""
