"""Sources that are no hub's: files by their URL, manifests, the mirror, and this machine's disk."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest

from fakes.gguf_bytes import gguf_header, safetensors_header
from fakes.upstream import Answer, Upstream
from llmgw.errors import OperatorError, Refused, Unreachable
from llmgw.sources.hub import Hub
from llmgw.sources.upstream import Upstream as Sources
from llmgw.sources.web import Web

MODEL = gguf_header() + bytes(100_000)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def server():
    with Upstream() as made:
        yield made


@pytest.fixture
def look():
    with Web(stall_s=0.5, one_s=3.0, patience_s=2.0, backoff_s=0.01) as web:
        hub = Hub(web, endpoint="http://127.0.0.1:1")
        yield lambda written, *, mirror=None, **more: Sources(web, hub, mirror=mirror).resolve(
            {"from": written}, **more
        )


def listed(found) -> list[tuple[str, int | None, str | None]]:
    return [(file.path, file.bytes, file.sha256) for file in found.files]


def test_a_file_by_its_url_has_the_size_its_server_says_and_its_shape(server, look):
    # This server has no HEAD: it is asked for one byte in its place.
    found = look(server.put("/a%20b/m.gguf", MODEL))

    assert listed(found) == [("m.gguf", len(MODEL), None)]
    assert found.facts["layers"] == 2
    assert server.sent_bytes < 3 * len(MODEL)


def test_a_sum_is_taken_where_a_server_says_it_in_a_way_that_can_mean_nothing_else(server, look):
    sum_ = hashlib.sha256(MODEL)
    digest = f"sha-256=:{base64.b64encode(sum_.digest()).decode()}:"
    url = server.put("/m.gguf", MODEL, Answer(headers={"Repr-Digest": digest}))
    tagged = server.put("/t.gguf", MODEL, Answer(headers={"ETag": f'"{sum_.hexdigest()}"'}))

    assert listed(look(url)) == [("m.gguf", len(MODEL), sum_.hexdigest())]
    assert listed(look(tagged)) == [("t.gguf", len(MODEL), None)]


@pytest.mark.parametrize(
    ("answer", "kind", "why"),
    [
        (Answer(status=404), Refused, "it answers 404"),
        (Answer(status=410), Refused, "it answers 410"),
        (Answer(status=403), Refused, "it answers 403"),
        (Answer(status=401), Refused, "it answers 401"),
        (Answer(status=500), Unreachable, "it answers 500"),
        (Answer(status=418), OperatorError, "it answers 418"),
        (Answer(page=b"<html>log in</html>"), Refused, "it answers with text/html"),
        (Answer(status=302, headers={"Location": "/m.gguf"}), OperatorError, "it redirects more than 5 times"),
        (Answer(status=302, headers={"Location": "ftp://host/x"}), OperatorError, None),
    ],
)
def test_what_cannot_be_had_is_said_with_what_to_do(server, look, answer, kind, why):
    url = server.put("/m.gguf", MODEL, answer)

    with pytest.raises(kind) as refused:
        look(url)
    assert why is None or refused.value.why == why
    assert refused.value.do


def test_secrets_in_a_url_are_not_repeated(server, look):
    url = server.put("/m.gguf", MODEL, Answer(status=404))

    with pytest.raises(Refused) as refused:
        look(f"{url}?token=hunter2")
    assert "hunter2" not in str(refused.value)


def test_a_folder_of_the_byte_port_is_what_its_manifest_lists(server, look):
    manifest = {"schema": 1, "files": [{"path": "m.gguf", "size": len(MODEL), "sha256": "ab" * 32}]}
    server.put("/m/1/", b"", Answer(page=json.dumps(manifest).encode()))
    server.put("/m/1/m.gguf", MODEL)

    for found in (look(f"{server.base}/m/1/"), look("mirror:m/1/", mirror=server.base)):
        assert listed(found) == [("m.gguf", len(MODEL), "ab" * 32)]
        assert found.facts["architecture"] == "llama"


@pytest.mark.parametrize(
    "page",
    [
        b"<html>",
        b"{}",
        b'{"files": [{"path": "../m.gguf", "size": 1, "sha256": ""}]}',
        b'{"files": [{"path": ".m.gguf", "size": 1, "sha256": ""}]}',
    ],
)
def test_a_folder_that_lists_nothing_or_what_no_disk_should_hold_is_refused(server, look, page):
    server.put("/m/1/", b"", Answer(page=page))

    with pytest.raises(OperatorError) as refused:
        look(f"{server.base}/m/1/", facts=False)
    assert refused.value.do


def test_a_mirror_that_nobody_named_is_asked_for(look):
    with pytest.raises(Refused, match="cannot be looked at"):
        look("mirror:m/1/")


def test_a_file_and_a_folder_of_this_machine_are_read(tmp_path, look):
    (tmp_path / "m.gguf").write_bytes(MODEL)
    (tmp_path / ".hidden").write_bytes(b"")

    for written in (str(tmp_path / "m.gguf"), (tmp_path / "m.gguf").as_uri(), str(tmp_path)):
        assert listed(look(written)) == [("m.gguf", len(MODEL), None)]
        assert look(written).facts["layers"] == 2


def test_a_safetensors_model_has_its_shape_from_its_configuration(tmp_path, look):
    weights = safetensors_header() + bytes(512_000)
    (tmp_path / "model.safetensors").write_bytes(weights)
    assert look(str(tmp_path)).facts == {}

    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    facts = look(str(tmp_path)).facts

    assert (facts["format"], facts["layers"], facts["kv_heads"]) == ("safetensors", 2, 2)
    assert facts["weights.total"] == len(weights)


def test_a_configuration_that_is_none_is_refused(tmp_path, look):
    (tmp_path / "model.safetensors").write_bytes(safetensors_header())
    (tmp_path / "config.json").write_text("[1]")

    with pytest.raises(Refused, match=r"model\.safetensors: "):
        look(str(tmp_path))


def test_what_is_not_here_says_where_to_look(look):
    with pytest.raises(Refused) as refused:
        look("/nowhere/m.gguf")
    assert refused.value.do == "lock where the file is, or have the mirror look: llmgw lock --via mirror"


@pytest.mark.parametrize("written", ["s3://bucket/m.gguf", "oci://registry/m", "nonsense"])
def test_what_nobody_can_look_at_yet_says_what_to_write(look, written):
    with pytest.raises(Refused, match="cannot be looked at") as refused:
        look(written)
    assert refused.value.do.startswith("write its https:// address")
