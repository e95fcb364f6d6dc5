"""Lines of a coder's history, and how tests of commands write them."""

from __future__ import annotations

import fleets
from msgspec import structs

from llmgw.core.history import Kind, Line
from llmgw.sources.history_files import written
from llmgw.sources.status_branch import StatusBranch

DAY = 86_400
NOW = int(fleets.NOW)
"""2027-01-15 08:00."""
START = Line(
    NOW,
    Kind.START,
    "coder/gpu/0",
    3,
    "n1",
    cards=("GPU-0",),
    version="coder/v1",
    digest="sha256:" + "a" * 64,
    engine="llamacpp",
    build="b6910",
    commit="c" * 40,
    author="Ana <ana@lab>",
    reason="gpu has 1 of 2",
)
READY = structs.replace(START, at=NOW + 60, kind=Kind.READY, reason="")
STOP = structs.replace(START, at=NOW + DAY, kind=Kind.STOP, reason="an older form")
NEXT = structs.replace(START, at=NOW + DAY, replica="coder/slow/0", generation=1, node="n2", cards=())
OTHER = structs.replace(START, at=NOW + 5, replica="chat/cpu/0")


def write(copy, *lines, now=NOW + DAY, subject="as it is"):
    """Write lines into the status branch of a working copy, beside the status that it has."""
    branch = StatusBranch(str(copy.root), "lab", copy.root / ".git")
    tree = branch.read()
    files = dict(tree.files) if tree else {}
    files["README.md"] = f"# {subject} {now}\n".encode()
    branch.write(
        files,
        subject=subject,
        trailers={"Llmgw-Writer": "lab 1"},
        author="llmgw <llmgw@localhost>",
        now=now,
        lines=[written(line) for line in lines],
    )
    branch.close()
