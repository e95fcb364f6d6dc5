"""`llmgw estimate`: what a model takes, how it could run here and how fast, before anything runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from llmgw.cli.asked import HubUrl, MirrorKey, Reach, TokenFile, Via
from llmgw.cli.estimate_given import given
from llmgw.cli.estimate_here import gguf_bytes, gguf_header
from llmgw.cli.estimate_text import as_json, as_text
from llmgw.cli.machines import known
from llmgw.cli.workcopy import Repo
from llmgw.errors import Misused
from llmgw.planning import vllm
from llmgw.planning.cards import Card, find
from llmgw.planning.estimate import Estimate
from llmgw.planning.gguf_shape import shape_of
from llmgw.planning.llama_options import ALL, LlamaOptions
from llmgw.planning.memory import Extras, estimate
from llmgw.planning.need import Files, request_tokens
from llmgw.planning.ways import Wish, ways
from llmgw.units import parse_bytes


def estimate_file(
    source: Annotated[
        str,
        typer.Argument(
            help="A GGUF file (or its header alone, with --size), a folder of safetensors, OWNER/NAME[/FILE], hf://…, "
            "https://…, or a model of the catalog."
        ),
    ],
    context: Annotated[int | None, typer.Option(min=0, help="Tokens of all slots; 0: as trained.")] = None,
    parallel: Annotated[int | None, typer.Option(min=1, help="Requests at a time.")] = None,
    size: Annotated[str, typer.Option(help="Bytes of all files, where FILE is a header alone.")] = "",
    kv_type_k: Annotated[str, typer.Option(help="The type keys are kept in; f16.")] = "",
    kv_type_v: Annotated[str, typer.Option(help="The type values are kept in; f16.")] = "",
    kv_unified: Annotated[bool, typer.Option("--kv-unified", help="One cache for all slots.")] = False,
    ubatch: Annotated[int, typer.Option(min=0, help="Tokens of a prompt worked on at a time; 512.")] = 0,
    no_flash_attention: Annotated[bool, typer.Option("--no-flash-attention", help="Without flash attention.")] = False,
    swa_full: Annotated[bool, typer.Option("--swa-full", help="Windowed layers keep everything.")] = False,
    no_repack: Annotated[bool, typer.Option("--no-repack", help="No second copy of weights on a CPU.")] = False,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="It gives embeddings.")] = False,
    cpu_only: Annotated[bool, typer.Option("--cpu-only", help="Nothing on a card.")] = False,
    card: Annotated[
        list[str] | None, typer.Option(help="A card it may use: its name, or its memory such as 24GiB. Repeatable.")
    ] = None,
    gpu_layers: Annotated[int, typer.Option(min=0, help="Layers on cards.")] = ALL,
    cpu_moe: Annotated[bool, typer.Option("--cpu-moe", help="All experts stay on the host.")] = False,
    n_cpu_moe: Annotated[int, typer.Option(min=0, help="Layers whose experts stay on the host.")] = 0,
    tensor_split: Annotated[str, typer.Option(help="Parts of the model per card: 3,1.")] = "",
    cache_ram: Annotated[str, typer.Option(help="Prompts kept in host memory: 2GiB.")] = "0",
    mmproj: Annotated[Path | None, typer.Option(help="The file that turns pictures into tokens.")] = None,
    lora: Annotated[list[Path] | None, typer.Option(help="An adapter's file. Repeatable.")] = None,
    draft: Annotated[Path | None, typer.Option(help="A small model that guesses ahead.")] = None,
    fleet: Annotated[
        Path | None, typer.Option(help="A file that tells of the machines; else the fleet as it was last seen.")
    ] = None,
    repo: Repo = None,
    via: Via = None,
    hub: HubUrl = None,
    token_file: TokenFile = None,
    mirror_key_file: MirrorKey = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say which keys and figures gave each term.")] = False,
) -> None:
    """Work out what a model takes: every term, where it is, what it rests on, and every way it could run here."""
    size_bytes = _bytes("--size", size) if size else None
    found = given(source, size_bytes=size_bytes, reach=Reach(via, hub, token_file, mirror_key_file), repo=repo)
    cards = () if cpu_only else tuple(_card(name) for name in card or ())
    base = found.options or LlamaOptions(batch=max(LlamaOptions().batch, ubatch))
    options = replace(
        base,
        context=base.context if context is None else context,
        parallel=base.parallel if parallel is None else parallel,
        kv_unified=kv_unified or base.kv_unified,
        kv_type_k=kv_type_k.lower() or base.kv_type_k,
        kv_type_v=kv_type_v.lower() or base.kv_type_v,
        ubatch=ubatch or base.ubatch,
        flash_attention=not no_flash_attention and base.flash_attention,
        swa_full=swa_full,
        embeddings=embeddings or base.embeddings,
        repack=not no_repack,
        gpu_layers=gpu_layers,
        cpu_moe=ALL if cpu_moe else n_cpu_moe,
        tensor_split=_shares(tensor_split, len(cards)),
        cache_ram_bytes=_bytes("--cache-ram", cache_ram),
    )
    extras = _extras(mmproj, lora or (), draft)
    here = known(repo, fleet)
    taken = _terms(found.main, options, cards, extras, cpu_only=cpu_only)
    packings = tuple(replace(p, extras=extras) for p in found.packings)
    could = ways(packings, here.machines, Wish(options=options, cpu_only=cpu_only, runs=here.runs))
    shape = found.main.shape
    if json:
        print(as_json(taken, shape, could, explain=explain))
        for note in taken.notes:
            print(f"note: {note}", file=sys.stderr)
    else:
        rooms = tuple(_usable(each) for each in cards)
        print(as_text(taken, shape, rooms, could, here.how, explain=explain))


def _terms(files: Files, options: LlamaOptions, cards: tuple[Card, ...], extras: Extras, *, cpu_only: bool) -> Estimate:
    """What one replica takes on the cards that were named, or on the host where none were."""
    if files.shape.format == "gguf":
        return estimate(files.shape, files.bytes, options, free=tuple(_usable(each) for each in cards), extras=extras)
    asked = vllm.VllmOptions(
        context=request_tokens(options, files.shape), requests=options.parallel, cards=max(len(cards), 1)
    )
    return vllm.needs(files.shape, files.bytes, asked, on_cpu=cpu_only)


def _extras(mmproj: Path | None, lora: tuple[Path, ...] | list[Path], draft: Path | None) -> Extras:
    header, draft_bytes = gguf_header(draft) if draft else (None, 0)
    return Extras(
        mmproj_bytes=gguf_bytes(mmproj) if mmproj else 0,
        adapter_bytes=sum(gguf_bytes(path) for path in lora),
        draft=shape_of(header) if header else None,
        draft_bytes=draft_bytes,
    )


def _bytes(flag: str, text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as e:
        raise Misused(f"{flag} cannot be understood", why=str(e), do="write a size") from None


def _usable(card: Card) -> int:
    return card.usable_bytes or 0


def _card(name: str) -> Card:
    """A card by its name, or one of a size."""
    known_card = find(name)
    if known_card is not None and known_card.memory_bytes is not None:
        return known_card
    try:
        # A bare number is a name that is not known, and no size in bytes.
        memory = parse_bytes(name if not name.isdigit() else "")
    except ValueError:
        why = "it uses the machine's memory" if known_card else "the table of cards has none of that name"
        raise Misused(f"--card {name} cannot be understood", why=why, do="give its memory, such as 24GiB") from None
    return Card("nvidia", name, memory, 0.0, None, "", bf16=True, shared=False)


def _shares(text: str, cards: int) -> tuple[float, ...]:
    if not text:
        return ()
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = ()
    if len(shares) != cards or not all(0 <= share < 1e9 for share in shares) or not sum(shares):
        why = f"{text!r} is not a number for each of {cards} cards"
        raise Misused("--tensor-split cannot be understood", why=why, do="write one like 3,1")
    return shares
