"""What a node has: cards as their driver tells of them, engines as they lie there, memory as it is used."""

from __future__ import annotations

import os

import pytest

from fakes.waiting import until
from llmgw_agent.probe import engines, gpu, host
from llmgw_agent.protocol import Card, InstalledEngine, Phase

MIB = 1 << 20
GIB = 1 << 30

# As `nvidia-smi --query-gpu=uuid,name,memory.total,memory.used,compute_cap
# --format=csv,noheader,nounits` prints it on a machine with three kinds of card.
CARDS = """\
GPU-8f2b0c1e-1111-2222-3333-444455556666, NVIDIA L40S, 46068, 12345, 8.9
GPU-0a0a0a0a-1111-2222-3333-444455556666, Tesla T4, 15360, 0, 7.5
GPU-1b1b1b1b-1111-2222-3333-444455556666, NVIDIA GB10, [N/A], [N/A], 12.1
"""
PROCESSES = """\
GPU-8f2b0c1e-1111-2222-3333-444455556666, 4242, 12000
GPU-8f2b0c1e-1111-2222-3333-444455556666, 77, 300
GPU-0a0a0a0a-1111-2222-3333-444455556666, 4243, [N/A]
"""


@pytest.mark.parametrize(
    ("name", "mib", "expected"),
    [
        ("NVIDIA L40S", 46068, "l40s-48g"),
        ("NVIDIA A10G", 23028, "a10g-24g"),
        ("Tesla T4", 15360, "t4-16g"),
        ("NVIDIA H100 80GB HBM3", 81559, "h100-80g"),
        ("NVIDIA H200", 143771, "h200-141g"),
        ("NVIDIA B200", 183359, "b200-180g"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "rtx-pro-6000-blackwell-96g"),
        ("AMD Instinct MI300X", 196592, "mi300x-192g"),
        ("NVIDIA GeForce RTX 3090", 24576, "rtx-3090-24g"),
        ("NVIDIA GeForce RTX 4090", 24564, "rtx-4090-24g"),
        ("NVIDIA A100-SXM4-80GB", 81920, "a100-80g"),
        ("NVIDIA A100-PCIE-40GB", 40960, "a100-40g"),
        ("NVIDIA RTX 6000 Ada Generation", 49140, "rtx-6000-ada-48g"),
    ],
)
def test_a_card_is_called_by_its_product_and_the_memory_it_is_sold_with(name, mib, expected):
    assert gpu.card_class(name, mib * MIB) == expected


def test_cards_are_read_and_our_own_engines_do_not_count_as_others():
    cards = gpu.parse(CARDS, PROCESSES, ours={4242})

    t4, l40s = cards  # the third has no memory of its own, and is left out rather than called empty
    assert l40s == Card(
        "GPU-8f2b0c1e-1111-2222-3333-444455556666", "NVIDIA L40S", "nvidia", "l40s-48g", 46068 * MIB, 345 * MIB, "8.9"
    )
    assert (t4.card_class, t4.used_by_others_bytes) == ("t4-16g", 0)


def test_a_field_the_driver_does_not_know_is_unknown_and_not_zero():
    (card,) = gpu.parse("GPU-1, NVIDIA L4, 23034, [N/A], [N/A]\n", "No running processes found", ours=())

    assert (card.used_by_others_bytes, card.compute_capability) == (None, "")


@pytest.fixture
def smi(tmp_path):
    """Puts a program called nvidia-smi on a path."""

    def write(script: str):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return [tmp_path]

    return write


async def test_no_driver_is_no_card_and_no_problem(tmp_path):
    assert await gpu.look([tmp_path], ours=()) == gpu.Cards()


async def test_a_driver_that_says_what_is_wrong_is_quoted(smi):
    path = smi("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")

    assert (await gpu.look(path, ours=())).problem == "Failed to initialize NVML: Driver/library version mismatch"


async def test_a_driver_that_answers_is_read(smi, tmp_path):
    (tmp_path / "cards").write_text(CARDS)
    (tmp_path / "apps").write_text(PROCESSES)
    path = smi(f'case "$1" in *query-gpu*) cat {tmp_path}/cards;; *) cat {tmp_path}/apps;; esac')

    assert [c.card_class for c in (await gpu.look(path, ours={4242})).cards] == ["t4-16g", "l40s-48g"]


async def test_a_driver_that_hangs_is_given_up_and_named(smi, monkeypatch):
    monkeypatch.setattr(gpu, "DEADLINE_S", 0.2)

    seen = await gpu.look(smi("exec sleep 60"), ours=())

    assert "does not answer within 0.2 s" in seen.problem


async def test_ds10_a_hanging_driver_delays_no_report_and_no_engine(agents, control, smi, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "DEADLINE_S", 60.0)
    hang = tmp_path / "hang"
    hang.touch()
    path = smi(f"while [ -e {hang} ]; do sleep 0.05; done")
    control.order(agents.order())
    await agents.start(path=(*path, *agents.settings.path))

    await control.sees(Phase.READY)

    # What is not known yet is not said to be absent.
    assert not control.report.inventory
    hang.unlink()
    await until(lambda: control.report.inventory)


@pytest.fixture
def program(tmp_path):
    """Puts a llama-server into a folder that only its owner may write to."""
    folder = tmp_path / "bin"
    folder.mkdir(mode=0o755)
    made = folder / "llama-server"
    made.write_text("#!/bin/sh\ntouch was-run\n")
    made.chmod(0o755)
    return made


def installed(*folders) -> list[InstalledEngine]:
    return [e for e in engines.look(folders) if e.build == "installed"]


def test_an_engine_is_found_without_running_it(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert installed(tmp_path, program.parent) == [InstalledEngine("llamacpp", path=str(program))]
    assert not (tmp_path / "was-run").exists()


def test_what_it_can_use_is_read_from_the_libraries_beside_it(program):
    for name in ("libggml-cpu-haswell.so", "libggml-cuda.so"):
        (program.parent / name).touch()

    assert installed(program.parent)[0].accelerators == ("cpu", "nvidia")


def test_what_it_can_use_is_unknown_when_nothing_lies_beside_it(program):
    assert installed(program.parent)[0].accelerators is None


def test_a_program_that_anybody_may_change_is_not_used(program):
    program.chmod(0o757)
    assert installed(program.parent) == []

    program.chmod(0o755)
    program.parent.chmod(0o777)
    assert installed(program.parent) == []


def test_what_cannot_be_run_is_no_engine(program, tmp_path):
    program.chmod(0o644)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "llama-server").mkdir()

    assert installed(program.parent, tmp_path / "other", tmp_path / "nowhere") == []


def test_the_embedded_engine_is_for_cpus(tmp_path):
    (found,) = [e for e in engines.look([]) if e.build == "embedded"]

    assert (found.name, found.accelerators, bool(found.version)) == ("llamacpp", ("cpu",), True)


def test_others_use_what_engines_do_not_and_never_less_than_the_reserve(tmp_path):
    seen = host.look(tmp_path)
    machine = host.Host("n1", 8, 64 * GIB, 20 * GIB, None)

    assert seen.cpu_cores == len(os.sched_getaffinity(0))
    assert seen.disk_free_bytes > 0
    assert host.used_by_others(machine, 15 * GIB, GIB) == 5 * GIB
    assert host.used_by_others(machine, 30 * GIB, GIB) == GIB


async def test_the_inventory_is_reported_with_what_the_owner_allows(agents, control):
    await agents.start()

    inventory = await until(lambda: control.report and control.report.inventory)

    assert inventory.hostname
    assert inventory.memory_bytes > inventory.memory_used_by_others_bytes
    assert inventory.cards == ()
    assert inventory.allow == agents.settings.allow
    assert {(e.name, e.build) for e in inventory.engines} == {("llamacpp", "installed"), ("llamacpp", "embedded")}
