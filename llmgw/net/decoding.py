"""JSON that came from outside, as values: whatever is wrong with it is a `msgspec.DecodeError`.

Brackets that are nested a hundred thousand deep are a `RecursionError` to the
library, which nobody who expects a wrong answer catches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")


def decoder(kind: type[T]) -> Callable[[bytes | msgspec.Raw], T]:
    """What makes values of this kind, prepared once for many."""
    decode = msgspec.json.Decoder(kind).decode

    def bounded(data: bytes | msgspec.Raw) -> T:
        try:
            return decode(data)
        except RecursionError:
            raise msgspec.DecodeError("it is nested too deeply") from None

    return bounded


def decode(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    """One value of this kind.

    Raises:
        msgspec.DecodeError: it is not JSON, or of another kind.
    """
    return decoder(kind)(data)
