"""What comes back where a new form of a model does not come up: the last one that was seen to serve.

A start in place gives up what serves for what might. Where that fails, the form
before it is started again, stays marked as out of date, and gives no way to the one
that failed: that is tried again beside it, or when it is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from msgspec import structs

from llmgw.catalog import canonical
from llmgw.catalog.fingerprint import fingerprint
from llmgw.catalog.model import Model
from llmgw.core import backoff
from llmgw.core.memory import Failures, LastGood, Memory
from llmgw.core.references import other_key, own_key
from llmgw.core.replicas import Fleet, Replica
from llmgw.core.wanted import Wanted, WantedModel
from llmgw.units import GIB
from llmgw_agent.protocol import Phase

LARGEST_GIB = 1 << 20
"""Of one replica: more was written by hand."""


@dataclass(frozen=True, slots=True)
class Setbacks:
    """What failed, and what comes back in place of it, in one pass. All by model/profile."""

    failures: Mapping[str, Failures]
    """Of the forms that are wanted."""
    good: Mapping[str, LastGood]
    """The last good form of each profile."""
    relapses: Mapping[str, Failures]
    """Of the last good forms, while another is wanted."""
    returning: Mapping[str, LastGood]
    """The forms that what is missing comes back in."""


def setbacks(wanted: Wanted, fleet: Fleet, failures: Mapping[str, Failures], memory: Memory, now: float) -> Setbacks:
    """What comes back in this pass.

    Args:
        wanted: what the commit asks.
        fleet: the settled fleet.
        failures: of the forms that are wanted, as updated in this pass.
        memory: of the last pass.
        now: UTC seconds.
    """
    good = learned(wanted, fleet, memory.good)
    relapses = _relapses(fleet, failures, good, memory.relapses, now)
    # One that fails as often as a new form may is no better than that one.
    returning = {
        key: known
        for key, failed in failures.items()
        if (known := good.get(key))
        and known.fingerprint != failed.fingerprint
        and wanted.models[key.rpartition("/")[0]].model.rollout.auto_return
        and not (key in relapses and backoff.parked(relapses[key]))
    }
    return Setbacks(failures, good, relapses, returning)


def waiting(known: Setbacks, wanted: Wanted, names: Iterable[str]) -> Setbacks:
    """The same, where the change of some models waits: what is missing of those comes back as it was.

    Else a lost node would roll a change that is held, at all its models at once.
    """
    returning = dict(known.returning)
    for name in names:
        for profile, outcome in wanted.models[name].outcomes.items():
            good = known.good.get(f"{name}/{profile}")
            if good is not None and good.fingerprint != outcome:
                returning[f"{name}/{profile}"] = good
    return replace(known, returning=returning)


def learned(wanted: Wanted, fleet: Fleet, before: Mapping[str, LastGood]) -> dict[str, LastGood]:
    """The last good form of each profile after this look.

    A form is good once everything that there is of the profile serves in it. One that
    was good stays so, whatever becomes of it, until another one is.
    """
    found: dict[str, LastGood] = {}
    for name, entry in wanted.models.items():
        for profile, outcome in entry.outcomes.items():
            key = f"{name}/{profile}"
            known = before.get(key)
            if known is None or known.fingerprint != outcome:
                known = _proved(entry, profile, outcome, fleet.of(name)) or known
            if known is not None:
                found[key] = known
    return found


def _proved(entry: WantedModel, profile: str, outcome: str, replicas: Iterable[Replica]) -> LastGood | None:
    mine = [r for r in replicas if r.profile == profile and (r.holds or r.phase is Phase.FAILED)]
    if not mine or not all(r.serves and r.fingerprint == outcome for r in mine):
        return None
    took = max(r.claim.memory_bytes for r in mine) / GIB
    return LastGood(outcome, canonical.spec(entry.model), took, entry.version_key)


def kept(good: Mapping[str, LastGood], name: str) -> dict[str, LastGood]:
    """Those of a model's forms, by profile, that are what they say, of what somebody else wrote down.

    Raises:
        pydantic.ValidationError: one is no form of a model.
    """
    found: dict[str, LastGood] = {}
    for profile, known in good.items():
        model = canonical.from_spec(known.spec)
        same = (fingerprint(model, p) for p in model.profiles if p.name == profile)
        if model.name == name and known.fingerprint in same and 0 <= known.memory_gib < LARGEST_GIB:
            found[profile] = structs.replace(known, version=other_key(model, known.version) or own_key(model))
    return found


def _relapses(
    fleet: Fleet,
    failures: Mapping[str, Failures],
    good: Mapping[str, LastGood],
    before: Mapping[str, Failures],
    now: float,
) -> dict[str, Failures]:
    found: dict[str, Failures] = {}
    for key, failed in failures.items():
        known = good.get(key)
        if known is None or known.fingerprint == failed.fingerprint:
            continue
        name, _, profile = key.rpartition("/")
        mine = [r for r in fleet.of(name) if r.profile == profile]
        if kept := backoff.updated(before.get(key), mine, known.fingerprint, now):
            found[key] = kept
    return found


def form(known: LastGood, profile: str) -> Model:
    """The model in its last good form, with the memory that the profile took where none is written."""
    model = canonical.from_spec(known.spec)
    profiles = (
        p.model_copy(update={"memory_gib": known.memory_gib}) if p.name == profile and p.memory_gib is None else p
        for p in model.profiles
    )
    return model.model_copy(update={"profiles": tuple(profiles)})
