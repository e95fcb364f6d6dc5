"""Weights hold numbers and text; what runs code when it is opened is refused by name and by content."""

from __future__ import annotations

import io
import json
import pickle
import zipfile

import pytest

from fakes.upstream import gguf
from llmgw.mirror import weights


def safetensors(header: bytes = b'{"a":{}}', *, length: int | None = None) -> bytes:
    return (len(header) if length is None else length).to_bytes(8, "little") + header


def zipped() -> bytes:
    with zipfile.ZipFile(buffer := io.BytesIO(), "w") as archive:
        archive.writestr("data.pkl", pickle.dumps({}))
    return buffer.getvalue()


@pytest.mark.parametrize("path", ["pytorch_model.bin", "a.pt", "b.PTH", "c.ckpt", "d.pkl", "modeling_x.py", "e/f.npz"])
def test_formats_that_run_code_are_refused_by_name(path: str):
    assert "can run code" in weights.name_problem(path)


@pytest.mark.parametrize(
    "path", ["m.gguf", "m.safetensors", "config.json", "tokenizer.model", "README.md", "merges.txt"]
)
def test_weights_and_what_lies_beside_them_are_taken(path: str):
    assert weights.name_problem(path) == ""


@pytest.mark.parametrize(
    ("path", "head", "said"),
    [
        pytest.param("m.gguf", gguf(64), "", id="GGUF"),
        pytest.param("m.GGUF", b"<!doctype html>" + bytes(64), "is not a GGUF file", id="a page"),
        pytest.param("m.gguf", b"", "is not a GGUF file", id="nothing"),
        pytest.param("m.gguf", b"GGUF" + bytes([1, 0, 0, 0]) + bytes(56), "is GGUF of version 1", id="an old version"),
        pytest.param("m.gguf", b"GGUF\x03", "is GGUF of version 3", id="a beginning of one"),
        pytest.param("m.safetensors", safetensors(), "", id="safetensors"),
        pytest.param("m.safetensors", safetensors(length=1 << 40), "is not a safetensors file", id="a huge header"),
        pytest.param("m.safetensors", safetensors(length=60), "is not a safetensors file", id="a header past the end"),
        pytest.param("m.safetensors", safetensors(b"[1, 2]"), "is not a safetensors file", id="no object"),
        pytest.param("m.safetensors", b"{}", "is not a safetensors file", id="too short"),
        pytest.param("m.safetensors", pickle.dumps(list(range(99))), "is a Python pickle", id="a pickle in disguise"),
        pytest.param("tokenizer.model", zipped(), "is a zip archive", id="a zip under a harmless name"),
        pytest.param("config.json", json.dumps({"a": 1}).encode(), "", id="JSON"),
        pytest.param("notes.txt", b"", "", id="an empty text"),
    ],
)
def test_content_is_judged_by_its_first_bytes(path: str, head: bytes, said: str):
    problem = weights.head_problem(path, head[:64], len(head))

    assert said in problem
    assert bool(problem) == bool(said)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_binary_pickle_is_known(protocol: int):
    assert "pickle" in weights.head_problem("x.json", pickle.dumps({}, protocol=protocol), None)
