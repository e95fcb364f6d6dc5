"""Why an engine ended: a truth table over its exit, its log and the kernel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llmgw_agent import dossier
from llmgw_agent.engines.llamacpp import LlamaCpp
from llmgw_agent.process import Exit

CUDA = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000 MiB on device 0: cudaMalloc failed: out of memory"
LOADING = ["build_info: b1", "srv load_model: loading model 'm.gguf'"]


@pytest.mark.parametrize(
    ("how", "lines", "kernel", "expected"),
    [
        pytest.param(Exit(code=1), [*LOADING, CUDA, "failed to load model"], False, "out_of_memory", id="ds8 by CUDA"),
        pytest.param(Exit(signal=9), LOADING, True, "out_of_memory", id="ds8 by the kernel"),
        pytest.param(Exit(signal=9), LOADING, False, "killed", id="ended by somebody"),
        pytest.param(Exit(signal=15), LOADING, False, "killed", id="asked to end by somebody"),
        pytest.param(Exit(signal=4), LOADING, False, "device", id="built for another processor"),
        pytest.param(Exit(signal=11), LOADING, False, "exited", id="a crash"),
        pytest.param(Exit(code=1), ["error: invalid argument: --x"], False, "bad_flags", id="a flag it does not know"),
        pytest.param(Exit(code=1), ["couldn't bind HTTP server socket"], False, "port", id="a port that is taken"),
        pytest.param(Exit(code=1), ["gguf_init: invalid magic characters: 'hell'"], False, "weights", id="no model"),
        pytest.param(Exit(code=1), ["ggml_cuda_init: no CUDA-capable device"], False, "device", id="no card"),
        pytest.param(Exit(code=134), ["terminate: std::bad_alloc"], False, "out_of_memory", id="by the allocator"),
        pytest.param(Exit(code=0), LOADING, False, "exited", id="ended without a word of why"),
        pytest.param(Exit(), [], False, "exited", id="adopted, so nobody was told"),
    ],
)
def test_the_class_of_a_failure(how, lines, kernel, expected):
    found = dossier.of_exit(how, lines, LlamaCpp.signs, kernel_out_of_memory=kernel)

    assert found.cause == expected
    assert found.message


def test_every_cause_is_in_the_docs():
    root = Path(__file__).resolve().parents[2]
    code = "".join(file.read_text() for file in (root / "agent/llmgw_agent").rglob("*.py"))
    named = set(re.findall(r'(?:Fault|Dossier|of_silence)\(\s*"(\w+)"', code)) | {cause for cause, _ in LlamaCpp.signs}
    of_failures = (root / "docs/agent.md").read_text().partition("| cause |")[2]
    told = set(re.findall(r"^\| `(\w+)` \|", of_failures, re.MULTILINE))

    assert named <= told
    assert told - named == {"killed"}  # which no sign in a log shows


def test_ka9_the_message_is_the_line_of_the_log_that_an_operator_would_look_for():
    lines = [*LOADING, "E srv init: failed to read tokenizer", "cleaning up before exit"]

    found = dossier.of_exit(Exit(code=1), lines, LlamaCpp.signs, kernel_out_of_memory=False)

    assert found.message == "it ended with code 1: E srv init: failed to read tokenizer"


def test_a_log_is_reported_in_part_and_without_the_key_or_colours(tmp_path):
    log = tmp_path / "log"
    log.write_text("x" * 1000 + "\n" + "\x1b[31mred\x1b[0m\n10%\r100%\nkey=sesame\n\n" * 30)

    lines = dossier.last_lines(log, secret="sesame")
    tail = dossier.tail(lines)

    assert tail[-4:] == ("red", "10%", "100%", "key=(key)")
    assert len(tail) == 40
    assert max(map(len, dossier.tail(lines[:1]))) == 400


def test_a_log_that_is_not_there_has_no_lines(tmp_path):
    assert dossier.last_lines(tmp_path / "none") == []
