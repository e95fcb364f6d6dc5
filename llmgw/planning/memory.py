"""What a replica on llama.cpp takes, on the host and on each card, term by term."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmgw.planning.buffers import MASK, NUMBER, compute_bytes, output_bytes
from llmgw.planning.estimate import ASKED, ENGINE, FILE_SIZE, HEADER, HOST, Estimate, Term, card, kept
from llmgw.planning.kv import cells, kv_bytes, state_bytes, worked_tokens
from llmgw.planning.llama_options import LlamaOptions, checked
from llmgw.planning.shape import ModelShape, WeightBytes
from llmgw.planning.weights import Layout, host_experts, layout, measured, repacked_bytes
from llmgw.units import MIB

ENGINE_BYTES = 56 * MIB
"""What the process has beside its buffers: 44 to 53 MiB were measured, with the embedded engine's Python."""
TOKEN_BYTES = 160
"""Of one entry of the vocabulary, in the tables that take text apart."""
CARD_CONTEXT_BYTES = 330 * MIB
"""What the driver takes on a card for a process that computes there."""
MMPROJ_FACTOR = 1.4
"""Of an mmproj file: its weights, and the work space of the largest picture."""
UNKNOWN_FACTOR = 1.5
"""Of the file of an unknown architecture, and…"""
UNKNOWN_BYTES = 2 << 30
"""…so much more: the rule for when nothing but the size is known."""
PIPELINE_COPIES = 4
"""Of the mask, where a layer split works on several batches at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What is loaded beside the model."""

    mmproj_bytes: int = 0
    """Of the file that turns pictures and sound into tokens."""
    adapter_bytes: int = 0
    """Of the adapters' files."""
    draft: ModelShape | None = None
    """A small model that guesses ahead."""
    draft_bytes: int = 0


def estimate(
    shape: ModelShape,
    file_bytes: int,
    options: LlamaOptions,
    *,
    free: tuple[int, ...] = (),
    extras: Extras | None = None,
) -> Estimate:
    """What one replica takes.

    Args:
        shape: of the model, from its header or its lock.
        file_bytes: of all its parts together.
        options: how it is run.
        free: bytes free on each card it may use; none: it runs on the CPU.
        extras: what is loaded beside it.

    Raises:
        Refused: the engine would not start like that.
    """
    checked(options)
    extras = extras or Extras()
    if not shape.known:
        return _by_size(shape, file_bytes, options, on_card=bool(free))
    weights = measured(shape, file_bytes)
    placed = layout(shape, options, free)
    terms = [
        *_weights(shape, weights, file_bytes, options, placed),
        *_cache(shape, options, placed),
        *_work(shape, options, placed),
        *_engine(shape, options, placed),
        *_extras(extras, options, free, placed),
    ]
    context = options.context or shape.context
    return Estimate(shape.architecture, context, options.parallel, kept(terms), tuple(_notes(shape, options, placed)))


def _by_size(shape: ModelShape, file_bytes: int, options: LlamaOptions, *, on_card: bool) -> Estimate:
    size = round(file_bytes * UNKNOWN_FACTOR) + UNKNOWN_BYTES
    name, where = ("weights_gpu0", card(0)) if on_card else ("weights_host_mmap", HOST)
    why = f"{file_bytes} bytes of file, half as much again and 2 GiB for everything else"
    called = f"unknown architecture {shape.architecture[:64]!r}" if shape.architecture else "unknown architecture"
    note = f"{called}, by the file's size only: what its context takes is not known"
    terms = kept([Term(name, where, size, FILE_SIZE, why)])
    return Estimate(shape.architecture, options.context, options.parallel, terms, (note,))


def _weights(
    shape: ModelShape, weights: WeightBytes, file_bytes: int, options: LlamaOptions, placed: Layout
) -> Iterator[Term]:
    basis = HEADER if shape.weights is not None else FILE_SIZE
    if placed.on_host:
        yield Term("weights_host_mmap", HOST, max(file_bytes, weights.total), FILE_SIZE, "the file, mapped into memory")
        computed = weights.total - weights.embedding
    else:
        computed = sum(weights.layers[n] for n in placed.host_layers)
        moved = [n for layers in placed.cards for n in layers]
        computed += host_experts(weights, options, tuple(moved))
        size = weights.embedding + computed
        why = f"the table of the vocabulary, {len(placed.host_layers)} layers and the experts that stay"
        yield Term("weights_host_mmap", HOST, size, basis, why)
    twice = repacked_bytes(weights, options, computed)
    yield Term("weights_cpu_repack", HOST, twice, HEADER, f"tensors that {options.cpu} lays out anew, kept twice")
    for number, layers in enumerate(placed.cards):
        size = sum(weights.layers[n] for n in layers) - host_experts(weights, options, layers)
        why = f"{len(layers)} of {shape.layers} layers"
        if placed.output_on == number:
            # With tied embeddings the table is on the host for reading tokens, and here again for making them.
            size += weights.output or weights.embedding
            why += " and the output"
        yield Term(f"weights_gpu{number}", card(number), size, basis, why)


def _places(placed: Layout) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Each place that computes, with its layers."""
    yield HOST, placed.host_layers
    yield from ((card(n), layers) for n, layers in enumerate(placed.cards))


def _cache(shape: ModelShape, options: LlamaOptions, placed: Layout) -> Iterator[Term]:
    room = cells(shape, options)
    of_kv, of_state = kv_bytes(shape, options), state_bytes(shape, options)
    types = f"{options.kv_type_k}/{options.kv_type_v}"
    for where, layers in _places(placed):
        kv = [of_kv[n] for n in layers if of_kv[n]]
        why = f"{room.total} cells in {room.streams} streams, {len(kv)} layers, {types}"
        if shape.window:
            why += f", {room.windowed} cells where a window of {shape.window} bounds them"
        yield Term("kv_cache", where, sum(kv), HEADER, why)
        states = sum(of_state[n] for n in layers) if of_state else 0
        yield Term("recurrent_state", where, states, HEADER, f"{shape.state_bytes} bytes a layer and slot")


def _work(shape: ModelShape, options: LlamaOptions, placed: Layout) -> Iterator[Term]:
    yield Term(
        "output_buffer",
        HOST,
        output_bytes(shape, options),
        HEADER,
        "four bytes for each token of the vocabulary, a slot",
    )
    work = compute_bytes(shape, options)
    attention = "with" if options.flash_attention else "without"
    batch = worked_tokens(shape, options)
    why = f"a batch of {batch} at its widest place, {attention} flash attention"
    if placed.on_host:
        yield Term("compute_buffer", HOST, work, HEADER, why)
        return
    room = cells(shape, options)
    mask = MASK * batch * room.each
    cards = len(placed.cards)
    copied = (PIPELINE_COPIES - 1) * mask if cards > 1 and options.split == "layer" else 0
    # The host prepares the inputs of every batch, and works where layers or experts stayed with it.
    stays = bool(placed.host_layers) or options.cpu_moe > 0
    host = work if stays else NUMBER * batch * shape.embedding + mask + copied
    yield Term("compute_host", HOST, host, HEADER, "inputs of a batch" if not stays else why)
    for number, layers in enumerate(placed.cards):
        extra = _unpacked(shape, options) if layers else 0
        note = why + (", and keys and values of a layer taken out of their fewer bits" if extra else "")
        if placed.output_on == number:
            # Newer builds on cards reserve a batch of likelihoods for every slot after the first.
            extra += (options.parallel - 1) * NUMBER * batch * shape.vocabulary
        yield Term("compute_gpu", card(number), work + copied + extra, HEADER, note)


def _unpacked(shape: ModelShape, options: LlamaOptions) -> int:
    """Keys and values of the widest layer in f16, for all tokens: a card computes with no fewer bits."""
    if options.kv_type_k in ("f32", "f16", "bf16") and options.kv_type_v in ("f32", "f16", "bf16"):
        return 0
    widest = max(shape.kv_heads, default=0) * (shape.key_length + shape.value_length) * 2
    return widest * cells(shape, options).each


def _engine(shape: ModelShape, options: LlamaOptions, placed: Layout) -> Iterator[Term]:
    own = ENGINE_BYTES + TOKEN_BYTES * shape.vocabulary
    yield Term("engine", HOST, own, ENGINE, "the process itself and its vocabulary")
    yield Term("prompt_cache", HOST, options.cache_ram_bytes, ASKED, "--cache-ram")
    for number, _ in enumerate(placed.cards):
        yield Term("cuda_context", card(number), CARD_CONTEXT_BYTES, ENGINE, "the driver's own, for each process")


def _extras(extras: Extras, options: LlamaOptions, free: tuple[int, ...], placed: Layout) -> Iterator[Term]:
    where = HOST if placed.on_host else card(0)
    size = round(extras.mmproj_bytes * MMPROJ_FACTOR)
    yield Term("mmproj", where, size, FILE_SIZE, "its file and two fifths more for the largest picture")
    yield Term("adapters", where, extras.adapter_bytes, FILE_SIZE, "their files, beside the tensors they change")
    if extras.draft is not None:
        beside = estimate(extras.draft, extras.draft_bytes, options, free=free[:1])
        own = ("engine", "prompt_cache", "cuda_context")
        for term in beside.terms:
            if term.term not in own:
                yield Term(f"draft_{term.term}", term.where, term.bytes, term.basis, term.why)


def _notes(shape: ModelShape, options: LlamaOptions, placed: Layout) -> Iterator[str]:
    if shape.weights is None:
        yield "the tensors were not read: weights are spread over the layers, their second copy is by the file's type"
    if options.context > shape.context > 0:
        yield f"the context asked for is longer than the {shape.context} tokens it was trained for"
    if shape.latent_rank == 0 and shape.architecture == "deepseek2":
        yield "made before llama.cpp compressed this cache: a newer build of the same model takes a fraction of it"
    if not placed.on_host and options.parallel > 1:
        yield "the work space on the card is counted with a batch of likelihoods a slot, which older builds do not take"
