"""What a command costs before it does anything."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.row import Row, least

MODEL = """name: m{n}
context_length: 4096
source: {{from: /models/m{n}.gguf}}
profiles: [{{name: cpu, engine: llamacpp, replicas: 1, memory_gib: 4}}]
"""


def rows() -> Iterator[Row]:
    def run(*words: str) -> None:
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)

    python = least(lambda: run("-c", "pass"), times=7) * 1000
    yield Row(
        "cli: llmgw --help", least(lambda: run("-m", "llmgw", "--help"), times=7) * 1000, "ms CPU", "python", python
    )
    with tempfile.TemporaryDirectory() as folder:
        fleet = Path(folder)
        (fleet / "catalog").mkdir()
        (fleet / "server.yaml").write_text("schema: 1\ncluster: lab\nnodes: [{name: n1, address: 10.0.0.1}]\n")
        for n in range(100):
            (fleet / f"catalog/m{n}.yaml").write_text(MODEL.format(n=n))
        spent = least(lambda: run("-m", "llmgw", "validate", folder), times=5) * 1000
        yield Row("cli: llmgw validate, 100 files", spent, "ms CPU", must=700)
