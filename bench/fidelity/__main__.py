"""`make fidelity`: the table in docs/measurements.md, and exit code 1 when a line of it is worse than it must be."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.fidelity.over_http import http_lines
from bench.fidelity.process import process_lines
from bench.fidelity.rows import Line, fit_lines, memory_lines, weight_lines
from bench.fidelity.speeds import card_lines, cpu_lines

DOCUMENT = Path("docs/measurements.md")
BEGIN, END = "<!-- make fidelity writes from here -->", "<!-- to here -->"


def main() -> int:
    """Work out every line, print and write the table."""
    words = argparse.ArgumentParser(prog="python -m bench.fidelity", description=__doc__)
    words.add_argument("--quick", action="store_true", help="leave out what starts the real engine, and write nothing")
    quick = words.parse_args().quick
    lines = [*memory_lines(), *weight_lines(), *fit_lines(), *cpu_lines(), *card_lines(), *http_lines()]
    if not quick:
        lines += process_lines()
    text = table(lines)
    print(text)
    if not quick:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
    return 0 if all(line.ok for line in lines) else 1


def table(lines: list[Line]) -> str:
    """The lines as Markdown."""
    head = ("what", "rows", "must", "llmgw", "gguf-parser-go", "ollama", "flat 0.55", "")
    rows = [
        (n.what, str(n.count), n.must, n.ours, n.gguf_parser, n.ollama, n.flat, "holds" if n.ok else "**worse**")
        for n in lines
    ]
    body = ["| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows)]
    return "\n".join(body)


if __name__ == "__main__":
    sys.exit(main())
