"""One test for many cases: what fails names its case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

Case = TypeVar("Case")


def for_each(cases: Mapping[str, Case]) -> Callable[[Callable[[Case], None]], Callable[[], None]]:
    """Makes a test of one case a test of all of them.

    An item for each, as `parametrize` makes it, costs every worker milliseconds: where a case
    takes less than that and there are hundreds, they are one item.
    """
    assert cases, "a test of no case shows nothing"

    def of(test: Callable[[Case], None]) -> Callable[[], None]:
        def of_all() -> None:
            for name, case in cases.items():
                try:
                    test(case)
                except Exception as error:
                    error.add_note(f"with: {name}")
                    raise

        of_all.__name__, of_all.__doc__ = test.__name__, test.__doc__
        return of_all

    return of
