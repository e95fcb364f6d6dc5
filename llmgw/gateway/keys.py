"""Who asks: a client's key, found by its hash, and what it may use."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable

from llmgw.core.table import Table, TableKey, TableModel
from llmgw.gateway import openai

ANYBODY = TableKey(name="")
"""Who is served without a key."""


def caller(table: Table, header: Callable[[str], list[str]], *, peer: str, open_to_all: bool) -> TableKey:
    """The key of a request, or `ANYBODY` where no client keys exist.

    Args:
        table: the one in use.
        header: the values of a header, by its name.
        peer: the address it came from.
        open_to_all: whether others than this machine's programs are served
            while no client keys exist.

    Raises:
        ApiError: no key, one that is not known, or two that differ.
    """
    if not table.keys:
        if open_to_all or (_is_loopback(peer) and not (header("x-forwarded-for") or header("forwarded"))):
            return ANYBODY
        raise openai.unauthorized(
            "there are no client keys, and without one only programs on the gateway's own machine are served; "
            "add a key under keys/, or start the gateway with --open",
        )
    given = _given(header)
    if not given:
        raise openai.unauthorized("the request carries no key; send it as `Authorization: Bearer KEY`")
    if len(given) > 1:
        raise openai.unauthorized("the request carries several keys, and they differ")
    known = table.keys.get(hashlib.sha256(given.pop().encode("utf-8", "surrogateescape")).hexdigest())
    if known is None:
        raise openai.unauthorized("the request's key is not one of this gateway's")
    return known


def allowed(key: TableKey, model: TableModel) -> bool:
    return key.models is None or not {model.name, *model.aliases}.isdisjoint(key.models)


def _given(header: Callable[[str], list[str]]) -> set[str]:
    given = {v.strip() for name in ("x-api-key", "api-key") for v in header(name)}
    for value in header("authorization"):
        scheme, _, rest = value.strip().partition(" ")
        given.add(rest.strip() if scheme.lower() == "bearer" else "")
    given.discard("")
    return given


def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
