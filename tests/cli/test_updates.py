"""`llmgw model updates` and `llmgw model update`, on a real repository and against a hub."""

from __future__ import annotations

import json

import pytest

from fakes.gguf_bytes import gguf_header
from fakes.hub import Sized
from llmgw.catalog.check import read_lock
from llmgw.errors import Exit

pytestmark = pytest.mark.needs_git

REPO = "org/coder-GGUF"
SERVER = b"""\
schema: 1
cluster: lab
nodes:
  - {name: n1, address: 10.0.0.5}
mirror: {base: "http://10.0.0.2:8081", api: "http://10.0.0.2:8082"}
"""
MODEL = """\
# The coder's model.
name: coder
source:
  from: "hf://%s@%s/*Q4*.gguf"   # the smaller one
  version: v1                    # of last year
context_length: 4096
profiles:
  - {name: cpu, engine: llamacpp, replicas: 1, memory_gib: 1}
"""
FIRST, LATER = Sized(gguf_header(), 5_000_000_000), Sized(gguf_header(), 6_000_000_000)


@pytest.fixture
def locked(copy, hub, monkeypatch):
    """A working copy whose model is locked and committed; gives the commit it is locked at."""
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    first = hub.put(REPO, {"m-Q4.gguf": FIRST, "README.md": b"1"})

    def at(revision: str = "main") -> str:
        copy.git.commit(
            {"server.yaml": SERVER, "catalog/coder.yaml": (MODEL % (REPO, revision or first)).encode()}, "from a hub"
        )
        assert copy.run("lock")[0] == Exit.DONE
        copy.git("add", ".")
        copy.git("commit", "-m", "locked")
        return first

    return at


def lock(copy):
    return read_lock("locks/coder.yaml", copy.text("locks/coder.yaml").encode()).entry.lock


def test_without_news_nothing_is_listed(copy, locked):
    locked()

    assert copy.run("model", "updates")[:2] == (Exit.DONE, "0 with news, 1 as they are locked\n")


def test_news_are_listed_with_the_files_that_changed(copy, locked, hub):
    first = locked()
    later = hub.put(REPO, {"m-Q4.gguf": LATER, "other-Q4-mmproj.gguf": FIRST})

    code, out, _ = copy.run("model", "updates", "coder", "--detailed-exitcode")

    assert code == Exit.CHANGES
    assert out == (
        f"coder: {first[:12]} to {later[:12]} of main: 2 files, 11.0 GB to fetch\n"
        "  ~ m-Q4.gguf  5.0 GB to 6.0 GB\n"
        "  + other-Q4-mmproj.gguf  5.0 GB\n"
        "  next: llmgw model update coder\n"
        "1 with news, 0 as they are locked\n"
    )
    assert copy.clean()


def test_a_commit_that_changed_other_files_is_no_news(copy, locked, hub):
    locked()
    hub.put(REPO, {"m-Q4.gguf": FIRST, "README.md": b"2"})

    assert copy.run("model", "updates")[1] == "0 with news, 1 as they are locked\n"


def test_programs_get_a_list(copy, locked, hub):
    locked()
    later = hub.put(REPO, {"m-Q4.gguf": LATER})

    (news,) = json.loads(copy.run("model", "updates", "--json")[1])

    assert (news["model"], news["after"], news["bytes"]) == ("coder", later, 6_000_000_000)
    assert news["files"] == [
        {"path": "m-Q4.gguf", "before_bytes": 5_000_000_000, "after_bytes": 6_000_000_000, "kind": "changed"}
    ]


def test_a_hub_that_is_away_is_said_and_is_exit_3(copy, locked, monkeypatch):
    locked()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")

    code, out, _ = copy.run("model", "updates")

    assert code == Exit.UNREACHABLE
    assert out.startswith("coder: not known: ")


def test_an_update_of_a_branch_writes_a_version_and_a_lock_and_prints_the_plan(copy, locked, hub):
    locked()
    later = hub.put(REPO, {"m-Q4.gguf": LATER})

    code, out, _ = copy.run("model", "update", "coder")

    assert code == Exit.DONE
    assert copy.changed() == [
        "-  version: v1                    # of last year",
        f"+  version: {later[:12]}                    # of last year",
    ]
    assert (lock(copy).commit, lock(copy).files[0].bytes) == (later, 6_000_000_000)
    assert out.startswith(f"coder is {later[:12]} afterwards, at {later[:12]}.\n")
    assert "llmgw plan" in out
    assert copy.run("lock", "--check")[0] == Exit.DONE


def test_an_update_of_a_commit_writes_the_new_commit_where_the_old_one_was(copy, locked, hub):
    first = locked("")
    later = hub.put(REPO, {"m-Q4.gguf": LATER})

    assert copy.run("model", "update", "coder", "--version", "v2", "--commit")[0] == Exit.DONE

    assert copy.clean()
    text = copy.text()
    assert f'from: "hf://{REPO}@{later}/*Q4*.gguf"   # the smaller one\n' in text
    assert "version: v2 " in text
    assert first not in text
    assert copy.git("log", "-1", "--format=%s").strip() == "coder: updated to v2"
    assert lock(copy).commit == later


def test_the_same_files_at_a_later_commit_keep_their_version(copy, locked, hub):
    locked("")
    later = hub.put(REPO, {"m-Q4.gguf": FIRST, "README.md": b"2"})

    assert copy.run("model", "update", "coder")[0] == Exit.DONE

    assert "version: v1 " in copy.text()
    assert later in copy.text()


def test_what_is_as_it_is_upstream_is_not_touched(copy, locked):
    locked()

    assert copy.run("model", "update", "coder")[:2] == (
        Exit.DONE,
        "coder is what it is upstream: nothing is changed.\n",
    )
    assert copy.clean()


def test_new_files_want_a_new_version(copy, locked, hub):
    locked()
    hub.put(REPO, {"m-Q4.gguf": LATER})

    code, _, err = copy.run("model", "update", "coder", "--version", "v1")

    assert code == Exit.REFUSED
    assert "a version never changes what it holds" in err
    assert copy.clean()


def test_an_update_may_go_to_a_tag(copy, locked, hub):
    locked()
    tagged = hub.put(REPO, {"m-Q4.gguf": LATER}, tag="v2")
    hub.put(REPO, {"m-Q4.gguf": Sized(gguf_header(), 7_000_000_000)})

    assert copy.run("model", "update", "coder", "--to", "v2")[0] == Exit.DONE
    assert lock(copy).commit == tagged


def test_a_model_that_is_not_locked_has_no_news(copy):
    code, _, err = copy.run("model", "updates", "coder")

    assert code == Exit.REFUSED
    assert "coder is not locked" in err
