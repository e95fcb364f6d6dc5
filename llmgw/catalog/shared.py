"""What server.yaml says that every model is read with: defaults, blocks and the names of cards.

What a model writes counts before its block, and that before the defaults. A
mapping goes on key by key and a list is taken whole. The merged value is judged
as if it stood in the model's file, and what is wrong with a part that was brought
in is said where that part is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from llmgw.catalog.document import Document, Spot
from llmgw.catalog.model import Model
from llmgw.catalog.problem import Finding, Steps, shorten
from llmgw.catalog.profile import Profile
from llmgw.catalog.server import CardName

_EVERY_PROFILE = "profile"
"""The key of a layer whose fields go into each of a model's profiles."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What models are read with. Two that say the same are equal, wherever they say it."""

    defaults: Mapping[str, Any] = field(default_factory=dict, compare=False)
    blocks: Mapping[str, Any] = field(default_factory=dict, compare=False)
    cards: tuple[CardName, ...] = field(default=(), compare=False)
    known: bool = True
    """False: server.yaml could not be read so far, and no model can be told as it is meant."""
    digest: str = ""
    """Of all this. Places in server.yaml are not in it, so that a line more in that file has no model read again."""

    @classmethod
    def of(cls, value: Any, *, known: bool) -> Shared:
        """What a server.yaml that was read as this value says."""
        whole = value if isinstance(value, dict) else {}
        defaults, blocks = (_mapping(whole.get(key)) for key in ("defaults", "blocks"))
        cards = tuple(_cards(whole.get("cards"))) if known else ()
        names = [[card.name, card.class_, card.count] for card in cards]
        digest = json.dumps([defaults, blocks, names], sort_keys=True) if defaults or blocks or names else ""
        return cls(defaults, blocks, cards, known, digest)


def _cards(value: Any) -> Iterator[CardName]:
    for entry in value if isinstance(value, list) else ():
        yield CardName.model_validate(entry, by_name=False)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def apply(shared: Shared, document: Document, bases: list[Steps]) -> tuple[Document, list[Finding]]:
    """The document of some models as if they wrote all that they are read with, and what is wrong with `extends`."""
    found: list[Finding] = []
    for base in bases:
        raw, spot = document.value_at(base), document.spot(base)
        if not isinstance(raw, dict) or spot is None or not (shared.defaults or "extends" in raw):
            continue
        value, spot, more = _one(shared, raw, spot)
        found += [f._replace(at=(*base, *f.at)) for f in more]
        document = _put(document, base, value, spot)
    return document, found


def _one(shared: Shared, raw: dict[str, Any], spot: Spot) -> tuple[dict[str, Any], Spot, list[Finding]]:
    value, found = raw, []
    wanted = raw.get("extends")
    # What is no text is said by the type of the field.
    if isinstance(wanted, str):
        if isinstance(block := shared.blocks.get(wanted), dict):
            value, spot = _under(value, spot, block, ("blocks", wanted))
        else:
            found.append(_no_block(wanted, shared))
    value, spot = _under(value, spot, shared.defaults, ("defaults",))
    return value, spot, found


def _no_block(wanted: str, shared: Shared) -> Finding:
    names = sorted(shared.blocks)
    close = get_close_matches(wanted[:63], names, n=1)
    why = f"the blocks of server.yaml are {', '.join(names[:20])}" if names else "server.yaml has no `blocks`"
    do = f"write `{close[0]}`" if close else "add it to `blocks` in server.yaml, or take `extends` out"
    return Finding(("extends",), f"there is no block {shorten(wanted)}", why, do)


def _under(value: dict[str, Any], spot: Spot, layer: Mapping[str, Any], at: Steps) -> tuple[dict[str, Any], Spot]:
    """A model with what a layer has and it has not."""
    # Counts and scaling exclude each other, and an external model has neither: what is written nearer counts.
    passed = {_EVERY_PROFILE}
    if "external" in value or any("replicas" in p for p in _profiles(value)):
        passed.add("scaling")
    merged, spot = _merged(value, spot, {k: v for k, v in layer.items() if k not in passed}, at)
    each, parts = layer.get(_EVERY_PROFILE), spot.parts
    there = parts.get("profiles") if isinstance(parts, dict) else None
    if not isinstance(each, dict) or there is None or not isinstance(there.parts, list):
        return merged, spot
    if "scaling" in merged:
        each = {k: v for k, v in each.items() if k != "replicas"}
    profiles, spots = list(merged["profiles"]), list(there.parts)
    for index, profile in enumerate(profiles):
        if isinstance(profile, dict):
            profiles[index], spots[index] = _merged(profile, spots[index], each, (*at, _EVERY_PROFILE))
    merged["profiles"] = profiles
    return merged, _with(spot, "profiles", there._replace(parts=spots))


def _profiles(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    profiles = value.get("profiles")
    yield from (p for p in (profiles if isinstance(profiles, list) else ()) if isinstance(p, dict))


def _merged(value: Mapping[str, Any], spot: Spot, layer: Mapping[str, Any], at: Steps) -> tuple[dict[str, Any], Spot]:
    merged = dict(value)
    for key, brought in layer.items():
        if key not in merged:
            merged[key] = brought
            spot = _with(spot, key, Spot(spot.place, None, None, None, (*at, key)))
        elif isinstance(brought, dict) and isinstance(merged[key], dict) and isinstance(spot.parts, dict):
            inner = spot.parts[key]
            if inner.origin is None:
                merged[key], inner = _merged(merged[key], inner, brought, (*at, key))
                spot = _with(spot, key, inner)
            else:
                # Both are from server.yaml, and the nearer one is pointed at.
                merged[key] = _over(merged[key], brought)
    return merged, spot


def _over(value: Mapping[str, Any], brought: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**brought, **value}
    for key in brought.keys() & value.keys():
        if isinstance(brought[key], dict) and isinstance(value[key], dict):
            merged[key] = _over(value[key], brought[key])
    return merged


def _with(spot: Spot, key: str, part: Spot) -> Spot:
    parts = spot.parts if isinstance(spot.parts, dict) else {}
    return spot._replace(parts={**parts, key: part})


def _put(document: Document, base: Steps, value: dict[str, Any], spot: Spot) -> Document:
    if not base:
        return replace(document, value=value, root=spot)
    (index,) = base
    assert isinstance(index, int), "a base is a place in a list"
    assert isinstance(document.value, list), "which the file holds"
    assert document.root is not None, "as it was read"
    assert isinstance(document.root.parts, list), "and each part has a place"
    values, spots = list(document.value), list(document.root.parts)
    values[index], spots[index] = value, spot
    return replace(document, value=values, root=document.root._replace(parts=spots))


def named(shared: Shared, model: Model) -> Model:
    """The model with its classes of cards as nodes report them."""
    classes = {card.name: card.class_ for card in shared.cards}
    if not any(p.gpu and p.gpu.class_ in classes for p in model.profiles):
        return model
    profiles = tuple(
        p.model_copy(update={"gpu": p.gpu.model_copy(update={"class_": classes[p.gpu.class_]})})
        if p.gpu and p.gpu.class_ in classes
        else p
        for p in model.profiles
    )
    return model.model_copy(update={"profiles": profiles})


def card_problems(shared: Shared, model: Model) -> Iterator[Finding]:
    """Classes of cards that the fleet does not have, where it says which it has."""
    known = {word for card in shared.cards for word in (card.name, card.class_)}
    for index, profile in enumerate(model.profiles):
        wanted = profile.gpu.class_ if profile.gpu else None
        if not known or wanted is None:
            continue
        if wanted in known:
            yield from _too_many(shared, profile, ("profiles", index, "gpu", "count"))
            continue
        close = get_close_matches(wanted, sorted(known), n=1)
        why = f"the cards of server.yaml are {', '.join(sorted(_card(card) for card in shared.cards))}"
        do = f"write `{close[0]}`" if close else "write one of these, or add it to `cards` in server.yaml"
        yield Finding(("profiles", index, "gpu", "class"), f"the fleet has no card {wanted}", why, do)


def _too_many(shared: Shared, profile: Profile, at: Steps) -> Iterator[Finding]:
    """More cards for one replica than the fleet has, where it says how many that is."""
    gpu = profile.gpu
    counts = [card.count for card in shared.cards if gpu and gpu.class_ in (card.name, card.class_)]
    there = sum(count for count in counts if count is not None)
    if gpu and None not in counts and gpu.count > there:
        what = f"a replica of profile {profile.name} takes {gpu.count} cards of {gpu.class_}"
        why = f"the fleet has {there} of them, as `cards` of server.yaml says"
        yield Finding(at, what, why, "write fewer, or correct the `count` of the card")


def _card(card: CardName) -> str:
    of_class = "" if card.name == card.class_ else f" ({card.class_})"
    count = "" if card.count is None else f": {card.count}"
    return f"{card.name}{of_class}{count}"


NO_SHARED = Shared()
"""Of a server.yaml with none of it."""
