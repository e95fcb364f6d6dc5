"""`llmgw estimate`: what a model takes, before anything runs."""

from __future__ import annotations

import struct
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from llmgw.cli.render import columns
from llmgw.errors import Misused, OperatorError, Refused
from llmgw.planning.cards import find, usable
from llmgw.planning.estimate import Estimate
from llmgw.planning.fit import shortages
from llmgw.planning.gguf import MAGIC, Header, read_header
from llmgw.planning.gguf_shape import shape_of
from llmgw.planning.llama_options import ALL, LlamaOptions
from llmgw.planning.memory import Extras, estimate
from llmgw.planning.shape import ModelShape
from llmgw.units import GIB, MIB, parse_bytes


def estimate_file(
    file: Annotated[Path, typer.Argument(help="A GGUF file, the first part of a set, or a header alone.")],
    context: Annotated[int, typer.Option(min=0, help="Tokens of all slots; 0: as trained.")] = 0,
    parallel: Annotated[int, typer.Option(min=1, help="Requests at a time.")] = 1,
    size: Annotated[str, typer.Option(help="Bytes of all files, where FILE is a header alone.")] = "",
    kv_type_k: Annotated[str, typer.Option(help="The type keys are kept in.")] = "f16",
    kv_type_v: Annotated[str, typer.Option(help="The type values are kept in.")] = "f16",
    kv_unified: Annotated[bool, typer.Option("--kv-unified", help="One cache for all slots.")] = False,
    ubatch: Annotated[int, typer.Option(min=1, help="Tokens of a prompt worked on at a time.")] = 512,
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
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say which figures gave each term.")] = False,
) -> None:
    """Work out the memory that a model takes: every term, where it is, and what it rests on."""
    header, found_bytes = _read(file)
    if header.kind != "model":
        what = {"adapter": "an adapter of another model", "mmproj": "the part of a model that sees or hears"}
        raise Refused(
            f"{file} was not estimated",
            why=f"it is {what[header.kind]}, and runs with one only",
            do="name the model, and this file with " + ("--lora" if header.kind == "adapter" else "--mmproj"),
        )
    cards = () if cpu_only else tuple(_card_bytes(name) for name in card or ())
    options = LlamaOptions(
        context=context,
        parallel=parallel,
        kv_unified=kv_unified,
        kv_type_k=kv_type_k.lower(),
        kv_type_v=kv_type_v.lower(),
        ubatch=ubatch,
        batch=max(LlamaOptions().batch, ubatch),
        flash_attention=not no_flash_attention,
        swa_full=swa_full,
        embeddings=embeddings,
        repack=not no_repack,
        gpu_layers=gpu_layers,
        cpu_moe=ALL if cpu_moe else n_cpu_moe,
        tensor_split=_shares(tensor_split, len(cards)),
        cache_ram_bytes=_bytes("--cache-ram", cache_ram),
    )
    draft_header, draft_bytes = _read(draft) if draft else (None, 0)
    extras = Extras(
        mmproj_bytes=_size(mmproj) if mmproj else 0,
        adapter_bytes=sum(_size(path) for path in lora or ()),
        draft=shape_of(draft_header) if draft_header else None,
        draft_bytes=draft_bytes,
    )
    shape = shape_of(header)
    file_bytes = _bytes("--size", size) if size else _all_parts(file, header, found_bytes, shape)
    if file_bytes <= 0:
        raise Refused(f"{file} was not estimated", why="its size is 0", do="give the size of the model with --size")
    found = estimate(shape, file_bytes, options, free=cards, extras=extras)
    print(_json(found) if json else _text(found, shape, cards, explain=explain))


class _OnDisk:
    """A file's bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, offset: int, size: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(size)


def _read(path: Path) -> tuple[Header, int]:
    """A file's header, with its tensors where they are there, and the file's size."""
    if path.exists() and not path.is_file():
        # A pipe would be waited on for ever.
        raise Refused(f"{path} cannot be read", why="it is no regular file", do="name a GGUF file")
    try:
        # It is on this disk, so the vocabulary costs nothing to go past.
        return read_header(_OnDisk(path), tensors=True), path.stat().st_size
    except OSError as e:
        raise Refused(f"{path} cannot be read", why=e.strerror or str(e), do="name a GGUF file") from None
    except Refused as e:
        whole = _shape_only(path)
        if whole is None:
            raise Refused(f"{path}: {e.what}", why=e.why, do=e.do) from None
        return whole, path.stat().st_size


def _shape_only(path: Path) -> Header | None:
    """The header of a file that was cut before its tensors: a range of its first bytes, say."""
    try:
        return read_header(_OnDisk(path))
    except (OperatorError, struct.error):
        return None


def _all_parts(path: Path, header: Header, found: int, shape: ModelShape) -> int:
    """The bytes of every part; of a header alone, what its tensors take."""
    name, _, _ = path.name.partition("-00001-of-")
    others = sorted(path.parent.glob(f"{name}-*-of-{header.parts:05}.gguf")) if header.parts > 1 else []
    if header.parts > 1 and len(others) != header.parts:
        why = f"{len(others)} of its {header.parts} parts are beside it"
        raise Refused(f"{path} was not estimated", why=why, do="give the bytes of all parts with --size")
    if others:
        return sum(_size(part) for part in others)
    if shape.weights is not None and found < shape.weights.total:
        return header.bytes + shape.weights.total
    return found


def _size(path: Path) -> int:
    try:
        with path.open("rb") as file:
            is_gguf = file.read(len(MAGIC)) == MAGIC
        size = path.stat().st_size
    except OSError as e:
        raise Refused(f"{path} cannot be read", why=e.strerror or str(e), do="name a GGUF file") from None
    if not is_gguf:
        raise Refused(f"{path} cannot be read", why="it does not begin with GGUF", do="name a GGUF file")
    return size


def _bytes(flag: str, text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as e:
        raise Misused(f"{flag} cannot be understood", why=str(e), do="write a size") from None


def _card_bytes(name: str) -> int:
    """What can be had of a card, by its name or its size."""
    known = find(name)
    if known is not None and known.usable_bytes is not None:
        return known.usable_bytes
    try:
        # A bare number is a name that is not known, and no size in bytes.
        return usable(parse_bytes(name if not name.isdigit() else ""))
    except ValueError:
        why = "the table of cards has none of that name" if known is None else "it uses the machine's memory"
        raise Misused(f"--card {name} cannot be understood", why=why, do="give its memory, such as 24GiB") from None


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


def _json(found: Estimate) -> str:
    plain: dict[str, Any] = {
        "architecture": found.architecture,
        "context": found.context,
        "parallel": found.parallel,
        "terms": [{k: v for k, v in asdict(term).items() if k != "why"} for term in found.terms],
        "totals": {"host_bytes": found.host_bytes, "card_bytes": found.card_bytes},
        "ways": [],
        "notes": list(found.notes),
    }
    return dumps(plain, indent=2, ensure_ascii=False)


def _text(found: Estimate, shape: ModelShape, cards: tuple[int, ...], *, explain: bool) -> str:
    head = ("term", "where", "MiB", "basis", *(("because",) if explain else ()))
    rows = [
        (term.term, term.where, f"{term.bytes / MIB:,.2f}", term.basis, *((term.why,) if explain else ()))
        for term in found.terms
    ]
    kind = f" {shape.file_type}" if shape.file_type else ""
    lines = [
        f"{found.architecture or 'unknown'}{kind}  context {found.context}  slots {found.parallel}",
        "",
        columns([head, *rows]),
        "",
        f"host   {found.host_bytes / GIB:.2f} GiB",
    ]
    lines += [f"card {n} {size / GIB:.2f} GiB" for n, size in enumerate(found.by_card)]
    lines += [f"does not fit: {short}" for short in shortages(found, cards=cards)] if cards else []
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join(lines)
