"""The mirror looks at sources for others, and fetches from a hub: with its own token and its own reach."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from fakes.gguf_bytes import gguf_header
from fakes.hub import TOKEN, Answer, Sized
from fakes.waiting import until
from llmgw.actuators.mirror import Mirror as Control
from llmgw.core.actions import Fetch
from llmgw.core.holdings import WantedFile

REPO = "org/model-GGUF"
WEIGHTS = Sized(gguf_header(), 300_000)


@pytest.fixture
async def at_hub(start, hub, tmp_path):
    """A mirror with a token for the fake hub."""
    (tmp_path / "src").mkdir()
    (tmp_path / "token").write_text(TOKEN)
    return await start(
        allow_files=(tmp_path / "src",),
        allow_hosts=(urlsplit(hub.cdn).netloc,),
        hub=hub.endpoint,
        hub_token_file=tmp_path / "token",
    )


async def resolve(mirror, *, facts=True, **source):
    return await mirror.call("POST", f"{mirror.api}/v1/resolve", json={"source": source, "facts": facts})


async def test_what_only_the_mirror_may_read_is_resolved_by_the_mirror(at_hub, hub):
    commit = hub.put(REPO, {"m-Q4.gguf": WEIGHTS}, private=True)

    answered = await resolve(at_hub, **{"from": f"hf://{REPO}@main/*.gguf"})

    assert answered.status == 200
    assert answered.json["commit"] == commit
    assert answered.json["files"][0]["bytes"] == 300_000
    assert answered.json["facts"]["architecture"] == "llama"


async def test_a_file_of_a_hub_is_fetched_by_its_commit_with_the_token_and_without_it_elsewhere(at_hub, hub):
    commit = hub.put(REPO, {"m-Q4.gguf": WEIGHTS}, gated="manual")
    file = hub.repositories[REPO].commits[commit]["m-Q4.gguf"]
    wanted = {"path": "m-Q4.gguf", "url": f"hf://{REPO}@{commit}/m-Q4.gguf", "bytes": 300_000, "sha256": file.sha256}

    assert (await at_hub.ask(files=[wanted])).status == 202
    held = await at_hub.until("present", "failed")

    assert held["state"] == "present", held
    assert held["files"][0]["sha256"] == file.sha256
    assert {asked.headers.get("Authorization") for asked in hub.asked} == {f"Bearer {TOKEN}"}
    assert hub.fetched
    assert not [asked for asked in hub.fetched if "Authorization" in asked.headers]


async def test_a_gated_file_that_the_token_may_not_have_says_what_to_do(start, hub):
    mirror = await start(allow_hosts=(urlsplit(hub.cdn).netloc,), hub=hub.endpoint)
    commit = hub.put(REPO, {"m.gguf": WEIGHTS}, gated="manual")

    await mirror.ask(files=[{"path": "m.gguf", "url": f"hf://{REPO}@{commit}/m.gguf"}])
    held = await mirror.until("failed")

    assert held["failure"]["cause"] == "forbidden"


async def test_a_link_that_expired_is_asked_for_anew(at_hub, hub):
    commit = hub.put(REPO, {"m.gguf": WEIGHTS})
    hub.answers["/repos/"] = [Answer(cut_after=100_000), Answer()]

    await at_hub.ask(files=[{"path": "m.gguf", "url": f"hf://{REPO}@{commit}/m.gguf"}])
    await until(lambda: hub.fetched, said="the first link is used")
    hub.expire_links()
    held = await at_hub.until("present", "failed")

    assert held["state"] == "present", held


@pytest.mark.parametrize("url", [f"hf://{REPO}@main/m.gguf", f"hf://{REPO}@{'0' * 40}/*.gguf", f"hf://{REPO}"])
async def test_what_is_no_file_of_a_commit_is_not_fetched(at_hub, url):
    answered = await at_hub.ask(files=[{"path": "m.gguf", "url": url}])

    assert answered.status == 422
    assert "run llmgw lock" in answered.json["error"]["why"]


async def test_a_version_that_is_held_is_resolved_from_the_mirrors_own_disk(at_hub, tmp_path):
    path = tmp_path / "src" / "m.gguf"
    path.write_bytes(WEIGHTS.part(0, WEIGHTS.size))
    await at_hub.ask(from_=None, files=[{"path": "m.gguf", "url": path.as_uri()}])
    held = await at_hub.until("present")

    answered = await resolve(at_hub, **{"from": "mirror:m/1/"})

    assert answered.json["files"] == [{"path": "m.gguf", "bytes": 300_000, "sha256": held["files"][0]["sha256"]}]
    assert answered.json["facts"]["layers"] == 2


async def test_a_path_and_a_file_are_read_where_the_mirror_may_read(at_hub, tmp_path):
    path = tmp_path / "src" / "m.gguf"
    path.write_bytes(WEIGHTS.part(0, WEIGHTS.size))

    for written in (str(path), path.as_uri()):
        answered = await resolve(at_hub, **{"from": written})
        assert answered.json["files"] == [{"path": "m.gguf", "bytes": 300_000}]


@pytest.mark.parametrize(
    ("source", "status", "word"),
    [
        ({"from": "/etc/passwd"}, 422, "may not be read"),
        ({"from": "file:///etc/passwd"}, 422, "may not be read"),
        ({"from": "http://169.254.169.254/latest/m.gguf"}, 422, "not among the hosts"),
        ({"from": "mirror:none/1/"}, 422, "does not hold"),
        ({"from": "hf://org/none"}, 422, "is not there"),
        ({"from": "hf://org"}, 422, "is no source"),
        ({"from": "s3://bucket/m.gguf"}, 422, "cannot be looked at"),
        ({"from": ["a"]}, 422, "no source is named"),
        ({}, 422, "no source is named"),
    ],
)
async def test_what_the_mirror_may_not_look_at_is_refused(at_hub, source, status, word):
    answered = await resolve(at_hub, **source)

    assert answered.status == status
    error = answered.json["error"]
    assert word in f"{error['what']}: {error['why']}"


async def test_a_hub_that_is_down_is_said_to_be(start, hub):
    mirror = await start(hub="http://127.0.0.1:1")

    answered = await resolve(mirror, **{"from": f"hf://{REPO}"})

    assert answered.status == 503
    assert answered.json["error"]["cause"] == "unreachable"


async def test_nonsense_is_not_understood(at_hub):
    answered = await at_hub.call("POST", f"{at_hub.api}/v1/resolve", json=[1])

    assert answered.status == 422
    assert answered.json["error"]["cause"] == "invalid"


async def test_what_control_asks_for_by_a_lock_is_fetched_under_the_names_of_the_lock(at_hub, hub):
    commit = hub.put(REPO, {"Q4/m-00001-of-00002.gguf": WEIGHTS, "Q4/m-00002-of-00002.gguf": WEIGHTS}, private=True)
    held = hub.repositories[REPO].commits[commit]
    files = tuple(
        WantedFile(path, f"hf://{REPO}@{commit}/{path}", file.size, file.sha256) for path, file in held.items()
    )
    control = Control(at_hub.api)

    await control.fetch(Fetch("m", "1", f"hf://{REPO}@main/Q4/*", None, retry=False, why="", files=files))
    await control.close()
    there = await at_hub.until("present", "failed")

    assert there["state"] == "present", there
    assert [file["path"] for file in there["files"]] == list(held)
    assert there["from"] == f"hf://{REPO}@{commit}/"
