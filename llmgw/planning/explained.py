"""Which keys of a file gave a term of its estimate, with what they say."""

from __future__ import annotations

from collections.abc import Iterator

from llmgw.planning.shape import ModelShape

KEYS: dict[str, tuple[str, str]] = {
    "layers": ("block_count", "num_hidden_layers"),
    "embedding": ("embedding_length", "hidden_size"),
    "vocabulary": ("vocab_size, or the tokens of the tokenizer", "vocab_size"),
    "context": ("context_length", "max_position_embeddings"),
    "feed_forward": ("feed_forward_length", "intermediate_size"),
    "heads": ("attention.head_count", "num_attention_heads"),
    "kv_heads": ("attention.head_count_kv", "num_key_value_heads"),
    "key_length": ("attention.key_length, or embedding_length / head_count", "head_dim"),
    "value_length": ("attention.value_length, or embedding_length / head_count", "head_dim"),
    "window": ("attention.sliding_window", "sliding_window"),
    "windowed": ("attention.sliding_window_pattern, or the architecture's own", "layer_types"),
    "latent_rank": ("attention.kv_lora_rank", "kv_lora_rank"),
    "rope_length": ("rope.dimension_count", "qk_rope_head_dim"),
    "head_key_length": ("attention.key_length_mla", "qk_nope_head_dim"),
    "indexer_key_length": ("attention.indexer.key_length", "index_head_dim"),
    "recurrent": ("full_attention_interval, or layers with no heads for keys", "layer_types"),
    "state_bytes": ("ssm.conv_kernel, inner_size, state_size, group_count", "the figures of its linear layers"),
    "experts": ("expert_count", "num_experts"),
    "experts_used": ("expert_used_count", "num_experts_per_tok"),
    "expert_feed_forward": ("expert_feed_forward_length", "moe_intermediate_size"),
    "shared_feed_forward": ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    "file_type": ("general.file_type", "quantization_config"),
}
"""Where each figure of a shape is from: in a GGUF header, and in config.json."""

OF_ATTENTION = (
    *("layers", "kv_heads", "key_length", "value_length", "window", "windowed", "latent_rank", "rope_length"),
    "indexer_key_length",
)
OF_WORK = (
    *("embedding", "feed_forward", "heads", "kv_heads", "key_length", "experts_used", "expert_feed_forward"),
    *("shared_feed_forward", "head_key_length", "latent_rank", "state_bytes", "window"),
)
TERMS: dict[str, tuple[str, ...]] = {
    "kv_cache": OF_ATTENTION,
    "recurrent_state": ("state_bytes", "recurrent"),
    "compute_buffer": OF_WORK,
    "compute_gpu": OF_WORK,
    "compute_host": OF_WORK,
    "output_buffer": ("vocabulary",),
    "engine": ("vocabulary",),
    "weights_cpu_repack": ("file_type", "layers"),
    "weights": ("file_type",),
    "weights_gpu": ("layers", "experts", "file_type"),
    "weights_host_mmap": ("file_type",),
}
"""The figures that each term is made of."""


def keys_of(term: str, shape: ModelShape) -> tuple[str, ...]:
    """The keys that gave a term, each with its figure; of a model that has no such layers, without theirs.

    Args:
        term: by its name; a card's number after it makes no difference.
        shape: of the model.
    """
    return tuple(_keys(term.removeprefix("draft_").rstrip("0123456789"), shape))


def _keys(term: str, shape: ModelShape) -> Iterator[str]:
    for name in TERMS.get(term, ()):
        value = getattr(shape, name)
        if value and (not isinstance(value, tuple) or any(value)):
            of_gguf, of_config = KEYS[name]
            own = "" if of_gguf.startswith("general.") else f"{shape.architecture}."
            yield f"{f'{own}{of_gguf}' if shape.format == 'gguf' else of_config} = {_figure(value)}"


def _figure(value: object) -> str:
    """A figure of all layers as one, where they are alike; else how many layers have which."""
    if not isinstance(value, tuple):
        return str(value)
    if all(isinstance(part, bool) for part in value):
        return f"{sum(value)} of {len(value)} layers"
    kinds = sorted(set(value))
    return str(kinds[0]) if len(kinds) == 1 else ", ".join(f"{kind} in {value.count(kind)} layers" for kind in kinds)
