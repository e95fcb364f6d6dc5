"""How much context fits, whatever decides it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmgw.planning.context import STEP_TOKENS, most_context


@given(wanted=st.integers(1, 1 << 20), room=st.integers(0, 1 << 20))
def test_the_most_context_is_all_that_is_wanted_or_the_last_step_that_fits(wanted, room):
    found = most_context(lambda tokens: tokens <= room, wanted)

    assert found == (wanted if wanted <= room else room // STEP_TOKENS * STEP_TOKENS)


@given(wanted=st.integers(1, 1 << 20))
def test_little_is_tried_to_find_it(wanted):
    tried: list[int] = []

    assert most_context(lambda tokens: tried.append(tokens) or False, wanted) == 0
    assert len(tried) <= 14
