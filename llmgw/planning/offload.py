"""How a model that is too large for its cards is run on them and the CPU together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from llmgw.planning.context import most
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.need import Files, Place, need


def offloads(files: Files, place: Place, options: LlamaOptions) -> Iterator[LlamaOptions]:
    """The options that leave as little as can be to the CPU: experts, which a token reads few of, or whole layers.

    Args:
        files: that the cards do not hold.
        place: the cards.
        options: that all of it was asked for with.
    """
    layers = files.shape.layers

    def starts(how: LlamaOptions) -> bool:
        return need(files, "llamacpp", place, how).starts

    if files.shape.experts and starts(replace(options, cpu_moe=layers)):
        on_card = most(lambda n: starts(replace(options, cpu_moe=layers - n)), layers - 1)
        yield replace(options, cpu_moe=layers - on_card)
    if moved := most(lambda n: starts(replace(options, gpu_layers=n)), layers):
        yield replace(options, gpu_layers=moved)
