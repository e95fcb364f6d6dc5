"""What is found on a hub and what its repositories hold, as strangers wrote it and as it may be shown."""

from __future__ import annotations

import json

import pytest

from fakes.gguf_bytes import gguf_header
from fakes.hub import Answer, Sized
from llmgw.errors import OperatorError, Unreachable
from llmgw.sources import hub_search
from llmgw.sources.hub import Hub as Client
from llmgw.sources.hub import TreeFile
from llmgw.sources.hub_page import card, held, paragraph, related, shape_of
from llmgw.sources.hub_search import Search, described, search
from llmgw.sources.hub_sets import Kind, file_sets, quantisation
from llmgw.sources.hub_text import first_paragraph, plain
from llmgw.sources.web import Web

SMALL = Sized(gguf_header(), 300_000)


@pytest.fixture
def client(hub):
    with Web(stall_s=0.5, one_s=3.0, patience_s=1.0, backoff_s=0.01) as web:
        yield Client(web, endpoint=hub.endpoint)


def found(client, **asked):
    return [row.id for page in search(client, Search(**asked)) for row in page.found]


def test_a_search_says_everything_of_each_model_in_one_request(hub, client):
    commit = hub.put(
        "org/m-GGUF",
        {"m.gguf": SMALL},
        labels=("gguf",),
        gguf={"total": 8_000_000_000, "architecture": "llama", "context_length": 131072},
        license="apache-2.0",
        base_model="org/m",
        relation="quantized",
        downloads=12,
        likes=3,
        gated="manual",
    )

    (page,) = search(client, Search("m"))

    (row,) = page.found
    assert (row.id, row.commit, row.downloads, row.likes) == ("org/m-GGUF", commit, 12, 3)
    assert (row.architecture, row.context, row.parameters) == ("llama", 131072, 8_000_000_000)
    assert (row.licence, row.base_model, row.quantised, row.gated) == ("apache-2.0", "org/m", True, "manual")
    assert (row.formats, row.created_at) == (frozenset({"gguf"}), 1767225600.0)
    assert len(hub.asked) == 1


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, {"a/one", "a/two", "b/three"}),
        ({"author": "a"}, {"a/one", "a/two"}),
        ({"format": "gguf"}, {"a/one", "b/three"}),
        ({"licence": "MIT"}, {"a/two"}),
        ({"task": "text-generation"}, {"a/one", "b/three"}),
        ({"gated": True}, {"b/three"}),
        ({"gated": False}, {"a/one", "a/two"}),
        ({"query": "thr"}, {"b/three"}),
        ({"query": "none of these"}, set()),
    ],
)
def test_the_hub_filters(hub, client, asked, expected):
    hub.put("a/one", {"m.gguf": SMALL}, labels=("gguf",))
    hub.put(
        "a/two", {"m.safetensors": SMALL}, labels=("safetensors",), license="mit", pipeline_tag="feature-extraction"
    )
    hub.put("b/three", {"m.gguf": SMALL}, labels=("gguf",), gated="auto")

    assert set(found(client, **asked)) == expected


@pytest.mark.parametrize(
    ("asked", "missed"),
    [
        (Search(format="safetensors"), "format"),
        (Search(architecture="qwen2"), "architecture"),
        (Search(architecture="QWEN3-MoE"), ""),
        (Search(licence="mit"), "licence"),
        (Search(author="other"), "author"),
        (Search(task="feature-extraction"), "task"),
        (Search(gated=True), "gated"),
        (Search(format="gguf", licence="Apache-2.0", author="ORG", gated=False), ""),
    ],
)
def test_a_filter_that_the_hub_does_not_know_is_applied_here(asked, missed):
    row = described(
        {
            "id": "org/m",
            "config": {"model_type": "qwen3_moe"},
            "tags": ["gguf", "license:apache-2.0"],
            "pipeline_tag": "text-generation",
        }
    )

    assert row is not None
    assert asked.missed(row) == missed


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("downloads", "b/most"), ("likes", "a/liked"), ("newest", "c/new"), ("trending", "a/liked")],
)
def test_the_hub_sorts(hub, client, sort, expected):
    hub.put("a/liked", {"m.gguf": SMALL}, likes=9)
    hub.put("b/most", {"m.gguf": SMALL}, downloads=9)
    hub.put("c/new", {"m.gguf": SMALL}, created="2026-11-01T00:00:00.000Z")

    assert found(client, sort=sort)[0] == expected


def test_a_search_ends_after_five_pages(hub, client, monkeypatch):
    monkeypatch.setattr(hub_search, "PAGE", 2)
    hub.page_size = 2
    for number in range(20):
        hub.put(f"org/m{number:02}", {"m.gguf": SMALL})

    pages = list(search(client, Search("m", limit=2)))

    assert [len(page.found) for page in pages] == [2] * 5
    assert [page.last for page in pages] == [False] * 4 + [True]
    assert pages[-1].onward


def test_what_is_not_as_it_should_be_is_unknown_and_ends_nothing(hub, client):
    bad = {
        "id": "org/odd",
        "sha": "x",
        "downloads": -5,
        "likes": True,
        "createdAt": "yesterday",
        "gated": "manual",
        "tags": "no list",
        "cardData": {"license": ["mit\x1b[31m", 5], "base_model": "../../etc"},
        "gguf": {"total": "many", "architecture": 7, "context_length": 0},
        "siblings": [None, {"rfilename": 5}],
    }
    hub.answers["/api/models"] = [Answer(page=json.dumps([bad, {"id": "no name"}, {"id": "a/../b"}, {}]).encode())]

    (page,) = search(client, Search("odd"))

    (row,) = page.found
    assert page.unreadable == 3
    assert (row.commit, row.downloads, row.likes, row.created_at) == ("", None, None, None)
    assert (row.licence, row.base_model, row.architecture, row.parameters, row.context) == ("mit", "", "", None, None)


@pytest.mark.parametrize(
    "page",
    [b"<html>sign in</html>", b"{}", b'[{"id":', b'"text"', b"[1]", b"[" * 100_000, b"\xff\xfe"],
)
def test_an_answer_that_is_none_of_a_hubs_is_a_sentence(hub, client, page):
    hub.answers["/api/models"] = [Answer(page=page)]

    with pytest.raises(OperatorError, match="does not answer as a hub does"):
        list(search(client, Search("m")))


def test_a_rate_limit_says_when_to_call_again(hub, client):
    hub.answers["/api/models"] = [Answer(status=429, headers={"Retry-After": "120"})]

    with pytest.raises(Unreachable) as caught:
        list(search(client, Search("m")))

    assert "left alone for 120 s" in caught.value.why
    assert "call again in 120 s; a token raises most limits" in caught.value.do


def tree(*paths, size=10):
    return [TreeFile("file", path, size) for path in paths]


def test_parts_are_one_set_and_what_is_no_model_is_told_apart():
    listed = tree(
        "m-Q4_K_M.gguf",
        "big/m-Q8_0-00001-of-00002.gguf",
        "big/m-Q8_0-00002-of-00002.gguf",
        "half-00001-of-00003.gguf",
        "mmproj-m-f16.gguf",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "adapter_model.safetensors",
        "pytorch_model.bin",
        "training_args.bin",
        "onnx/model.safetensors",
        "README.md",
        "odd name.gguf",
    )

    sets, odd = file_sets(listed)

    assert odd == 1
    assert [(s.kind.value, s.name, s.quantisation, len(s.files), s.whole) for s in sets] == [
        ("model", "half-*-of-00003.gguf", "", 1, False),
        ("model", "m-Q4_K_M.gguf", "Q4_K_M", 1, True),
        ("model", "", "", 2, True),
        ("model", "big/m-Q8_0-*-of-00002.gguf", "Q8_0", 2, True),
        ("projector", "mmproj-m-f16.gguf", "F16", 1, True),
        ("adapter", "adapter_model.safetensors", "", 1, True),
        ("pickled", "*.bin", "", 1, True),
    ]
    assert sets[3].bytes == 20
    assert sets[-1].kind is Kind.PICKLED


def test_a_file_set_is_named_by_its_quantisation_where_that_names_no_other():
    sets, _ = file_sets(tree("m-UD-Q4_K_M.gguf", "m-Q4_K_M.gguf", "m-q8_0.gguf", "m.gguf", "model.safetensors"))

    assert sorted(each.added("org/m", sets) for each in sets) == [
        "org/m",
        "org/m/UD-Q4_K_M",
        "org/m/m-Q4_K_M.gguf",
        "org/m/m.gguf",
        "org/m/q8_0",
    ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"tags": ["base_model:a/b", "base_model:quantized:a/b"]}, ("a/b", True)),
        ({"tags": ["base_model:finetune:a/b"]}, ("a/b", False)),
        ({"tags": ["base_model:quantized:c/d"], "cardData": {"base_model": ["a/b", "c/d"]}}, ("a/b", False)),
        ({"baseModels": {"relation": "quantized", "models": [{"id": "a/b"}]}}, ("a/b", True)),
        ({}, ("", False)),
    ],
)
def test_what_a_model_was_made_of_is_said_in_several_places(entry, expected):
    row = described({"id": "org/m", **entry})

    assert row is not None
    assert (row.base_model, row.quantised) == expected


def test_the_weight_of_a_safetensors_model_is_of_its_own_files(hub, client):
    config = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 8}
    files = {"model.safetensors": SMALL, "adapter_model.safetensors": SMALL, "config.json": json.dumps(config).encode()}
    commit = hub.put("org/m", files)
    holds = held(client, "org/m", commit)

    shape = shape_of(client, "org/m", holds, holds.sets[0])

    assert shape is not None
    assert shape.weights is not None
    assert shape.weights.total == 300_000


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("Llama-3.2-3B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf", "Q4_K_M"),
        ("m.UD-IQ2_XXS.gguf", "UD-IQ2_XXS"),
        ("BF16/m-BF16-00001-of-00002.gguf", "BF16"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("Q8_0/model.gguf", "Q8_0"),
        ("qwen-model.gguf", ""),
    ],
)
def test_a_quantisation_is_read_from_the_name(path, expected):
    assert quantisation(path) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m and \x1b]0;title\x07back", "red and back"),
        ("\x1b]8;;http://bad\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jcleared\x1bc", "cleared"),
        ("two\nlines\tand\r\x08 more", "two lines and more"),
        ("\u202egnp.exe\u200b", "gnp.exe"),
        ("x" * 100, "x" * 79 + "…"),
        (None, ""),
        (5, ""),
        (["a"], ""),
    ],
)
def test_a_text_of_a_hub_does_nothing_to_a_terminal(text, expected):
    assert plain(text) == expected


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("---\nlicense: mit\n---\n# Title\n\nA model that answers *questions* well.\n\nMore.", None),
        ("# Title\n![badge](http://x/y.svg) [![b](c)](d)\n\nA model that answers **questions** well.", None),
        (
            "<!-- hidden words that nobody reads -->\n<p align=center><b>A model</b> that answers questions well.</p>",
            None,
        ),
        ("```\nsome code with many words\n```\n\n> A [model](http://x) that answers `questions` well.", None),
        ("| a | b |\n|---|---|\n\n- one item of a list here\n\nA model\nthat answers\nquestions well.", None),
        ("\x1b[2JA model that answers questions \x1b]0;x\x07well.", None),
        ("", ""),
        ("---\nno: end", ""),
        ("# Only a title of several words", ""),
    ],
)
def test_the_first_paragraph_is_prose_without_marks(markdown, expected):
    assert first_paragraph(markdown) == ("A model that answers questions well." if expected is None else expected)


@pytest.mark.parametrize("evil", ["<", "[", "![](", "*", "\x1b]", "-", "---\n", "<!--", "\n```", " ", "\n\n", "<a "])
def test_a_readme_made_to_cost_time_costs_none(evil):
    assert len(first_paragraph(evil * (60_000 // len(evil)))) <= 600


def test_a_repository_is_described_by_its_card_its_sets_and_its_readme(hub, client):
    hub.put(
        "org/m-GGUF",
        {"m-Q4_K_M.gguf": SMALL, "README.md": b"# M\n\nA model that answers questions well.\n"},
        base_model="org/m",
        relation="quantized",
    )
    hub.put("else/lora", {"adapter_model.safetensors": SMALL}, base_model="org/m", relation="adapter", downloads=2)
    hub.put("else/m-AWQ", {"m.safetensors": SMALL}, base_model="org/m", relation="quantized", downloads=7)

    about = card(client, "org/m-GGUF")
    holds = held(client, about.id, about.commit)
    near = related(client, about)

    assert [(s.name, s.bytes) for s in holds.sets] == [("m-Q4_K_M.gguf", 300_000)]
    assert paragraph(client, about.id, holds) == "A model that answers questions well."
    assert near.of == "org/m"
    assert near.adapters is not None
    assert near.quantised is not None
    assert ([r.id for r in near.adapters], [r.id for r in near.quantised]) == (["else/lora"], ["else/m-AWQ"])


def test_what_the_hub_does_not_say_beside_a_repository_is_unknown(hub, client):
    hub.put("org/m", {"m.gguf": SMALL})
    about = card(client, "org/m")
    hub.answers[r"/api/models\?"] = [Answer(status=404)]

    near = related(client, about)

    assert (near.adapters, near.quantised) == (None, None)
