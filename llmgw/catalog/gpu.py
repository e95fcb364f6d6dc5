"""The cards a replica needs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Name, NumberSpan, SizeSpan, Strict, Whole, Word

Vendor = Literal["nvidia", "amd", "intel"]


class GpuNeed(Strict):
    """The cards a replica needs. Every field that is written must fit."""

    model_config = ConfigDict(title="gpu")

    class_: Annotated[Name | None, Field(alias="class")] = None
    """A card's class as nodes report it, the product and its memory, or its name in `cards` of server.yaml:
    `l40s-48g`. Absent: any class that `vendor`, `name`, `memory` or `compute_capability` fits, one of which is then
    there."""
    count: Annotated[Whole, Field(ge=1, le=64)] = 1
    """How many cards one replica takes, all on one node and of one class."""
    vendor: Vendor | None = None
    """Who made the card. Absent: anybody."""
    name: Word | None = None
    """A part of the product's name as its driver says it, in any case: `RTX 4090`. Absent: any product."""
    memory: SizeSpan | None = None
    """The memory of one card, as its driver reports it: `40GB..`. One size, `48GB`, is meant within 8 %: where a card
    corrects errors its driver reports up to 6 % less, and what is sold as 80 GB is often 80 GiB. Absent: any size."""
    compute_capability: NumberSpan | None = None
    """Of NVIDIA's cards, what they can do: `8.0..` for bfloat16. Absent: any."""
    slice: Word | None = None
    """A part of a card in place of a whole one, as its driver names it: `1g.10gb` of NVIDIA's MIG. One of it is all
    that a program sees. Absent: whole cards."""
