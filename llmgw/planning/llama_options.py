"""How llama.cpp is asked to run a model: its own flags, and their defaults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmgw.errors import Refused
from llmgw.planning.tensor_types import cache_types

ALL = 1 << 20
"""More layers than any model has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaOptions:
    """The flags that change how much memory it takes."""

    context: int = 0
    """`-c`: tokens of all slots together. 0: what the model was trained for."""
    parallel: int = 1
    """`-np`: slots."""
    kv_unified: bool = False
    """`--kv-unified`: the slots share one cache. What the engine does by itself when no `-np` is given."""
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    batch: int = 2048
    ubatch: int = 512
    flash_attention: bool = True
    swa_full: bool = False
    """`--swa-full`: windowed layers keep everything."""
    repack: bool = True
    cpu: str = "x86"
    """x86 or arm: which types are laid out anew differs."""
    gpu_layers: int = ALL
    """`-ngl`: layers on cards, counted from the last; the output is one of them."""
    cpu_moe: int = 0
    """`--n-cpu-moe`: the experts of so many layers stay on the host. `--cpu-moe` is ALL of them."""
    split: str = "layer"
    """`-sm`: layer, tensor or none."""
    tensor_split: tuple[float, ...] = ()
    """`-ts`: parts of the model per card. Empty: by their free memory."""
    embeddings: bool = False
    """`--embeddings`: every token of a batch has an output."""
    cache_ram_bytes: int = 0
    """`--cache-ram`: prompts kept on the host. llmgw always says it; the engine's own default is 8 GiB."""
    draft_tokens: int = 0
    """Tokens guessed ahead by a draft model: a recurrent state is kept so many times more."""

    @property
    def streams(self) -> int:
        """How many caches there are."""
        return 1 if self.kv_unified else self.parallel


def problems(options: LlamaOptions) -> Iterator[str]:
    """What the engine would not start with."""
    if not 1 <= options.parallel <= 1024:
        yield f"{options.parallel} slots: 1 to 1024 can be asked for"
    if not 0 <= options.context <= 1 << 30:
        yield f"a context of {options.context} tokens: 0 to 2^30 can be asked for"
    if not 1 <= options.ubatch <= 1 << 20:
        yield f"a batch of {options.ubatch} tokens at a time: 1 to 2^20 can be asked for"
    for flag, kind in (("--kv-type-k", options.kv_type_k), ("--kv-type-v", options.kv_type_v)):
        if kind not in cache_types():
            yield f"{flag} {kind}: one of {', '.join(cache_types())} can be asked for"
    if options.kv_type_v not in ("f32", "f16", "bf16") and not options.flash_attention:
        yield f"--kv-type-v {options.kv_type_v} without flash attention: values in fewer bits need it"


def checked(options: LlamaOptions) -> LlamaOptions:
    """The same options.

    Raises:
        Refused: the engine would not start with them.
    """
    found = list(problems(options))
    if found:
        raise Refused("the model cannot be run like that", why="; ".join(found), do="change these options")
    return options
