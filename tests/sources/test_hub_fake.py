"""The fake hub speaks the API: the Hugging Face client itself says what it makes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.gguf_bytes import gguf_header
from fakes.hub import TOKEN, Answer, Hub, Sized

CLIENT = Path(__file__).parent.parent / "fakes" / "hub_client.py"
QUIET = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
LARGE = Sized(gguf_header(), 3_000_000)


@pytest.fixture(scope="module")
def made():
    """A hub with one of each, its commits, and what the client found there."""
    with Hub(page_size=10) as hub:
        files = {"model.gguf": LARGE, "config.json": b"{}", "sub/a.json": b"1"}
        first = hub.put("org/model-GGUF", files, tag="v1", labels=("gguf",), license="mit", downloads=5)
        main = hub.put("org/model-GGUF", files | {"new.json": b"2"}, gguf={"total": 7, "architecture": "llama"})
        hub.put(
            "org/other-GGUF", {"m.gguf": b"GGUF"}, labels=("gguf",), downloads=9, created="2026-02-02T00:00:00.000Z"
        )
        hub.put("else/last-GGUF", {"m.gguf": b"GGUF"}, labels=("gguf",), downloads=1)
        hub.put("org/gated", {"m.gguf": b"GGUF"}, gated="manual")
        hub.put("org/private", {"m.gguf": b"GGUF"}, private=True)
        hub.put("org/disabled", {"m.gguf": b"GGUF"}, disabled=True)
        hub.put("org/limited", {"m.gguf": b"GGUF"})
        hub.answers["/models/org/limited"] = [Answer(status=429, headers={"RateLimit": '"api";r=0;t=1'})]
        hub.put("org/old", {"m.gguf": b"GGUF"})
        hub.rename("org/old", "org/renamed")
        for number in range(30):
            hub.put(f"many/page-{number:02}", {"m.gguf": b"GGUF"})
        with_home = {**os.environ, **QUIET, "HF_HOME": "/nonexistent"}
        ran = subprocess.run(
            [sys.executable, str(CLIENT), hub.endpoint, TOKEN],
            env=with_home,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert ran.returncode == 0, ran.stderr
        yield hub, first, main, json.loads(ran.stdout)


def test_a_repository_a_branch_and_a_tag_have_the_commits_they_should(made):
    _, first, main, found = made

    assert (found["info"], found["info of a tag"]) == (main, first)
    assert found["refs"] == [["main"], ["v1"]]
    assert found["moved"] == "org/renamed"


def test_sizes_and_sums_are_the_same_wherever_they_are_asked(made):
    hub, _, main, found = made
    file = hub.repositories["org/model-GGUF"].commits[main]["model.gguf"]

    assert found["large"] == [main, file.sha256, 3_000_000]
    assert found["blobs"]["model.gguf"] == [3_000_000, file.sha256]
    assert found["paths"] == [file.sha256]
    assert found["download"] == 3_000_000
    assert found["blobs"]["config.json"] == [2, None]
    assert found["small"][2] == 2


def test_a_tree_lists_folders_and_files(made):
    found = made[3]["tree"]

    assert found == {"config.json": 2, "model.gguf": 3_000_000, "new.json": 1, "sub": None, "sub/a.json": 1}


def test_details_come_when_they_are_asked_for(made):
    _, _, main, found = made

    assert found["expand"] == [main, False, "mit", {"total": 7, "architecture": "llama"}]


def test_models_are_searched_filtered_sorted_and_paged(made):
    found = made[3]

    assert found["filter"] == ["org/other-GGUF", "org/model-GGUF"]
    assert found["pages"] == 25
    assert found["author"][0] == "org/other-GGUF"


def test_who_may_not_read_is_told_as_the_hub_tells_it(made):
    found = made[3]

    assert found["gated"] == "GatedRepoError"
    assert found["gated, known"] == 4
    assert found["private"] == "RepositoryNotFoundError"
    assert found["private, known"] == "org/private"
    assert found["who"] == "tester"


def test_what_is_not_there_is_told_as_the_hub_tells_it(made):
    found = made[3]

    assert found["gone"] == "RepositoryNotFoundError"
    assert found["revision"] == "RevisionNotFoundError"
    assert found["entry"] == "RemoteEntryNotFoundError"
    assert found["disabled"] == "DisabledRepoError"
    assert found["limited"] == "HfHubHTTPError"
    assert found["exists"] is False


def test_the_token_never_came_to_the_host_of_large_files(made):
    hub = made[0]

    assert hub.fetched
    assert not [asked for asked in hub.fetched if "Authorization" in asked.headers]
