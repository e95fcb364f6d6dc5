"""The program before its first command: Ctrl-C while it is being read in."""

from __future__ import annotations

import sys
import types

import pytest

from llmgw import __main__ as program


class Interrupted(types.ModuleType):
    """A module that is being imported when Ctrl-C is pressed."""

    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def test_ctrl_c_before_the_first_command_is_no_traceback(monkeypatch):
    monkeypatch.setitem(sys.modules, "llmgw.cli.main", Interrupted("llmgw.cli.main"))

    with pytest.raises(SystemExit) as ended:
        program.main()

    assert ended.value.code == 130
