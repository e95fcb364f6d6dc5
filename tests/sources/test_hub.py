"""What a hub holds, and every way in which it does not say so."""

from __future__ import annotations

import hashlib
import json
import threading
import time

import pytest

from fakes.gguf_bytes import LLAMA, gguf_header, safetensors_header
from fakes.hub import TOKEN, Answer, Hub, Sized
from fakes.upstream import Upstream
from llmgw.errors import OperatorError, Refused, Unreachable
from llmgw.sources.hub import Hub as Client
from llmgw.sources.upstream import Upstream as Sources
from llmgw.sources.web import Web

MODEL = Sized(gguf_header(), 5_000_000_000)
SMALL = b'{"architectures": ["LlamaForCausalLM"]}'
REPO = "org/model-GGUF"


@pytest.fixture
def look(hub, tmp_path):
    """Resolves a source at the fake hub, impatiently."""
    made = []

    def resolve(written, *, token=None, facts=True, web=None, endpoint=None, **asked):
        if token:
            (tmp_path / "token").write_text(token)
        settings = {"stall_s": 0.5, "one_s": 3.0, "patience_s": 2.0, "backoff_s": 0.01, **(web or {})}
        made.append(Web(**settings))
        client = Client(made[-1], endpoint=endpoint or hub.endpoint, token_file=tmp_path / "token" if token else None)
        return Sources(made[-1], client).resolve({"from": written, **asked}, facts=facts)

    yield resolve
    for web in made:
        web.close()


def put(hub: Hub, **about) -> str:
    return hub.put(REPO, {"model-Q4_K_M.gguf": MODEL, "README.md": b"# A model"}, **about)


def test_a_branch_becomes_the_commit_it_names_with_every_file_its_size_and_its_sum(hub, look):
    commit = put(hub, license="apache-2.0", base_model="org/model")
    file = hub.repositories[REPO].commits[commit]["model-Q4_K_M.gguf"]

    found = look(f"hf://{REPO}@main/*Q4_K_M*.gguf")

    assert (found.commit, found.license, found.base_model, found.gated) == (commit, "apache-2.0", "org/model", False)
    assert [(f.path, f.bytes, f.sha256) for f in found.files] == [("model-Q4_K_M.gguf", 5_000_000_000, file.sha256)]


def test_the_shape_is_read_over_at_most_two_ranges_of_128_kib(hub, look):
    long = gguf_header(vocabulary=150_000)
    hub.put(REPO, {"m.gguf": Sized(long, 5_000_000_000)})

    found = look(f"hf://{REPO}/m.gguf")

    assert found.facts["architecture"] == "llama"
    assert (found.facts["layers"], found.facts["kv_heads"], found.facts["context"]) == (2, 2, 8192)
    assert 1 <= len({asked.range for asked in hub.fetched if asked.range}) <= 2
    assert hub.sent_bytes < 300_000


def test_a_header_whose_shape_lies_further_on_gives_no_facts_and_no_failure(hub, look):
    padding = {f"general.note.{n}": "x" * 4000 for n in range(60)}
    hub.put(REPO, {"m.gguf": Sized(gguf_header(padding | LLAMA), 5_000_000_000)})

    assert look(f"hf://{REPO}/m.gguf").facts == {}


def test_a_tag_a_commit_and_a_revision_with_a_slash_are_found(hub, look):
    first = put(hub, tag="v1")
    moved = hub.put(REPO, {"m.gguf": b"GGUF"}, branch="refs/pr/1")

    assert look(f"hf://{REPO}@v1", facts=False).commit == first
    assert look(f"hf://{REPO}@{first}", facts=False).commit == first
    assert look(f"hf://{REPO}@refs%2Fpr%2F1", facts=False).commit == moved
    assert look(f"hf://{REPO}", revision="v1", facts=False).commit == first


def test_a_listing_of_many_pages_is_read_to_its_end(hub, look):
    hub.page_size = 7
    parts = {f"m-{n:05d}-of-00030.safetensors": safetensors_header() for n in range(1, 31)}
    hub.put(REPO, {"config.json": SMALL} | parts)

    assert len(look(f"hf://{REPO}", facts=False).files) == 31


def test_small_files_have_no_published_sum_and_are_read_for_it(hub, look):
    hub.put(REPO, {"config.json": SMALL, "model.safetensors": safetensors_header(), "empty.txt": b""})

    sums = {file.path: file.sha256 for file in look(f"hf://{REPO}", facts=False).files}

    assert sums["config.json"] == hashlib.sha256(SMALL).hexdigest()
    assert sums["empty.txt"] == hashlib.sha256(b"").hexdigest()


def test_a_small_file_that_comes_damaged_is_noticed_by_its_git_id(hub, look):
    hub.put(REPO, {"config.json": SMALL, "model.safetensors": safetensors_header()})
    hub.answers["config.json"] = [Answer(flipped=3)]

    with pytest.raises(Unreachable, match="came damaged"):
        look(f"hf://{REPO}", facts=False)


def test_a_repository_without_a_pattern_is_what_an_engine_reads(hub, look):
    kept = {"config.json": SMALL, "model.safetensors": safetensors_header(), "tokenizer.json": b"{}"}
    left = {".gitattributes": b"*", "README.md": b"#", "model.py": b"", "pytorch_model.bin": b"", "image.png": b""}
    again = {"original/model.safetensors": b"", "consolidated.safetensors": b"", "onnx/config.json": b"{}"}
    hub.put(REPO, kept | left | again)

    assert [file.path for file in look(f"hf://{REPO}", facts=False).files] == sorted(kept)


def test_several_quantisations_are_several_models(hub, look):
    hub.put(REPO, {"m-Q4_K_M.gguf": MODEL, "m-Q8_0.gguf": MODEL, "mmproj-f16.gguf": MODEL})

    with pytest.raises(Refused, match="has several models") as refused:
        look(f"hf://{REPO}")
    assert "m-Q4_K_M.gguf, m-Q8_0.gguf are one model each" in refused.value.why

    both = look(f"hf://{REPO}", files=["*Q4_K_M*", "mmproj*"])
    assert [file.path for file in both.files] == ["m-Q4_K_M.gguf", "mmproj-f16.gguf"]
    assert look(f"hf://{REPO}", ignore=["*Q8_0*", "mmproj*"]).files[0].path == "m-Q4_K_M.gguf"


def test_a_part_that_is_missing_is_named(hub, look):
    hub.put(REPO, {"m-00001-of-00003.gguf": MODEL, "m-00003-of-00003.gguf": MODEL})

    with pytest.raises(Refused, match="would be had in part") as refused:
        look(f"hf://{REPO}/*.gguf")
    assert "m-00002-of-00003.gguf is not among" in refused.value.why


def test_a_pattern_that_takes_nothing_says_what_there_is(hub, look):
    put(hub)

    with pytest.raises(Refused, match="matches no weights") as refused:
        look(f"hf://{REPO}/*Q9*.gguf")
    assert refused.value.why == "the GGUF and safetensors files there are: model-Q4_K_M.gguf"


def test_a_gated_model_is_listed_and_not_given(hub, look):
    put(hub, gated="manual")

    with pytest.raises(Refused, match="is gated") as refused:
        look(f"hf://{REPO}/*.gguf")
    assert refused.value.do == (
        f"accept its terms at {hub.endpoint}/{REPO}, or give the token of somebody who may: --token-file"
    )
    hub.tokens["hf_other"] = frozenset()
    with pytest.raises(Refused, match="is gated"):
        look(f"hf://{REPO}/*.gguf", token="hf_other")

    assert look(f"hf://{REPO}/*.gguf", token=TOKEN).gated


def test_a_private_repository_is_not_there_for_a_stranger(hub, look):
    put(hub, private=True)

    with pytest.raises(Refused, match="is not there") as refused:
        look(f"hf://{REPO}/*.gguf")
    assert refused.value.why.endswith("has no such repository, or it is private")

    assert look(f"hf://{REPO}/*.gguf", token=TOKEN).files


@pytest.mark.parametrize(
    ("written", "token", "what"),
    [
        ("hf://org/none", None, "is not there"),
        ("hf://org/none", TOKEN, "is not there"),
        (f"hf://{REPO}@none", None, "is gone"),
        (f"hf://{REPO}@{'0' * 40}", None, "is gone"),
        (f"hf://{REPO}", "hf_wrong", "may not be read"),
        ("hf://org/disabled", None, "is disabled"),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_to_do(hub, look, written, token, what):
    put(hub)
    hub.put("org/disabled", {"m.gguf": MODEL}, disabled=True)

    with pytest.raises(Refused, match=what) as refused:
        look(written, token=token)
    assert refused.value.why
    assert refused.value.do
    assert TOKEN not in str(refused.value)


def test_a_commit_that_history_lost_is_gone_and_nothing_takes_its_place(hub, look):
    first = put(hub)
    hub.put(REPO, {"m.gguf": b"GGUF"})
    hub.forget(REPO, first)

    with pytest.raises(Refused, match="is gone"):
        look(f"hf://{REPO}@{first}")


def test_a_renamed_repository_is_found_under_its_old_name(hub, look):
    commit = put(hub)
    hub.rename(REPO, "org/renamed")

    assert look(f"hf://{REPO}/*.gguf").commit == commit


def test_a_hub_that_fails_once_is_asked_again(hub, look):
    put(hub)
    hub.answers["/revision/"] = [Answer(status=503), Answer(status=502), Answer()]
    hub.answers["/tree/"] = [Answer(silent=True), Answer()]

    assert look(f"hf://{REPO}/*.gguf").files


def test_a_rate_limit_is_waited_for_where_it_is_short(hub, look):
    put(hub)
    hub.answers["/revision/"] = [Answer(status=429, headers={"RateLimit": '"api";r=0;t=1'}), Answer()]

    before = time.monotonic()

    assert look(f"hf://{REPO}/*.gguf").files
    assert time.monotonic() - before >= 1


@pytest.mark.parametrize(
    "headers", [{"Retry-After": "300"}, {"RateLimit": '"api";r=0;t=300', "RateLimit-Policy": '"fixed window"'}]
)
def test_a_rate_limit_that_is_long_is_said_and_not_waited_for(hub, look, headers):
    put(hub)
    hub.answers["/revision/"] = [Answer(status=429, headers=headers)]

    with pytest.raises(Unreachable) as unreachable:
        look(f"hf://{REPO}/*.gguf")
    assert unreachable.value.why == "it answers 429 and asks to be left alone for 300 s"
    assert unreachable.value.do.startswith("call again in 300 s")
    assert len(hub.asked) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Answer(status=500),
        Answer(status=503),
        Answer(status=504),
        Answer(silent=True),
        Answer(page=b"[]", headers={"Content-Length": "999"}),
    ],
    ids=["500", "503", "504", "silent", "cut short"],
)
def test_a_hub_that_is_down_is_given_up_after_three_tries(hub, look, fault):
    put(hub)
    hub.answers["/revision/"] = [fault]

    with pytest.raises(Unreachable) as unreachable:
        look(f"hf://{REPO}/*.gguf", web={"stall_s": 0.3})
    assert unreachable.value.do
    assert len(hub.asked) == 3


def test_a_hub_that_is_not_there_is_unreachable(look):
    with pytest.raises(Unreachable, match="cannot be read"):
        look(f"hf://{REPO}", endpoint="http://127.0.0.1:1")


def test_a_hub_that_gives_a_byte_now_and_then_keeps_nobody(hub, look):
    # Every read gets something in time, so only the bound on the whole exchange ends it.
    hub.put(REPO, {"config.json": b" " * 4000, "m.safetensors": safetensors_header()})
    hub.answers["config.json"] = [Answer(bytes_per_s=40)]

    with pytest.raises(Unreachable, match="took too long"):
        look(f"hf://{REPO}", web={"stall_s": 200.0, "one_s": 0.6})


@pytest.mark.parametrize(
    "page",
    [
        b"<html>log in</html>",
        b"[]",
        b"{}",
        b'{"sha": 1}',
        b'{"sha": "main"}',
        b'{"sha": "\xff"}',
        b"[" * 100_000,
        b"",
    ],
)
def test_nonsense_is_said_to_be_nonsense(hub, look, page):
    put(hub)
    hub.answers["/revision/"] = [Answer(page=page)]

    with pytest.raises(OperatorError, match="does not answer as a hub does"):
        look(f"hf://{REPO}/*.gguf")


@pytest.mark.parametrize(
    "row",
    [
        {"type": "file", "path": "../../etc/passwd.gguf", "size": 1, "oid": "0"},
        {"type": "file", "path": "/etc/m.gguf", "size": 1, "oid": "0"},
        {"type": "file", "path": "a\nb.gguf", "size": 1, "oid": "0"},
        {"type": "file", "path": "m.gguf", "size": -1, "lfs": {"oid": "0" * 64, "size": -1}},
        {"type": "file", "path": "m.gguf", "size": 1, "lfs": {"oid": "zz", "size": 1}},
        {"type": "file", "path": 7},
        {"path": "m.gguf"},
    ],
)
def test_a_listing_that_no_hub_would_give_is_refused(hub, look, row):
    put(hub)
    hub.answers["/tree/"] = [Answer(page=json.dumps([row]).encode())]

    with pytest.raises(OperatorError) as refused:
        look(f"hf://{REPO}/*.gguf", facts=False)
    assert refused.value.do


def test_a_listing_without_end_ends(hub, look, monkeypatch):
    monkeypatch.setattr("llmgw.sources.hub.MAX_PAGES", 5)
    put(hub)
    again = {"Link": f'<{hub.endpoint}/api/models/{REPO}/tree/main?cursor=1>; rel="next"'}
    hub.answers["/tree/"] = [Answer(page=b"[]", headers=again)]

    with pytest.raises(OperatorError, match="does not answer as a hub does") as refused:
        look(f"hf://{REPO}")
    assert refused.value.why.endswith("its listing has more than 5 pages")


def test_an_answer_without_end_is_cut(hub, look, monkeypatch):
    monkeypatch.setattr("llmgw.sources.hub._PAGE_BYTES", 1000)
    put(hub)
    hub.answers["/tree/"] = [Answer(page=b" " * 5000)]

    with pytest.raises(OperatorError) as refused:
        look(f"hf://{REPO}")
    assert refused.value.why == "it sends more than 1.0 kB"


def test_redirects_in_a_circle_end(hub, look):
    put(hub)
    hub.answers["/revision/"] = [Answer(status=302, headers={"Location": f"/api/models/{REPO}/revision/main"})]

    with pytest.raises(OperatorError) as refused:
        look(f"hf://{REPO}")
    assert refused.value.why == "it redirects more than 5 times"


def test_the_token_goes_to_the_hub_and_to_no_other_host(hub, look):
    put(hub, gated="auto")

    look(f"hf://{REPO}/*.gguf", token=TOKEN)

    assert all("Authorization" in asked.headers for asked in hub.asked)
    assert hub.fetched
    assert not [asked for asked in hub.fetched if "Authorization" in asked.headers]


def test_a_redirect_to_another_host_carries_no_token(hub, look):
    put(hub)
    with Upstream("127.0.0.2") as other:
        hub.answers["/revision/"] = [Answer(status=302, headers={"Location": f"{other.base}/x"})]
        with pytest.raises(OperatorError):
            look(f"hf://{REPO}", token=TOKEN)

        (asked,) = other.asked
        assert "Authorization" not in asked.headers


def test_the_next_page_of_a_listing_is_not_asked_of_another_host(hub, look):
    put(hub)
    with Upstream("127.0.0.2") as other:
        hub.answers["/tree/"] = [Answer(page=b"[]", headers={"Link": f'<{other.base}/x>; rel="next"'})]
        with pytest.raises(OperatorError, match="does not answer as a hub does"):
            look(f"hf://{REPO}", token=TOKEN)

        assert other.asked == []


def test_a_token_does_not_travel_in_the_clear(tmp_path):
    with Web() as web, pytest.raises(Refused, match="the token is not sent to"):
        Client(web, endpoint="http://hub.example", token_file=tmp_path / "token")


def test_a_token_of_the_environment_is_sent_as_one_of_a_file_is(hub):
    hub.put(REPO, {"model.gguf": MODEL}, private=True)
    with Web() as web:
        found = Sources(web, Client(web, endpoint=hub.endpoint, token=f"{TOKEN}\n")).resolve({"from": f"hf://{REPO}"})

    assert found.files[0].path == "model.gguf"
    assert not [asked for asked in hub.fetched if "Authorization" in asked.headers]


@pytest.mark.parametrize(
    ("endpoint", "token", "what"),
    [
        ("http://hub.example", "hf_x", "the token is not sent to"),
        ("https://hub.example", "hf_x\r\nX-Evil: 1", "HF_TOKEN is no token"),
        ("https://hub.example", "h\u00e9", "HF_TOKEN is no token"),
    ],
)
def test_a_token_of_the_environment_that_cannot_be_sent_is_refused_and_not_shown(endpoint, token, what):
    with Web() as web, pytest.raises(Refused, match=what) as caught:
        Client(web, endpoint=endpoint, token=token)

    assert token not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["hub.example", "ftp://hub", "https://", "https://a:b@hub"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint):
    with Web() as web, pytest.raises(Refused, match="is no hub's address"):
        Client(web, endpoint=endpoint)


def test_a_token_that_is_renewed_is_used_at_once(hub, look, tmp_path):
    put(hub, private=True)
    with pytest.raises(Refused):
        look(f"hf://{REPO}/*.gguf", token="hf_old")

    assert look(f"hf://{REPO}/*.gguf", token=TOKEN).files


def test_a_range_that_is_ignored_costs_no_more_than_the_range(hub, look):
    put(hub)
    hub.answers["/repos/"] = [Answer(whole=True)]

    assert look(f"hf://{REPO}/*.gguf").facts["architecture"] == "llama"
    assert hub.sent_bytes < 20_000_000


def test_what_is_called_gguf_and_is_none_is_refused_by_its_first_bytes(hub, look):
    hub.put(REPO, {"m.gguf": b"<html>not a model</html>" * 10})

    with pytest.raises(Refused, match="the GGUF header cannot be read"):
        look(f"hf://{REPO}/m.gguf")


def test_one_client_serves_many_threads(hub, look):
    put(hub)
    found = []
    threads = [threading.Thread(target=lambda: found.append(look(f"hf://{REPO}/*.gguf"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert len(found) == 8
    assert len({f.commit for f in found}) == 1
