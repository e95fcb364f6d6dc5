"""What a schema cannot say of a model by itself, and of a client key.

Each rule yields every finding it has, and each finding ends in what to write
instead. What a source may be is in `weights.py`, what a profile may be in
`ways.py`, and what a model may be in its fleet in `fleet.py`.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from difflib import get_close_matches
from math import isfinite
from typing import Any

from llmgw.catalog import ways, weights
from llmgw.catalog.cron import cron_problem
from llmgw.catalog.fleet import again
from llmgw.catalog.keys import ClientKey
from llmgw.catalog.model import Model
from llmgw.catalog.problem import Finding, Steps
from llmgw.catalog.scaling import Scaling
from llmgw.catalog.zones import zone_problem


def missing(raw: Any) -> Iterator[Finding]:
    """What a model lacks that others need not have, told before it is known to fit."""
    if not isinstance(raw, dict) or raw.get("external") is not None:
        return
    mine = {
        "source": ("where its weights come from", "a mapping with the keys of a source"),
        "profiles": ("the ways it is run", "a list of profiles"),
    }
    for key, (what, wants) in mine.items():
        # A key that is there under a wrong name is said once.
        if raw.get(key) is None and not _close(raw, key):
            yield Finding((key,), f"`{key}` is missing", f"a model needs it: {what}", f"add `{key}:` with {wants}")
    profiles = raw.get("profiles")
    if profiles == []:
        yield Finding(("profiles",), "`profiles` is empty", "it has at least 1", "add one")
    if raw.get("scaling") is not None:
        return
    for index, profile in enumerate(profiles if isinstance(profiles, list) else ()):
        if isinstance(profile, dict) and profile.get("replicas") is None and not _close(profile, "replicas"):
            why = "a profile needs it: how many of the model's replicas run here"
            do = "add `replicas:` with a whole number from 0 to 100000, or `scaling:` to the model"
            yield Finding(("profiles", index, "replicas"), f"`profiles[{index}].replicas` is missing", why, do)


def _close(raw: dict[str, Any], key: str) -> bool:
    return any(get_close_matches(str(k)[:80], [key], n=1) for k in raw if k != key)


def problems(model: Model) -> Iterator[Finding]:
    """What is wrong with a model by itself."""
    yield from _external(model)
    yield from _counts(model)
    yield from _lengths(model)
    yield from _names(model)
    yield from _requests(model)
    yield from _parameters(model)
    if model.scaling is not None:
        yield from _scaling(model.scaling, counted=[p.name for p in model.profiles if p.replicas is not None])
    if model.rollout.max_surge == 0 == model.rollout.max_unavailable:
        why = "with neither one more nor one less there is no first step"
        yield Finding(
            ("rollout", "max_surge"), "the rollout cannot change anything", why, "give one of the two at least 1"
        )
    if model.source_ is not None:
        yield from weights.problems(model.source)
    for index, profile in enumerate(model.profiles):
        yield from ways.problems(model, profile, ("profiles", index))


def key_problems(key: ClientKey) -> Iterator[Finding]:
    """What is wrong with a client key by itself."""
    if key.expires is not None:
        year, month, day = map(int, key.expires.split("-"))
        if not year or day > monthrange(year, month)[1]:
            why = "that month has no such day"
            yield Finding(
                ("expires",), f"`expires` cannot be `{key.expires}`", why, "write the last day it may be used"
            )


def _external(model: Model) -> Iterator[Finding]:
    if model.external is None:
        return
    for key, beside in (("source", model.source_), ("profiles", model.profiles), ("scaling", model.scaling)):
        if beside:
            why = "somebody else runs the model, and this fleet neither fetches nor starts anything for it"
            yield Finding((key,), f"`{key}` is beside `external`", why, f"take `{key}` out, or `external`")


def _counts(model: Model) -> Iterator[Finding]:
    if model.state != "running" or model.external is not None or model.scaling is not None or not model.profiles:
        return
    # One that is not written at all is said as such.
    if all(profile.replicas == 0 for profile in model.profiles):
        why = "every count is 0, which could be meant and could be forgotten"
        do = "write `state: stopped`, which keeps the counts, or give a profile a count"
        yield Finding(("profiles", 0, "replicas"), f"{model.name} would run nowhere", why, do)


def _scaling(scaling: Scaling, counted: list[str]) -> Iterator[Finding]:
    at = ("scaling",)
    if counted:
        why = f"replicas are counted on {', '.join(counted)} as well, and only one of the two can be meant"
        do = "take `replicas` out of every profile, or take `scaling` out"
        yield Finding(at, "`scaling` is beside counts", why, do)
    if scaling.max == 0:
        why = "at most 0 replicas is none, which could be meant and could be forgotten"
        yield Finding(
            (*at, "max"), "the model would never run", why, "write `state: stopped`, or a `max` of at least 1"
        )
    elif scaling.min > scaling.max:
        why = f"the least is more than the most, which is {scaling.max}"
        yield Finding((*at, "min"), f"`scaling.min` cannot be {scaling.min}", why, f"write at most {scaling.max}")
    if scaling.warm > scaling.max > 0:
        why = f"there are at most {scaling.max}"
        yield Finding((*at, "warm"), f"`scaling.warm` cannot be {scaling.warm}", why, f"write at most {scaling.max}")
    for index, entry in enumerate(scaling.schedule):
        here = (*at, "schedule", index)
        yield from cron_problem(entry.cron, (*here, "cron"))
        yield from zone_problem(entry.time_zone, (*here, "time_zone"))
        most = scaling.max if entry.max is None else entry.max
        if entry.min > most:
            why = f"the least is more than the most, which is {most}"
            what = f"`scaling.schedule[{index}].min` cannot be {entry.min}"
            yield Finding((*here, "min"), what, why, f"write at most {most}, or a higher `max`")


def _lengths(model: Model) -> Iterator[Finding]:
    if model.max_output is None:
        return
    if model.kind in {"embedding", "rerank"}:
        why = "what it answers is no text, and has no tokens to count"
        yield Finding(
            ("max_output",),
            f"`max_output` is on {'an' if model.kind[0] == 'e' else 'a'} {model.kind} model",
            why,
            "take it out",
        )
    elif model.max_output > model.context_length:
        what = f"`max_output` {model.max_output} is over `context_length` {model.context_length}"
        why = "an answer is part of what one request may use"
        yield Finding(("max_output",), what, why, f"write at most {model.context_length}")


def _names(model: Model) -> Iterator[Finding]:
    for index, _ in again([profile.name for profile in model.profiles]):
        what = f"two profiles are called {model.profiles[index].name}"
        why = "a profile's name is part of its replicas' ids"
        yield Finding(("profiles", index, "name"), what, why, "rename one of them")
    adapters = model.source.adapters
    known = [model.name, *model.aliases, *(adapter.name for adapter in adapters)]
    why = "clients can ask for it by this name already"
    for index, first in again(known):
        if index > len(model.aliases):
            at: Steps = ("source", "adapters", index - 1 - len(model.aliases), "name")
            yield Finding(at, f"the adapter {known[index]} has a name that is taken", why, "rename it")
            continue
        alias = model.aliases[index - 1]
        what = f"the alias {alias} is there twice" if first else f"the alias {alias} is the model's own name"
        yield Finding(("aliases", index - 1), what, why, "take it out")


def _requests(model: Model) -> Iterator[Finding]:
    """What routing and access say of requests."""
    routing, mine = model.routing, {model.name, *model.aliases}
    if model.replaced_by in mine:
        why = "it would replace itself"
        yield Finding(
            ("replaced_by",),
            f"`replaced_by` cannot be `{model.replaced_by}`",
            why,
            "write another model, or take it out",
        )
    for index, fallback in enumerate(routing.fallbacks):
        if fallback.to in mine:
            here: Steps = ("routing", "fallbacks", index, "to")
            why = "it is the model that could not answer"
            yield Finding(here, f"`{fallback.to}` falls back to itself", why, "write another model")
    limits = routing.time_limits
    for key in ("first_token", "between_tokens"):
        if getattr(limits, key) > limits.whole:
            why = f"the whole may take {limits.whole:g}s"
            yield Finding(
                ("routing", "time_limits", key),
                f"`{key}` is longer than `whole`",
                why,
                "shorten it, or lengthen `whole`",
            )
    for index, name in enumerate(model.access.deny):
        if model.access.allow is not None and name in model.access.allow:
            yield Finding(
                ("access", "deny", index),
                f"the key {name} is both allowed and denied",
                "only one of the two can be meant",
                "take one out",
            )


def _parameters(model: Model) -> Iterator[Finding]:
    parameters = model.routing.parameters
    for key, value in parameters.set.items() if parameters else ():
        at = ("routing", "parameters", "set", key)
        if parameters and key in parameters.strip:
            yield Finding(at, f"`{key}` is both stripped and set", "only one of the two can be meant", "take one out")
        if not isinstance(value, str | int | float | bool) or (isinstance(value, float) and not isfinite(value)):
            yield Finding(
                at, f"`{key}` is set to what is no single value", "one number, text, true or false is set", "write one"
            )
