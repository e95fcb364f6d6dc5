"""Where a new model goes, in words: its profile with every figure, or why it goes nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmgw.cli.free import Free
from llmgw.cli.render import count
from llmgw.errors import Refused
from llmgw.planning.added import Draft, OnCards, ways_on_cards
from llmgw.planning.context import LEAST_CONTEXT, most_context
from llmgw.planning.machines import Machine
from llmgw.planning.speed import VERY_SLOW_TPS, reply
from llmgw.planning.speed import said as speed
from llmgw.units import GIB, show_gib

UNKNOWN_CORES = 4
"""For a node of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Added:
    """A model as its file will have it."""

    fields: Mapping[str, Any]
    notes: Mapping[str, str]
    """Beside the fields that are estimates."""
    said: tuple[str, ...]
    on_cards: bool


def placed(draft: Draft, about: Free, context: int | None, *, cpu: bool) -> Added:
    """A model with the one profile that this fleet runs best.

    Args:
        draft: of the model.
        about: what is free.
        context: tokens that are asked for; None: what it was trained for, as far as there is room.
        cpu: whether it is to be on CPUs whatever is free.

    Raises:
        Refused: it has no room, or CPUs would be given what cards could do.
    """
    wanted = context or draft.shape.context or LEAST_CONTEXT
    ways = ways_on_cards(draft, about.offers, wanted)
    runs = [way for way in ways if way.offer.runs]
    if not cpu and runs:
        fitting = [way for way in runs if not way.short] if context else runs
        if not fitting:
            best = max(runs, key=lambda way: way.context)
            raise _too_long(draft, wanted, best.context, _cards(best))
        return _on_cards(draft, fitting[0], wanted)
    if not cpu and ways:
        raise Refused(
            f"{draft.fields['name']} was not added to CPUs",
            why=f"{_better(draft, ways[0], about.host)}, and the {draft.engine} of their nodes is for CPUs or missing",
            do=f"give these nodes a {draft.engine} for cards, or have it on CPUs all the same: --cpu",
        )
    return _on_cpus(draft, about, wanted, context, ways, cpu=cpu)


def _on_cards(draft: Draft, way: OnCards, wanted: int) -> Added:
    offer = way.offer
    profile = draft.on_cards(offer, way.count)
    need = draft.need(profile, offer.place(way.count), way.context)
    gib, taken = need.host_bytes / GIB, need.card_bytes
    each = " on each" if way.count > 1 else ""
    notes = {
        "gpu": f"an estimate: {show_gib(taken)}{each} of its {show_gib(offer.memory_bytes)}",
        "memory_gib": "an estimate, from the header",
        "cpu_cores": "an estimate: beside a card one is enough",
    }
    speed_of = draft.card_speed(offer)
    what = (
        f"{_runs(draft)} on {_cards(way)} ({offer.free} free), with a context of {way.context} tokens, "
        f"{show_gib(taken)} of {'each' if way.count > 1 else 'the'} card and {gib:g} GiB of memory"
        f"{f', at {speed(speed_of)}' if speed_of else ''}."
    )
    return _added(draft, profile, way.context, wanted, gib, notes, [what], _cards(way), on_cards=True)


def _on_cpus(draft: Draft, about: Free, wanted: int, context: int | None, ways: list[OnCards], *, cpu: bool) -> Added:
    host = about.host
    profile = draft.on_cpus(max(1, host.cores // 2) if host else UNKNOWN_CORES)
    most = wanted
    where = "CPUs"
    if host is not None:
        room = host.free_bytes
        most = most_context(lambda tokens: draft.host_gib(profile, tokens) * GIB <= room, wanted)
        where = f"the memory of {host.name}"
        if most < min(LEAST_CONTEXT, wanted):
            least = min(LEAST_CONTEXT, wanted)
            raise Refused(
                f"{draft.fields['name']} was not added",
                why=f"it takes {draft.host_gib(profile, least):g} GiB with {least} tokens of context, "
                f"{_no_card(about)}, and the most memory that is free is {show_gib(max(room, 0))} of {host.name}",
                do="add one with fewer bits a weight, a smaller model, or a node that has the room",
            )
        if context and most < wanted:
            raise _too_long(draft, wanted, most, where)
    gib = draft.host_gib(profile, most)
    cores = profile["cpu_cores"]
    notes = {
        "memory_gib": "an estimate, from the header",
        "cpu_cores": f"an estimate: half of {host.name}'s" if host else "an estimate: no node is known",
    }
    rate, basis = draft.cpu_speed(host)
    tps = f", at {speed(rate)} ({basis})" if rate else ""
    if rate and rate < VERY_SLOW_TPS:
        if not cpu:
            raise Refused(
                f"{draft.fields['name']} was not added to CPUs",
                why=f"it would answer with {speed(rate)} ({basis}): {reply(rate)}",
                do="add one with fewer bits or fewer active weights, or have it all the same: --cpu",
            )
        if host is not None and host.memory_gbs is not None:
            # `llmgw validate` refuses what was measured to be very slow, unless the file says that it is meant.
            profile["min_tps"] = int(rate * 10) / 10 or round(rate * 0.9, 4)
            notes["min_tps"] = f"very slow, and meant: {reply(rate)}"
    takes = f"{gib:g} GiB of memory and {count(cores, 'core')}"
    what = f"{_runs(draft)} on CPUs, with a context of {most} tokens, {takes}{tps}."
    if not about.known:
        why = "Nothing is known of the fleet: no control answers and no status branch is here, so it is placed on CPUs."
    elif not about.nodes:
        why = "No node of the fleet reports, so it is placed on CPUs."
    elif ways:
        why = f"Warning: {_better(draft, ways[0], host)}; --cpu keeps it off them."
    else:
        why = f"It is on CPUs since {_no_card(about)}."
    return _added(draft, profile, most, wanted, gib, notes, [what, why], where, on_cards=False)


def _added(
    draft: Draft,
    profile: dict[str, Any],
    context: int,
    wanted: int,
    gib: float,
    notes: dict[str, str],
    said: list[str],
    where: str,
    *,
    on_cards: bool,
) -> Added:
    if context < wanted:
        said.append(f"The context is lowered from {wanted} to {context} tokens: that is what {where} has room for.")
        notes["context_length"] = f"an estimate: what fits of {wanted}"
    if 0 < draft.shape.context < context:
        said.append(f"Warning: it was trained for {draft.shape.context} tokens, and answers badly beyond them.")
    cores = profile.pop("cpu_cores")
    whole = {**profile, "memory_gib": gib, "cpu_cores": cores}
    fields = {**draft.fields, "context_length": context, "profiles": [whole]}
    return Added(fields, notes, tuple(said), on_cards)


def _runs(draft: Draft) -> str:
    engine = {"llamacpp": "llama.cpp", "vllm": "vLLM"}[draft.engine]
    each = ", each" if draft.replicas > 1 else ""
    return f"{draft.fields['name']} will run {count(draft.replicas, 'replica')} on {engine}{each}"


def _cards(way: OnCards) -> str:
    return f"{'one' if way.count == 1 else way.count} {way.offer.card_class}"


def _better(draft: Draft, way: OnCards, host: Machine | None) -> str:
    """That cards would hold it: how many, and both speeds."""
    free, there, (here, basis) = way.offer.free, draft.card_speed(way.offer), draft.cpu_speed(host)
    at = f" at {speed(there)}" if there else " at a speed that is not known"
    cpus = f"; CPUs would give {speed(here)} ({basis})" if here else ""
    return f"{free} {way.offer.card_class} {'are' if free > 1 else 'is'} free and would hold it{at}{cpus}"


def _no_card(about: Free) -> str:
    if not about.cards:
        return "no node that reports has a card"
    return "none of the free cards holds it" if about.offers else f"none of {count(about.cards, 'card')} is free"


def _too_long(draft: Draft, wanted: int, most: int, where: str) -> Refused:
    return Refused(
        f"{draft.fields['name']} was not added with a context of {wanted} tokens",
        why=f"{where} has room for {most}",
        do=f"--context {most}, or leave --context out",
    )
