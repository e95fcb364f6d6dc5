"""What a schema cannot say of the fleet, and of a model in its fleet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from ipaddress import ip_address

from llmgw.catalog.cron import cron_problem
from llmgw.catalog.model import Model
from llmgw.catalog.policy import Policy
from llmgw.catalog.problem import Finding, Steps, shorten
from llmgw.catalog.server import Caller, NodeEntry, Server
from llmgw.catalog.zones import zone_problem

_COMMIT = re.compile(r"[0-9a-f]{40}")
"""A commit in a URL: what is behind it cannot change."""

_ANY_POLICY = Policy()
"""One that asks nothing of a model, as most fleets have it."""

NAMED = ("nodes", "gateways", "operators", "cards", "notifications", "freeze")
"""Lists of server.yaml whose entries have names that are unique among them."""

_PLURALS = {"freeze": "freeze windows"}


def fleet_problems(model: Model, server: Server | None, names: AbstractSet[str]) -> Iterator[Finding]:
    """What a model asks for that its fleet does not have.

    Args:
        model: that fits by itself.
        server: None: it is not known.
        names: everything that clients can ask for, aliases included.
    """
    for at, wanted in _referred(model):
        if wanted not in names:
            close = get_close_matches(wanted, sorted(names - {model.name, *model.aliases}), n=1)
            do = f"write `{close[0]}`" if close else "write the name of a model of this fleet, or take it out"
            what = f"{model.name} refers to {wanted}, which is no model"
            yield Finding(at, what, f"no file under catalog/ has the name or the alias {wanted}", do)
    if server is None:
        return
    if server.mirror is None and not model.source.is_path:
        what = f"{model.name} has its weights from a mirror, and the fleet has none"
        do = "add `mirror:` with `base` and `api` to server.yaml, or name a path that is on the nodes"
        yield Finding(("source", "from"), what, "server.yaml has no `mirror`", do)
    if server.policy != _ANY_POLICY:
        yield from _policy(model, server.policy)


def judged(model: Model) -> Iterator[Steps]:
    """The ways to what a fleet may have something against."""
    yield from (("source", "from"), ("license",))
    yield from (("profiles", index) for index in range(len(model.profiles)))
    yield from (at for at, _ in _referred(model))


def _referred(model: Model) -> Iterator[tuple[Steps, str]]:
    if model.replaced_by is not None:
        yield ("replaced_by",), model.replaced_by
    for index, fallback in enumerate(model.routing.fallbacks):
        yield ("routing", "fallbacks", index, "to"), fallback.to


def _policy(model: Model, policy: Policy) -> Iterator[Finding]:
    for key in policy.required:
        if getattr(model, key) in {None, "", ()}:
            why = f"`policy.required` of server.yaml has {key}, so every model must have one"
            yield Finding((), f"{model.name} has no `{key}`", why, f"add `{key}:`")
    if policy.licenses is not None and model.license not in policy.licenses:
        what = (
            f"{model.name} has the licence {shorten(model.license)}"
            if model.license
            else f"{model.name} has no licence"
        )
        why = f"`policy.licenses` of server.yaml has {', '.join(policy.licenses[:20]) or 'none'}"
        yield Finding(("license",), what, why, "write one of these, or have the policy changed")
    source = model.source
    pinned = source.is_path or source.sha256 or source.checksums
    if policy.unpinned_sources == "refuse" and not pinned and not _COMMIT.search(source.from_):
        why = "`policy.unpinned_sources` of server.yaml refuses what somebody else can change"
        do = "write its `sha256`, or a URL with a commit in it"
        yield Finding(("source", "from"), f"{model.name} has a source that may change", why, do)


def server_problems(server: Server) -> Iterator[Finding]:
    """What is wrong with the fleet by itself."""
    # git would refuse the status branch, which has the cluster's name in its own.
    if ".." in server.cluster or server.cluster.endswith((".", ".lock")):
        what = f"`cluster` cannot be `{server.cluster}`"
        why = "it is part of a branch's name, which may not have `..` in it or end in `.` or `.lock`"
        yield Finding(("cluster",), what, why, "write another name")
    for key in NAMED:
        entries = getattr(server, key)
        for index, _ in again([entry.name for entry in entries]):
            what = f"two {_PLURALS.get(key, key)} are called {entries[index].name}"
            yield Finding((key, index, "name"), what, f"the names of {key} are unique", "rename one of them")
    for index, receiver in enumerate(server.notifications):
        if (receiver.url_ref is None) == (receiver.command is None):
            what = f"the notification {receiver.name} is told in {'no way' if receiver.command is None else 'two ways'}"
            why = "it needs one of `url_ref` and `command`, and not both"
            yield Finding(("notifications", index), what, why, "write the one that is meant")
    yield from _keys(server)
    for index, node in enumerate(server.nodes):
        yield from _address(node, ("nodes", index, "address"))
    yield from _own_names(server)


def _own_names(server: Server) -> Iterator[Finding]:
    """What cards, builds, windows and quotas say among themselves."""
    for index, card in enumerate(server.cards):
        if any(other.name == card.class_ != card.name for other in server.cards):
            what = f"the card {card.name} is of the class {card.class_}, which is another card's name"
            why = "a name stands for a class as nodes report it"
            yield Finding(("cards", index, "class"), what, why, "write the class that nodes report")
    for index, window in enumerate(server.freeze):
        yield from cron_problem(window.cron, ("freeze", index, "cron"))
        yield from zone_problem(window.time_zone, ("freeze", index, "time_zone"))
    builds = [(build.name, build.version, build.platform, build.backend) for build in server.engines]
    for index, _ in again(builds):
        what = f"the build {' '.join(builds[index])} is there twice"
        yield Finding(("engines", index), what, "a profile that asks for it could mean either", "take one out")
    for index, quota in enumerate(server.policy.quotas):
        if quota.cards is None and quota.memory_gib is None and quota.replicas is None:
            why = "it has neither `cards` nor `memory_gib` nor `replicas`"
            yield Finding(("policy", "quotas", index), "a quota limits nothing", why, "add one of them, or take it out")


def callers(server: Server) -> Iterator[tuple[Steps, NodeEntry | Caller]]:
    """Whoever has a key in server.yaml, and the way to its hash."""
    every: tuple[tuple[str, tuple[NodeEntry | Caller, ...]], ...] = (
        ("nodes", server.nodes),
        ("gateways", server.gateways),
        ("operators", server.operators),
    )
    yield from (((key, i, "key_sha256"), entry) for key, entries in every for i, entry in enumerate(entries))


def _keys(server: Server) -> Iterator[Finding]:
    held = [(at, entry.name, entry.key_sha256) for at, entry in callers(server) if entry.key_sha256]
    for index, first in again([key for _, _, key in held]):
        at, name, _ = held[index]
        why = "a key says who calls and what that caller may do"
        yield Finding(at, f"{name} has the key of {held[first][1]}", why, "make it one with `llmgw key new`")


def _address(node: NodeEntry, at: Steps) -> Iterator[Finding]:
    try:
        unspecified = ip_address(node.address).is_unspecified
    except ValueError:
        unspecified = False
        if ":" in node.address:
            why = "it is no IPv6 address, and ports are the agent's to choose (7500 to 7999)"
            yield Finding(at, f"`address` cannot be `{shorten(node.address)}`", why, "write the host without a port")
    if unspecified:
        why = "it stands for every address of a machine, and gateways could reach none by it"
        yield Finding(at, f"`address` cannot be `{node.address}`", why, "write the address other machines reach")


def again(values: Sequence[object]) -> Iterator[tuple[int, int]]:
    """The index of every value that was there before, and the index where it first was."""
    first: dict[object, int] = {}
    for index, value in enumerate(values):
        if (before := first.setdefault(value, index)) != index:
            yield index, before
