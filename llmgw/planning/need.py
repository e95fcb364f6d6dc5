"""What one replica of a model's files takes of a kind of place: of cards of one kind, or of a CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmgw.errors import OperatorError
from llmgw.planning import sglang, vllm
from llmgw.planning.cards import Card, usable
from llmgw.planning.claim import CPU_BATCH, rounded, with_prompts
from llmgw.planning.fit import Short, shortages
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.memory import Extras, estimate
from llmgw.planning.shape import ModelShape

CPU_BATCH_TOKENS = 2048
"""What vLLM works on at a time where no card says more."""


@dataclass(frozen=True, slots=True)
class Files:
    """One packing of a model: what an engine is given."""

    name: str
    """Of the first file, or of the folder."""
    shape: ModelShape
    bytes: int
    """Of all its parts together."""
    extras: Extras | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """So many cards of one kind. None of them: a CPU."""

    card: Card | None = None
    count: int = 0
    card_class: str = ""
    """As a profile writes it."""

    @property
    def room(self) -> tuple[int, ...]:
        """What an engine can have of each card."""
        if self.card is None:
            return ()
        return (usable(self.card.memory_bytes or 0, apple=self.card.vendor == "apple"),) * self.count

    def __str__(self) -> str:
        return f"{'one' if self.count == 1 else self.count} {self.card_class}" if self.count else "CPU"


CPU = Place()


@dataclass(frozen=True, slots=True)
class Need:
    """What one replica takes of a place."""

    host_bytes: int
    """That it claims of the machine's memory."""
    card_bytes: int = 0
    """Of the fullest card."""
    short: tuple[Short, ...] = ()
    """Cards that have too little memory. Of the machine's memory nothing is said here: machines differ."""
    problems: tuple[str, ...] = ()
    """Why it would not start there, whatever is free."""

    @property
    def starts(self) -> bool:
        """Whether the cards hold it, where a machine has the memory."""
        return not self.short and not self.problems


def need(files: Files, engine: str, place: Place, options: LlamaOptions) -> Need:
    """What one replica takes of a place.

    Args:
        files: that it is given.
        engine: llamacpp, vllm or sglang.
        place: where.
        options: how it is run, in llama.cpp's words: `context` is of all slots.
    """
    if engine == "llamacpp":
        return _llamacpp(files, place, options)
    if place.card is None:
        return _vllm_on_cpu(files, options)
    return (_sglang if engine == "sglang" else _vllm)(files, place, place.card, options)


def request_tokens(options: LlamaOptions, shape: ModelShape) -> int:
    """What one request may use."""
    whole = options.context or shape.context
    return whole if options.kv_unified else whole // options.parallel


def on_cpu(options: LlamaOptions) -> LlamaOptions:
    """The same options as the agent gives them to a CPU: with smaller batches, where none were asked for."""
    plain = LlamaOptions()
    if options.embeddings or (options.batch, options.ubatch) != (plain.batch, plain.ubatch):
        return options
    return replace(options, batch=CPU_BATCH, ubatch=CPU_BATCH)


def _llamacpp(files: Files, place: Place, options: LlamaOptions) -> Need:
    if place.card is None:
        options = on_cpu(options)
    try:
        found = estimate(files.shape, files.bytes, options, free=place.room, extras=files.extras)
    except OperatorError as e:
        return Need(0, problems=(e.why,))
    short = shortages(found, cards=place.room) if place.room else ()
    return Need(with_prompts(found.host_bytes), max(found.by_card, default=0), short)


def _vllm(files: Files, place: Place, card: Card, options: LlamaOptions) -> Need:
    asked = vllm.VllmOptions(context=request_tokens(options, files.shape), cards=place.count)
    laid = vllm.fit(files.shape, files.bytes, asked, card)
    short: tuple[Short, ...] = ()
    if laid.cache_bytes < laid.request_bytes:
        # All of what it claims is taken: a model that does not fit is short of it.
        needed = laid.claimed + laid.request_bytes - laid.cache_bytes
        short = tuple(Short(f"card {n}", needed, laid.claimed) for n in range(place.count))
    why = (*vllm.divisibility(files.shape, place.count), *vllm.capability(files.shape, card))
    return Need(rounded(vllm.HOST_BYTES * place.count), laid.claimed, short, why)


def _vllm_on_cpu(files: Files, options: LlamaOptions) -> Need:
    tokens = request_tokens(options, files.shape)
    asked = vllm.VllmOptions(context=tokens)
    cache = vllm.request_bytes(files.shape, asked, context=tokens, batch_tokens=CPU_BATCH_TOKENS)
    return Need(rounded(files.bytes + cache + vllm.HOST_BYTES))


def _sglang(files: Files, place: Place, card: Card, options: LlamaOptions) -> Need:
    memory = card.memory_bytes or 0
    pool = sglang.pool(files.shape, files.bytes, memory, cards=place.count)
    tokens = request_tokens(options, files.shape)
    asked = vllm.VllmOptions(context=tokens, cards=place.count)
    least = vllm.request_bytes(files.shape, asked, context=tokens, batch_tokens=pool.chunk_tokens)
    short: tuple[Short, ...] = ()
    if pool.cache_bytes < least:
        needed = pool.static_bytes + least - pool.cache_bytes
        short = tuple(Short(f"card {n}", needed, pool.static_bytes) for n in range(place.count))
    why = (*vllm.divisibility(files.shape, place.count), *vllm.capability(files.shape, card))
    return Need(rounded(vllm.HOST_BYTES * place.count), pool.static_bytes, short, why)
