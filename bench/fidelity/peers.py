"""What other planners would say: their published rules, worked out anew on the same rows."""

from __future__ import annotations

from llmgw.planning.kv import padded
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.shape import ModelShape
from llmgw.planning.tensor_types import by_name
from llmgw.units import MIB

GGUF_PARSER_BATCH = 2048
OLLAMA_LEAST = 457 * MIB


def _each(options: LlamaOptions) -> tuple[float, float]:
    key, value = (by_name()[kind.upper()].bytes_each for kind in (options.kv_type_k, options.kv_type_v))
    return key, value


def gguf_parser_kv(shape: ModelShape, options: LlamaOptions) -> float:
    """gguf-parser-go: heads as one figure for all layers, and a window that is a batch of 2048 wider."""
    key, value = _each(options)
    heads = max(shape.kv_heads, default=0)
    context = padded(options.context)
    if shape.latent_rank:
        each = shape.head_key_length * key + shape.head_value_length * value
        return context * shape.layers * each
    each = heads * (shape.key_length * key + shape.value_length * value)
    windowed = sum(shape.windowed)
    cells = min(context, padded(shape.window * options.parallel + GGUF_PARSER_BATCH))
    return each * (context * (shape.layers - windowed) + cells * windowed)


def gguf_parser_work(shape: ModelShape, options: LlamaOptions) -> float:
    """gguf-parser-go: a batch of vectors and of likelihoods."""
    return 4 * (shape.embedding + shape.vocabulary) * options.ubatch + 5 * MIB


def ollama_kv(shape: ModelShape, options: LlamaOptions) -> float:
    """Ollama's predictor: the fewest heads of any layer, each as wide as the vector over the heads; always f16."""
    heads = max(shape.heads, default=0)
    width = shape.embedding / heads if heads else 0
    return 2 * shape.layers * min(shape.kv_heads, default=0) * width * options.context * 2


def ollama_work(shape: ModelShape, options: LlamaOptions) -> float:
    """Ollama's predictor: a least amount, whatever the model, and steps by the batch."""
    del shape
    steps = ((2048, 2048 * MIB), (1024, 768 * MIB))
    return OLLAMA_LEAST + next((more for batch, more in steps if options.ubatch >= batch), 0)
