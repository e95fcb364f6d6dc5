"""`make bench`: a table, and build/bench.json. `ONLY=gateway` runs a part."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from importlib import import_module
from pathlib import Path

import psutil

from bench.row import Row

PARTS = ("cli", "catalog", "core", "sources", "gateway", "mirror")


def main() -> int:
    """Run the parts and say which figures are over what they must be."""
    words = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    words.add_argument("--only", choices=PARTS)
    only = words.parse_args().only
    rows = [row for part in ([only] if only else PARTS) for row in import_module(f"bench.{part}").rows()]
    print(f"{platform.machine()}, {psutil.cpu_count()} cores, Python {platform.python_version()}\n")
    head = ("figure", "value", "unit", "peer", "peer's", "ratio", "must", "")
    table = [head, *(_cells(r) for r in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    for line in table:
        print("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip())
    out = Path("build/bench.json")
    out.parent.mkdir(exist_ok=True)
    kept = [] if only is None or not out.exists() else [r for r in json.loads(out.read_text()) if r["part"] != only]
    new = [{"part": only or r.name.split(":")[0], **r.plain()} for r in rows]
    out.write_text(json.dumps([*kept, *new], indent=1) + "\n")
    return 0 if all(r.ok for r in rows) else 1


def _cells(row: Row) -> tuple[str, ...]:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"

    return (
        row.name,
        number(row.value),
        row.unit,
        row.peer,
        number(row.peer_value),
        number(row.ratio),
        number(row.must),
        "" if row.ok else "OVER",
    )


if __name__ == "__main__":
    sys.exit(main())
