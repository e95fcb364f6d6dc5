"""NVIDIA cards, as nvidia-smi tells of them: memory, who holds it, MIG slices, and what is wrong.

Versions of its XML differ in what they tell, and any value may be `N/A`, `[N/A]`, a sentence
about what is deprecated, or an error: what is no number is unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from msgspec import structs

from llmgw_agent.probe.card_class import card_class
from llmgw_agent.probe.holders import largest, program, rounded
from llmgw_agent.probe.kernel_log import address
from llmgw_agent.protocol import Card, ForeignProcess

MIG_EMPTY = "mig mode without slices"
LOST = "lost"
_GONE = {"GPU is lost", "Unknown Error"}

_MIB = 1 << 20
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,100}")
_NO_HANDLE = re.compile(rb"Unable to determine the device handle for\s+GPU\s*\d*:?\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)")
_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_LISTED = re.compile(r"\s+MIG\s+(\S+)\s+Device\s+(\d{1,4}):\s+\(UUID:\s+(MIG-[^)\s]+)\)")


class Slice(NamedTuple):
    """What `nvidia-smi -L` says of one slice: its size, and the name an engine is given."""

    size: str
    uuid: str


class Found(NamedTuple):
    """What one look at the cards came to."""

    cards: tuple[Card, ...]
    """In the driver's order, each before its slices."""
    addresses: Mapping[str, str]
    """Of whole cards: where each is plugged in, by UUID."""
    lost: Mapping[str, str]
    """Where a card is plugged in that does not answer, and its UUID if that is said."""


def tree(said: bytes) -> Element | None:
    """nvidia-smi's XML, or None where there is none.

    Read from its first element on: what could declare entities comes before that.
    """
    start = said.find(b"<nvidia_smi_log")
    if start < 0:
        return None
    # Names of programs are put in as they are, and one odd name must not hide every card.
    text = _AMPERSAND.sub("&amp;", _CONTROL.sub("?", said[start:].decode(errors="replace")))
    builder, parser = TreeBuilder(), expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(text.strip(), True)
        return builder.close()
    except expat.ExpatError:
        return None


def has_slices(root: Element) -> bool:
    """Whether any card is cut into slices, which only `-L` names."""
    return root.find("gpu/mig_devices/mig_device") is not None


def slices(listed: str) -> dict[tuple[str, int], Slice]:
    """The slices that `nvidia-smi -L` lists, by the card's UUID and their number on it."""
    found: dict[tuple[str, int], Slice] = {}
    card = ""
    for line in listed.splitlines():
        if line.startswith("GPU ") and (named := re.search(r"\(UUID:\s+(GPU-[^)\s]+)\)", line)):
            card = named[1]
        elif row := _LISTED.match(line):
            found[card, int(row[2])] = Slice(row[1], row[3])
    return found


def capabilities(said: str) -> dict[str, str]:
    """Compute capabilities by UUID, of `--query-gpu=uuid,compute_cap`."""
    rows = [[cell.strip() for cell in line.split(",")] for line in said.splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 2 and re.fullmatch(r"\d{1,3}\.\d{1,3}", row[1])}


def read(
    root: Element,
    messages: bytes,
    *,
    ours: Collection[int],
    listed: Mapping[tuple[str, int], Slice],
    capability: Mapping[str, str],
    xids: Mapping[str, Iterable[int]],
) -> Found:
    """The cards of one look.

    Args:
        root: of the XML.
        messages: what was printed beside it.
        ours: pids of our engines, whose memory on a card is not others'.
        listed: slices, as `slices` reads them.
        capability: as `capabilities` reads them.
        xids: of late, by address.
    """
    cards: list[Card] = []
    addresses: dict[str, str] = {}
    lost = {address(m[1].decode()): "" for m in _NO_HANDLE.finditer(messages)}
    for gpu in root.iter("gpu"):
        uuid, at = _text(gpu, "uuid"), address(gpu.get("id", ""))
        memory, named = _mib(_text(gpu, "fb_memory_usage/total")), _UUID.fullmatch(uuid) is not None
        if at in lost or not named or _GONE & {_text(gpu, "fb_memory_usage/total"), _text(gpu, "product_name")}:
            lost[at] = uuid if named else ""
            continue
        if memory is None:
            # Unified memory: it has none of its own, and what it shares is host memory.
            continue
        addresses[uuid] = at
        name = _text(gpu, "product_name")
        errors = {*_wrong(gpu), *(f"xid {xid}" for xid in xids.get(at, ()))}
        whole = Card(
            uuid,
            name,
            "nvidia",
            card_class(name, memory),
            memory,
            compute_capability=capability.get(uuid, ""),
        )
        parts = list(_slices(gpu, whole, listed, tuple(sorted(errors)), ours))
        if _text(gpu, "mig_mode/current_mig") == "Enabled" and not parts:
            errors.add(MIG_EMPTY)
        used, holders = _used(_text(gpu, "fb_memory_usage/used"), gpu.iter("process_info"), ours)
        cards += [
            structs.replace(whole, used_by_others_bytes=used, processes=holders, errors=tuple(sorted(errors))),
            *parts,
        ]
    return Found(tuple(cards), addresses, lost)


def held(root: Element, ours: Collection[int]) -> Counter[int]:
    """Bytes that processes of ours hold, on all cards together. One whose memory is not said is not in it."""
    found: Counter[int] = Counter()
    for process in root.iter("process_info"):
        pid, size = _number(_text(process, "pid")), _mib(_text(process, "used_memory"))
        if pid is not None and pid in ours and size is not None:
            found[pid] += size
    return found


def _slices(
    gpu: Element,
    whole: Card,
    listed: Mapping[tuple[str, int], Slice],
    errors: tuple[str, ...],
    ours: Collection[int],
) -> Iterator[Card]:
    """The slices of a card. One that `-L` does not list has no name to give to an engine, and is left out."""
    running = [(_text(p, "gpu_instance_id"), _text(p, "compute_instance_id"), p) for p in gpu.iter("process_info")]
    for part in gpu.iterfind("mig_devices/mig_device"):
        memory, number = _mib(_text(part, "fb_memory_usage/total")), _number(_text(part, "index"))
        known = listed.get((whole.uuid, -1 if number is None else number))
        if memory is None or known is None:
            continue
        mine = _text(part, "gpu_instance_id"), _text(part, "compute_instance_id")
        processes = [p for *where, p in running if tuple(where) == mine]
        used, holders = _used(_text(part, "fb_memory_usage/used"), processes, ours)
        own = errors if not _count(part, "ecc_error_count") else tuple(sorted({*errors, "uncorrectable ecc"}))
        yield structs.replace(
            whole,
            uuid=known.uuid,
            memory_bytes=memory,
            used_by_others_bytes=used,
            parent=whole.uuid,
            slice=known.size,
            processes=holders,
            errors=own,
        )


def _wrong(gpu: Element) -> Iterator[str]:
    """What the driver says is wrong with a card, since it was last reset."""
    if _count(gpu, "ecc_errors/volatile"):
        yield "uncorrectable ecc"
    if "Yes" in (_text(gpu, "retired_pages/pending_retirement"), _text(gpu, "retired_pages/pending_blacklist")):
        yield "pages to be retired"
    if _text(gpu, "remapped_rows/remapped_row_pending") == "Yes":
        yield "rows to be remapped"
    if _text(gpu, "remapped_rows/remapped_row_failure") == "Yes":
        yield "row remapping failed"
    action = _text(gpu, "gpu_recovery_action").lower()
    if _text(gpu, "gpu_reset_status/reset_required") == "Yes" or "reset" in action or "reboot" in action:
        yield "reset required"


def _count(of: Element, path: str) -> int:
    """Uncorrectable errors: one counter or several, under names that differ by driver and card."""
    totals = of.findall(f"{path}/double_bit/total")
    named = [e for e in of.iterfind(f"{path}//*") if "uncorrectable" in e.tag]
    return sum(_number((e.text or "").strip()) or 0 for e in (*totals, *named))


def _used(
    said: str, processes: Iterable[Element], ours: Collection[int]
) -> tuple[int | None, tuple[ForeignProcess, ...]]:
    """What others hold of a card or a slice, and who they are."""
    used = _mib(said)
    held: Counter[int] = Counter()
    names: dict[int, str] = {}
    for process in processes:
        pid, size = _number(_text(process, "pid")), _mib(_text(process, "used_memory"))
        if pid is not None and size is not None:
            # One that draws and computes is there twice.
            held[pid] += size
            names[pid] = program(_text(process, "process_name"))
    own = sum(held[pid] for pid in held if pid in ours)
    others = largest((pid, size, names[pid]) for pid, size in held.items() if pid not in ours)
    return (None if used is None else rounded(max(0, used - own))), others


def _text(of: Element, path: str) -> str:
    return (of.findtext(path) or "").strip()


def _mib(said: str) -> int | None:
    number = _number(said.removesuffix(" MiB"))
    return None if number is None else number * _MIB


def _number(said: str) -> int | None:
    return int(said) if re.fullmatch(r"[0-9]{1,12}", said) else None
