"""What a schema cannot say: of a model, of a model in its fleet, and of the fleet.

Each rule yields every finding it has, and each finding ends in what to write
instead. What a source may be is in `weights.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from llmgw.catalog import flags, weights
from llmgw.catalog.model import Model
from llmgw.catalog.problem import Finding, Steps, shorten
from llmgw.catalog.profile import Profile
from llmgw.catalog.server import Caller, NodeEntry, Server


def problems(model: Model) -> Iterator[Finding]:
    """What is wrong with a model by itself."""
    yield from _counts(model)
    yield from _lengths(model)
    yield from _names(model)
    yield from weights.problems(model.source)
    for index, profile in enumerate(model.profiles):
        at = ("profiles", index)
        yield from _pool(model, profile, at)
        for place, flag in flags.named(profile.args):
            if do := flags.INSTEAD[profile.engine].get(flag):
                what = f"`{flag}` is in the args of profile {profile.name}"
                yield Finding((*at, "args", place), what, "llmgw gives the engine this flag itself", do)


def fleet_problems(model: Model, server: Server) -> Iterator[Finding]:
    """What a model asks for that its fleet does not have."""
    if server.mirror is None and not model.source.is_path:
        what = f"{model.name} has its weights from a mirror, and the fleet has none"
        do = "add `mirror:` with `base` and `api` to server.yaml, or name a path that is on the nodes"
        yield Finding(("source", "from"), what, "server.yaml has no `mirror`", do)


def server_problems(server: Server) -> Iterator[Finding]:
    """What is wrong with the fleet by itself."""
    # git would refuse the status branch, which has the cluster's name in its own.
    if ".." in server.cluster or server.cluster.endswith((".", ".lock")):
        what = f"`cluster` cannot be `{server.cluster}`"
        why = "it is part of a branch's name, which may not have `..` in it or end in `.` or `.lock`"
        yield Finding(("cluster",), what, why, "write another name")
    named: tuple[tuple[str, tuple[NodeEntry | Caller, ...]], ...] = (
        ("nodes", server.nodes),
        ("gateways", server.gateways),
        ("operators", server.operators),
    )
    for key, entries in named:
        for index, _ in _again([entry.name for entry in entries]):
            what = f"two {key} are called {entries[index].name}"
            yield Finding((key, index, "name"), what, f"the names of {key} are unique", "rename one of them")
    every = [((key, i, "key_sha256"), entry) for key, entries in named for i, entry in enumerate(entries)]
    held = [(at, entry.name, entry.key_sha256) for at, entry in every if entry.key_sha256]
    for index, first in _again([key for _, _, key in held]):
        at, name, _ = held[index]
        why = "a key says who calls and what that caller may do"
        yield Finding(at, f"{name} has the key of {held[first][1]}", why, "make it one with `llmgw key new`")
    for index, node in enumerate(server.nodes):
        yield from _address(node, ("nodes", index, "address"))


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


def _counts(model: Model) -> Iterator[Finding]:
    if model.state == "running" and not any(profile.replicas for profile in model.profiles):
        why = "every count is 0, which could be meant and could be forgotten"
        do = "write `state: stopped`, which keeps the counts, or give a profile a count"
        yield Finding(("profiles", 0, "replicas"), f"{model.name} would run nowhere", why, do)


def _lengths(model: Model) -> Iterator[Finding]:
    if model.max_output is None:
        return
    if model.kind == "embedding":
        why = "an embedding is no text, and has no tokens to count"
        yield Finding(("max_output",), "`max_output` is on an embedding model", why, "take it out")
    elif model.max_output > model.context_length:
        what = f"`max_output` {model.max_output} is over `context_length` {model.context_length}"
        why = "an answer is part of what one request may use"
        yield Finding(("max_output",), what, why, f"write at most {model.context_length}")


def _names(model: Model) -> Iterator[Finding]:
    for index, _ in _again([profile.name for profile in model.profiles]):
        what = f"two profiles are called {model.profiles[index].name}"
        why = "a profile's name is part of its replicas' ids"
        yield Finding(("profiles", index, "name"), what, why, "rename one of them")
    for index, first in _again([model.name, *model.aliases]):
        alias = model.aliases[index - 1]
        why = "clients can ask for it by this name already"
        what = f"the alias {alias} is there twice" if first else f"the alias {alias} is the model's own name"
        yield Finding(("aliases", index - 1), what, why, "take it out")


def _pool(model: Model, profile: Profile, at: Steps) -> Iterator[Finding]:
    """A pool must hold what its slots may ask of it at the same time.

    llama.cpp gives each slot an equal part, unless it is told to unify them;
    vLLM and SGLang page one pool, which has to hold one whole request.
    """
    unified = any(flag in {"-kvu", "--kv-unified"} for _, flag in flags.named(profile.args))
    divided = profile.engine == "llamacpp" and not unified
    need = model.context_length * (profile.parallel if divided else 1)
    if profile.context is not None and profile.context < need:
        what = f"`context` {profile.context} of profile {profile.name} is too small"
        times = f" times {profile.parallel} slots" if divided and profile.parallel > 1 else ""
        why = f"a request may use `context_length` {model.context_length}{times}, which is {need}"
        do = f"take `context` out, write at least {need}, or lower `context_length` or `parallel`"
        yield Finding((*at, "context"), what, why, do)


def _again(values: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The index of every value that was there before, and the index where it first was."""
    first: dict[str, int] = {}
    for index, value in enumerate(values):
        if (before := first.setdefault(value, index)) != index:
            yield index, before
