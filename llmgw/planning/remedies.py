"""What would make a model fit where it does not: less of something, or more of the place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from llmgw.planning.context import LEAST_CONTEXT, most, most_context
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.need import Files, Place, need
from llmgw.planning.offload import offloads
from llmgw.units import show_gib

CACHE_TYPES = ("q8_0", "q4_0")
"""For keys and values in fewer bits, the better first."""
MOST_CARDS = 16
"""More are not thought of."""

Fits = Callable[[Files, Place, LlamaOptions], bool]
"""Whether some machine of the fleet holds it, were nothing else there."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing that would make it fit, by itself."""

    kind: str
    """context | cache | slots | quantization | cards | offload."""
    value: int | str
    """Tokens of all slots, a type of cache, slots, a file, cards, or layers on the card."""
    sentence: str


def remedies_of(
    files: Files, others: Sequence[Files], engine: str, place: Place, options: LlamaOptions, fits: Fits
) -> Iterator[Remedy]:
    """Everything that would help by itself, the least loss first.

    Args:
        files: that do not fit.
        others: packings of the same model.
        engine: that is to run it.
        place: where it does not fit.
        options: how it was to run.
        fits: asks the fleet.
    """
    if files.shape.known:
        llama = engine == "llamacpp"
        yield from _smaller_cache(files, place, options, fits) if llama and options.flash_attention else ()
        yield from _less_context(files, place, options, fits)
        yield from _fewer_slots(files, place, options, fits) if llama else ()
    yield from _fewer_bits(files, others, place, options, fits)
    if place.count:
        yield from _more_cards(files, engine, place, options, fits)
        if engine == "llamacpp":
            yield from _offload(files, place, options, fits)


def _smaller_cache(files: Files, place: Place, options: LlamaOptions, fits: Fits) -> Iterator[Remedy]:
    for kind in CACHE_TYPES:
        if options.kv_type_k == options.kv_type_v == "f16":
            smaller = replace(options, kv_type_k=kind, kv_type_v=kind)
            if fits(files, place, smaller):
                yield Remedy("cache", kind, f"a cache in {kind} would fit")
                return


def _less_context(files: Files, place: Place, options: LlamaOptions, fits: Fits) -> Iterator[Remedy]:
    wanted = options.context or files.shape.context
    least = min(LEAST_CONTEXT, wanted)
    if wanted <= 0 or not fits(files, place, replace(options, context=least)):
        return
    context = most_context(lambda tokens: fits(files, place, replace(options, context=tokens)), wanted)
    if least <= context < wanted:
        yield Remedy("context", context, f"a context of {context} tokens in place of {wanted} would fit")


def _fewer_slots(files: Files, place: Place, options: LlamaOptions, fits: Fits) -> Iterator[Remedy]:
    """Each slot keeps its context, so that with fewer slots the cache is smaller."""
    whole = options.context or files.shape.context

    def with_slots(number: int) -> LlamaOptions:
        context = whole if options.kv_unified else whole * number // options.parallel
        return replace(options, parallel=number, context=context)

    if slots := most(lambda n: fits(files, place, with_slots(n)), options.parallel - 1):
        yield Remedy("slots", slots, f"{_some(slots, 'slot')} in place of {options.parallel} would fit")


def _fewer_bits(
    files: Files, others: Sequence[Files], place: Place, options: LlamaOptions, fits: Fits
) -> Iterator[Remedy]:
    smaller = sorted((o for o in others if o.bytes < files.bytes), key=lambda o: (-o.bytes, o.name))
    for other in smaller:
        if fits(other, place, options):
            kind = f" ({other.shape.file_type})" if other.shape.file_type else ""
            size = show_gib(other.bytes)
            yield Remedy("quantization", other.name, f"{other.name}{kind}, of {size}, would fit")
            return


def _more_cards(files: Files, engine: str, place: Place, options: LlamaOptions, fits: Fits) -> Iterator[Remedy]:
    for number in range(place.count + 1, MOST_CARDS + 1):
        more = replace(place, count=number)
        if need(files, engine, more, options).starts:
            there = "" if fits(files, more, options) else ", and no machine has so many"
            yield Remedy("cards", number, f"{more} would hold it{there}")
            return


def _offload(files: Files, place: Place, options: LlamaOptions, fits: Fits) -> Iterator[Remedy]:
    for how in offloads(files, place, options):
        if not fits(files, place, how):
            continue
        if how.cpu_moe != options.cpu_moe:
            sentence = f"it would fit with the experts of {_some(how.cpu_moe, 'layer')} on the CPU"
            yield Remedy("offload", how.cpu_moe, sentence)
        else:
            of = files.shape.layers + 1
            sentence = f"it would fit with {how.gpu_layers} of {of} layers on it, the output among them"
            yield Remedy("offload", how.gpu_layers, sentence)
        return


def _some(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
