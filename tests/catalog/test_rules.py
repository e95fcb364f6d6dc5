"""What a schema cannot say is said by a rule, with what to write instead."""

from __future__ import annotations

import pytest
from catalog.written import GONE, MODEL, SERVER, as_yaml, changed

from llmgw.catalog.check import read_fleet, read_models, read_server

GPU, CPU = ("profiles", 0), ("profiles", 1)
URL = ("source", "from")
PATH = "/mnt/models/coder.gguf"
ANY = "write https://…, file:///… or a path that begins with /"


def judged(*changes) -> list[tuple[str, str]]:
    """What is wrong with the sample once it is changed, and what to do."""
    return [(p.what, p.do) for p in read_models("catalog/a.yaml", as_yaml(changed(MODEL, *changes))).problems]


def judged_server(*changes) -> list[tuple[str, str]]:
    return [(p.what, p.do) for p in read_server(as_yaml(changed(SERVER, *changes)))[1]]


def source(written: str, **more: str) -> tuple[tuple[str], dict[str, str]]:
    """A change of the whole source."""
    return ("source",), {"from": written, **more}


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        pytest.param(
            [((*GPU, "replicas"), 0), ((*CPU, "replicas"), 0)],
            [("coder would run nowhere", "write `state: stopped`, which keeps the counts, or give a profile a count")],
            id="every count is 0",
        ),
        pytest.param(
            [((*GPU, "replicas"), 0), ((*CPU, "replicas"), 0), (("state",), "stopped")],
            [],
            id="every count is 0 and it is stopped",
        ),
        pytest.param([((*GPU, "replicas"), 0)], [], id="one count is 0"),
        pytest.param(
            [((*GPU, "context"), 16383)],
            [
                (
                    "`context` 16383 of profile gpu is too small",
                    "take `context` out, write at least 16384, or lower `context_length` or `parallel`",
                )
            ],
            id="a pool one token too small for its slots",
        ),
        pytest.param(
            [((*GPU, "context"), 4096), ((*GPU, "args"), ["--kv-unified"])], [], id="slots that share a whole pool"
        ),
        pytest.param(
            [((*GPU, "context"), 4095), ((*GPU, "args"), ["-kvu"])],
            [
                (
                    "`context` 4095 of profile gpu is too small",
                    "take `context` out, write at least 4096, or lower `context_length` or `parallel`",
                )
            ],
            id="a shared pool too small for one request",
        ),
        pytest.param(
            [((*GPU, "context"), 4096), ((*GPU, "engine"), "vllm"), ((*GPU, "args"), [])],
            [],
            id="an engine that pages its pool",
        ),
        pytest.param(
            [(("max_output",), 4097)],
            [("`max_output` 4097 is over `context_length` 4096", "write at most 4096")],
            id="an answer longer than a request may be",
        ),
        pytest.param([(("max_output",), 4096)], [], id="an answer as long as a request may be"),
        pytest.param(
            [(("kind",), "embedding")],
            [("`max_output` is on an embedding model", "take it out")],
            id="an embedding with an answer's length",
        ),
        pytest.param(
            [((*CPU, "name"), "gpu")],
            [("two profiles are called gpu", "rename one of them")],
            id="two profiles of one name",
        ),
        pytest.param(
            [(("aliases",), ["coder", "code"])],
            [("the alias coder is the model's own name", "take it out")],
            id="an alias that is the name",
        ),
        pytest.param(
            [(("aliases",), ["code", "code"])],
            [("the alias code is there twice", "take it out")],
            id="an alias twice",
        ),
    ],
)
def test_a_model_that_contradicts_itself(changes, problems):
    assert judged(*changes) == problems


@pytest.mark.parametrize(
    ("engine", "args", "do"),
    [
        pytest.param("llamacpp", ["--port", "9000"], "take it out: the agent chooses", id="VO6 a port"),
        pytest.param("llamacpp", ["--port=9000"], "take it out: the agent chooses", id="VO6 a port in one word"),
        pytest.param("vllm", ["--host", "0.0.0.0"], "take it out: the agent chooses", id="an address"),
        pytest.param("llamacpp", ["-m", "/x.gguf"], "take it out, and write the model's `source`", id="weights"),
        pytest.param("llamacpp", ["-c", "8192"], "write `context` for the whole pool", id="a pool"),
        pytest.param("vllm", ["--max-model-len=8192"], "write `context` for the whole pool", id="a length"),
        pytest.param("llamacpp", ["-np", "4"], "write `parallel`", id="slots"),
        pytest.param("sglang", ["--tp", "2"], "write `gpu.count`", id="cards"),
        pytest.param("llamacpp", ["-t", "8"], "write `threads`", id="threads"),
    ],
)
def test_a_flag_that_llmgw_makes_itself_is_not_for_args(engine, args, do):
    ((what, next_),) = judged(((*GPU, "engine"), engine), ((*GPU, "args"), args))

    assert what == f"`{args[0].partition('=')[0]}` is in the args of profile gpu"
    assert next_.startswith(do)


@pytest.mark.parametrize("args", [["-ngl", "99"], ["--flash-attn", "on"], ["--seed", "-1"], ["--portable"]])
def test_any_other_flag_is_the_engines_business(args):
    assert judged(((*GPU, "args"), args)) == []


@pytest.mark.parametrize(
    "written",
    [
        "https://example.com/a.gguf",
        "http://10.0.0.9:8000/a%20b.gguf?download=1",
        "HTTPS://example.com/a.gguf",
        "file:///srv/models/a.gguf",
        "hf://Qwen/Qwen3-8B-GGUF@main/*Q4_K_M*.gguf",
        "hf://Qwen/Qwen3-8B",
        "file://localhost/srv/a.gguf",
    ],
)
def test_a_file_by_its_url_is_a_source(written):
    assert judged(source(written, version="v1")) == []


@pytest.mark.parametrize(
    ("written", "what", "do"),
    [
        ("modelscope://Qwen", "`from` is no modelscope source", "write modelscope://OWNER/NAME@REVISION/FILE"),
        ("hf://Qwen", "`from` names no repository", "write it like hf://Qwen/Qwen3-8B-GGUF@main/*Q4_K_M*.gguf"),
        ("hf://Qwen/a b@main", "`from` is neither a URL nor a path", "write a space in a URL as %20"),
        ("hf://Qwen/Qwen3@", "`from` names no repository", "write it like hf://Qwen/Qwen3-8B-GGUF@main/*Q4_K_M*.gguf"),
        ("s3://bucket", "`from` is no s3 source", "write s3://BUCKET/FILE"),
        ("s3://bucket/../x.gguf", "`from` has `..` in it: bucket/../x.gguf", "write the path itself"),
        ("gs://Bucket/x.gguf", "`from` is no gs source", "write gs://BUCKET/FILE"),
        ("oci://registry", "`from` is no oci source", "write oci://REGISTRY/NAME:TAG"),
        ("hf://ana:hunter@huggingface.co/x", "`from` has credentials", "take them out, and write `token_ref`"),
        (
            "ftp://host/x.gguf",
            "`from` cannot be `ftp://host/x.gguf`",
            ANY,
        ),
        (
            "models/x.gguf",
            "`from` cannot be `models/x.gguf`",
            ANY,
        ),
        ("C:\\x.gguf", "`from` cannot be `C:\\x.gguf`", ANY),
        ("file://host/x.gguf", "`from` is not a file's URL", "write three slashes: file:///PATH"),
        ("file:x.gguf", "`from` is not a file's URL", "write three slashes: file:///PATH"),
        ("https:///x.gguf", "`from` has no host", "write https://HOST/PATH"),
        ("https://host:99999/x", "`from` is no URL", "write https://HOST/PATH"),
        ("https://[x", "`from` is no URL", "write https://HOST/PATH"),
        ("https://example.com", "`from` names no file", "write the path of a file or a folder too"),
        ("https://example.com/a b.gguf", "`from` is neither a URL nor a path", "write a space in a URL as %20"),
        ("file:///srv/../etc/shadow", "`from` has `..` in it: /srv/../etc/shadow", "write the path itself"),
        ("https://example.com/%2e%2e/x", "`from` has `..` in it: /%2e%2e/x", "write the path itself"),
    ],
)
def test_a_source_that_cannot_be_fetched(written, what, do):
    assert judged(source(written, version="v1")) == [(what, do)]


@pytest.mark.parametrize(
    "written",
    [
        "modelscope://Qwen/Qwen3@v1/x.gguf",
        "s3://bucket/x.gguf",
        "gs://bucket/a/x.gguf",
        "oci://registry.lab:5000/models/x:v1",
        "https://example.com/models/",
        "https://example.com/*Q4*.gguf",
        "mirror:coder/v1/",
    ],
)
def test_a_source_that_nobody_fetches_yet_is_good_and_noted(written):
    more = {} if written.startswith("mirror:") else {"version": "v1"}
    found = read_models("catalog/a.yaml", as_yaml(changed(MODEL, source(written, **more))))

    assert found.problems == ()
    assert [note.field for note in found.notes] == ["source.from"]


@pytest.mark.parametrize(
    "written", ["https://ana:hunter2@example.com/x", "https://ana:hunt/er2@[x", "http://hunter2@h:x/"]
)
def test_credentials_in_a_url_are_refused_and_not_repeated(written):
    text = as_yaml(changed(MODEL, source(written, version="v1")))

    (problem,) = read_models("catalog/a.yaml", text).problems

    assert problem.what in {"`from` has credentials", "`from` is no URL"}
    assert "er2" not in str(problem)


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        pytest.param(source(PATH), [], id="a path"),
        pytest.param(
            source(PATH, version="v1", sha256="ab" * 32),
            [
                ("`version` is beside a path", "take it out, or write `from: file://…`"),
                ("`sha256` is beside a path", "take it out, or write `from: file://…`"),
            ],
            id="a path with what only a fetched file has",
        ),
        pytest.param(
            source("/mnt/../etc/x"),
            [("`from` has `..` in it: /mnt/../etc/x", "write the path itself")],
            id="a path that leads up",
        ),
        pytest.param(
            (("source", "version"), GONE),
            [("the source has no `version`", "add `version:`, the build or its date")],
            id="a mirrored source without a version",
        ),
    ],
)
def test_what_belongs_beside_a_source(change, problems):
    assert judged(change) == problems


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        pytest.param(
            (("nodes", 1, "name"), "n1"),
            [("two nodes are called n1", "rename one of them")],
            id="two nodes of one name",
        ),
        pytest.param(
            (("gateways",), [{"name": "a"}, {"name": "a"}]),
            [("two gateways are called a", "rename one of them")],
            id="two gateways of one name",
        ),
        pytest.param(
            (("operators",), [{"name": "a"}, {"name": "a"}]),
            [("two operators are called a", "rename one of them")],
            id="two operators of one name",
        ),
        pytest.param((("gateways", 0, "name"), "n1"), [], id="a gateway called as a node is"),
        pytest.param(
            (("operators", 0, "key_sha256"), "01" * 32),
            [("ana has the key of n1", "make it one with `llmgw key new`")],
            id="one key for two callers",
        ),
        pytest.param((("nodes", 1, "address"), "10.0.0.5"), [], id="two nodes of one address"),
        pytest.param((("nodes", 0, "address"), "fd00::5"), [], id="an IPv6 address"),
        pytest.param(
            (("nodes", 0, "address"), "10.0.0.5:8080"),
            [("`address` cannot be `10.0.0.5:8080`", "write the host without a port")],
            id="VO6 an address with a port",
        ),
        *(
            pytest.param(
                (("nodes", 0, "address"), address),
                [(f"`address` cannot be `{address}`", "write the address other machines reach")],
                id=f"an address nobody can reach, {address}",
            )
            for address in ("0.0.0.0", "::")
        ),
        *(
            pytest.param(
                (("cluster",), name), [(f"`cluster` cannot be `{name}`", "write another name")], id=f"no branch: {name}"
            )
            for name in ("a..b", "a.lock", "a.")
        ),
    ],
)
def test_a_fleet_that_contradicts_itself(change, problems):
    assert judged_server(change) == problems


def test_a_mirrored_model_needs_a_mirror_and_a_path_does_not():
    without = as_yaml(changed(SERVER, (("mirror",), GONE)))
    path = changed(MODEL, source(PATH), (("name",), "local"), (("aliases",), []))

    fleet = read_fleet({"server.yaml": without, "catalog/a.yaml": as_yaml(MODEL), "catalog/b.yaml": as_yaml(path)})

    assert [(p.what, p.model) for p in fleet.problems] == [
        ("coder has its weights from a mirror, and the fleet has none", "coder")
    ]
    assert ([e.model.name for e in fleet.models], fleet.frozen) == (["local"], ("coder",))


def test_one_key_for_two_callers_is_found_among_thousands():
    nodes = [{"name": f"n{n}", "address": "h", "key_sha256": f"{n:064x}"} for n in range(5000)]

    problems = judged_server((("nodes",), [*nodes, *({**n, "name": f"{n['name']}x"} for n in nodes[-50:])]))

    assert len(problems) == 50


@pytest.mark.parametrize(
    "query", ["token=abc", "a=b&key=abc", "sig=abc", "X-Amz-Signature=abc", "access_token=abc", "api_key=abc", "token="]
)
def test_a_url_that_opens_something_by_itself_is_a_secret(query):
    (found,) = read_models("catalog/a.yaml", as_yaml(changed(MODEL, (URL, f"https://h/x.gguf?{query}")))).problems

    assert found.what == "`from` has credentials"
    assert "the repository holds no secrets" in found.why
    assert "abc" not in str(found)


@pytest.mark.parametrize("query", ["download=true", "keyboard=1", "tokens=3", "turkey=1", "rev=main&file=x"])
def test_a_url_may_have_any_other_query(query):
    assert judged((URL, f"https://h/x.gguf?{query}")) == []


def test_a_start_may_not_be_given_no_time_at_all():
    assert judged(((*GPU, "start_timeout"), 0)) == judged(((*GPU, "start_timeout"), "0s"))
    assert judged(((*GPU, "start_timeout"), 0)) == [
        (
            "`start_timeout` of profile gpu cannot be 0",
            "write the longest it may be silent, like `15m`, or take it out",
        )
    ]


def test_a_count_that_is_missing_is_not_called_zero():
    changes = [((*GPU, "replicas"), GONE), ((*CPU, "replicas"), GONE)]

    assert [what for what, _ in judged(*changes)] == [
        "`profiles[0].replicas` is missing",
        "`profiles[1].replicas` is missing",
    ]


def test_two_windows_of_one_name_are_called_by_what_they_are():
    window = {"name": "w", "cron": "0 18 * * 5", "duration": "1h"}

    assert judged_server((("freeze",), [window, window])) == [("two freeze windows are called w", "rename one of them")]
