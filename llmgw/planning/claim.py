"""The host memory that a profile claims where its file leaves it to us."""

from __future__ import annotations

import math

from llmgw.catalog.lock import Lock
from llmgw.catalog.model import Model
from llmgw.catalog.profile import Profile
from llmgw.errors import OperatorError
from llmgw.planning.llama_options import ALL, LlamaOptions
from llmgw.planning.memory import estimate
from llmgw.planning.shape import from_facts
from llmgw.planning.vllm import HOST_BYTES
from llmgw.units import GIB

CPU_BATCH = 256
"""What the agent gives llama.cpp on a CPU where no batch is written."""
CACHE_SHARE = 16
"""The part of what is claimed that the agent lets llama.cpp keep prompts in."""
CACHE_BYTES = 2 * GIB
"""More than this is never kept."""
AMPLE_BYTES = 1 << 50
"""Of a card on which every layer fits: then nothing of the model is left on the host that need not be."""
STEP_GIB = 0.25
"""Claims are rounded up to quarters, so that they read well."""


def claimed_gib(model: Model, profile: Profile, lock: Lock | None) -> float | None:
    """GiB of host memory that one replica takes, or None where that cannot be worked out.

    Args:
        model: whose profile it is.
        profile: as it is run.
        lock: what its source was found to be.
    """
    if lock is None or not lock.facts or lock.total_bytes is None or profile.engine == "command":
        return None
    cards = profile.gpu.count if profile.gpu else 0
    if profile.engine != "llamacpp":
        return rounded(HOST_BYTES * max(1, cards)) / GIB
    try:
        found = estimate(from_facts(lock.facts), lock.total_bytes, options_of(model, profile), free=ample(cards))
    except OperatorError:
        # Facts that a later version wrote: the files' size is still known.
        return rounded(lock.total_bytes * 2) / GIB
    return with_prompts(found.host_bytes) / GIB


def with_prompts(host_bytes: int) -> int:
    """What is claimed for so much of a host: with what the engine keeps prompts in, which comes out of the claim."""
    return rounded(host_bytes + min(CACHE_BYTES, host_bytes / (CACHE_SHARE - 1)))


def ample(cards: int) -> tuple[int, ...]:
    """So many cards on which every layer fits."""
    return (AMPLE_BYTES,) * cards


def options_of(model: Model, profile: Profile) -> LlamaOptions:
    """How llama.cpp is asked to run a profile, as the agent asks it."""
    plain = LlamaOptions()
    batch = profile.batch or (plain.batch if profile.gpu else CPU_BATCH)
    embeds = model.kind == "embedding"
    whole = model.context_length if embeds else batch
    return LlamaOptions(
        context=model.pool_tokens(profile),
        parallel=profile.parallel,
        kv_type_k=profile.kv_type_k or plain.kv_type_k,
        kv_type_v=profile.kv_type_v or plain.kv_type_v,
        batch=max(whole, batch),
        ubatch=whole if embeds else min(batch, profile.batch or plain.ubatch),
        flash_attention=profile.flash_attention != "off",
        gpu_layers=ALL if profile.gpu_layers is None else profile.gpu_layers,
        cpu_moe=profile.cpu_moe or 0,
        tensor_split=profile.tensor_split,
        embeddings=embeds,
    )


def rounded(claim_bytes: float) -> int:
    """The next quarter of a GiB."""
    # An engine whose model is all on cards is still a process.
    return max(1, math.ceil(claim_bytes / GIB / STEP_GIB)) * int(STEP_GIB * GIB)
