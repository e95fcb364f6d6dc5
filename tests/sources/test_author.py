"""The git program, when it does not end as it should."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmgw.errors import Refused
from llmgw.sources.author import Author


def test_a_git_that_is_killed_is_said_with_what_it_may_have_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    git = tmp_path / "bin/git"
    git.parent.mkdir()
    git.write_text("#!/bin/sh\nkill -9 $$\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{git.parent}:{os.environ['PATH']}")

    with pytest.raises(Refused) as refused:
        Author(tmp_path).ready(["catalog/m.yaml"], "", push=False)

    assert refused.value.why == ("signal 9 ended git; where .git/index.lock is left and no git runs, remove it")
