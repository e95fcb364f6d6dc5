"""`llmgw drift`: from the status branch of any clone, or live."""

from __future__ import annotations

import json

import pytest
from cli.lived import DAY, NOW, START, write
from fleets import F, R
from msgspec import structs

from llmgw.core.history import Kind
from llmgw.errors import Exit

pytestmark = pytest.mark.needs_git


def test_a_fleet_that_is_as_asked_has_none(copy):
    copy.see(gpu=[R, R], slow=[R])
    write(copy)

    code, out, _ = copy.run("drift", "--detailed-exitcode")

    assert (code, out.splitlines()[-1]) == (Exit.DONE, "nothing differs")


def test_what_differs_is_told_with_since_when_and_its_code(copy):
    copy.see(gpu=[R], slow=[R])
    write(copy, START, structs.replace(START, at=NOW + 90, kind=Kind.FAILED, reason="exited: it ended"))

    code, out, _ = copy.run("drift", "--detailed-exitcode")

    assert code == Exit.CHANGES
    assert copy.run("drift")[0] == Exit.DONE
    assert out.splitlines()[2:] == [
        "- coder/gpu: 1 of 2 are ready",
        "  why: gpu has 1 of 2",
        "  since 2027-01-15 08:01 UTC, coder/gpu/0 failed: exited: it ended",
        "",
        "1 thing differs",
    ]


def test_files_that_somebody_edited_on_the_branch_are_told_with_who_did(copy):
    copy.see(gpu=[R, R], slow=[R])
    write(copy, now=NOW + DAY)
    copy.git("checkout", "-q", "-B", "hand", "llmgw/status/lab")
    copy.git.commit({"README.md": b"all is well\n"}, "by hand")
    copy.git("update-ref", "refs/heads/llmgw/status/lab", "hand")
    copy.git("checkout", "-q", "main")

    (one,) = json.loads(copy.run("drift", "--json")[1])["differences"]

    assert (one["kind"], one["what"], one["by"]) == ("branch", "edited by hand: README.md", "Ana <ana@lab>")


def test_a_fleet_of_which_nothing_is_known_is_refused(copy):
    code, _, err = copy.run("drift")

    assert code == Exit.REFUSED
    assert "because no status branch and no control says what is" in err


def test_a_failed_replica_is_missing_and_not_a_fault_of_the_command(copy):
    copy.see(gpu=[R, F], slow=[R])
    write(copy)

    code, out, _ = copy.run("drift")

    assert code == Exit.DONE
    assert "- coder/gpu: 1 of 2 are ready" in out
