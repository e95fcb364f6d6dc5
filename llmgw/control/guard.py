"""A part of control that may have a bug: said, and the end of nothing else."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from types import TracebackType

log = logging.getLogger(__name__)


class Guard:
    """Around one turn of a loop that has to go on. Whatever it raises is logged once for each kind."""

    def __init__(self, what: str) -> None:
        """`what` is done inside, as a sentence says it: "a pass"."""
        self._what = what
        self._logged: set[str] = set()
        self.trouble = ""
        """What went wrong in the last turn, in words that stay the same while it does. Empty: nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            self.trouble = self.trouble if error else ""
            return False
        where = traceback.extract_tb(at)[-1]
        self.trouble = (
            f"internal error: {self._what} ended with {type(error).__name__} at "
            f"{Path(where.filename).name}:{where.lineno}; what was ordered stays; see control's log, and report it"
        )
        if self.trouble not in self._logged:
            self._logged.add(self.trouble)
            log.error("%s", self.trouble, exc_info=error)
        return True
