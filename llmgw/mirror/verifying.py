"""Sums found for files that came by hand, and found again for files that were touched."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from llmgw.mirror import weights
from llmgw.mirror.folder import Stamp, open_file
from llmgw.mirror.records import KeptFile
from llmgw.mirror.store import Store
from llmgw_agent.fetch.download import HEAD_BYTES

_BLOCK = 1 << 20


def verify_one(store: Store, *, stop: Callable[[], bool]) -> bool:
    """Hash the next file that needs it. False where there is nothing to do for now, or `stop` answered yes."""
    found = store.next_to_verify()
    if found is None:
        return False
    version, path = found
    record, stamp = version.record, version.listing.files[path]
    total, head = hashlib.sha256(), b""
    try:
        descriptor = open_file(store.root, record.name, record.version, *path.split("/"))
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                total.update(block)
                head = head or block[:HEAD_BYTES]
                if stop():
                    return False
            if Stamp.of(os.fstat(descriptor)) != stamp:
                return False  # somebody writes to it: the next look sees that
    except FileNotFoundError:
        return False  # likewise
    except OSError as e:
        store.verified(version, KeptFile(path, stamp.bytes, "", stamp, problem=f"{path} cannot be read: {e.strerror}"))
        return True
    problem = weights.head_problem(path, head, stamp.bytes)
    store.verified(version, KeptFile(path, stamp.bytes, total.hexdigest(), stamp, problem=problem))
    return True
