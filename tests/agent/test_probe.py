"""What a node has: cards as their driver tells of them, engines as they lie there, memory as it is used."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from fakes import smi as fakes
from fakes.waiting import until
from llmgw_agent.probe import engines, gpu, holders, host, tool
from llmgw_agent.probe.card_class import card_class
from llmgw_agent.probe.kernel_log import KernelLog
from llmgw_agent.protocol import Card, ForeignProcess, InstalledEngine, Phase

MIB = 1 << 20
GIB = 1 << 30


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
    assert card_class(name, mib * MIB) == expected


@pytest.fixture
def probe(tmp_path):
    """Looks for drivers in a folder, and at a kernel's log that is a file there."""
    (tmp_path / "kmsg").touch()
    return gpu.Probe([tmp_path], KernelLog(tmp_path / "kmsg"))


@pytest.fixture
def smi(tmp_path):
    """Puts a program called nvidia-smi on a path."""

    def write(script: str):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return [tmp_path]

    return write


async def seen(probe, folder, *gpus, ours=(), **more):
    """The cards of a look at a machine whose nvidia-smi tells of these."""
    fakes.nvidia_smi(folder, fakes.log(*gpus), **more)
    found = await probe.look(set(ours))
    assert found.problem == ""
    return {c.uuid: c for c in found.cards}


async def test_cards_are_read_and_our_own_engines_do_not_count_as_others(probe, tmp_path):
    held = fakes.running((4242, "/opt/llama-server", "12000 MiB"), (77, "/usr/bin/Xorg", "345 MiB"))
    there = [
        fakes.gpu(1, held, used="12345 MiB"),
        fakes.gpu(2, name="Tesla T4", total="15360 MiB"),
        # One whose memory is the machine's is left out rather than called empty.
        fakes.gpu(3, name="NVIDIA GB10", total="[N/A]", used="[N/A]"),
    ]

    cards = await seen(probe, tmp_path, *there, ours=[4242], capabilities="GPU-1, 8.9\nGPU-2, [N/A]\n")

    assert cards == {
        "GPU-1": Card(
            "GPU-1",
            "NVIDIA L40S",
            "nvidia",
            "l40s-48g",
            46068 * MIB,
            320 * MIB,
            "8.9",
            processes=(ForeignProcess(77, 320 * MIB, "Xorg"),),
        ),
        "GPU-2": Card("GPU-2", "Tesla T4", "nvidia", "t4-16g", 15360 * MIB, 0, ""),
    }


async def test_what_our_engines_hold_is_summed_over_cards_and_unknown_where_it_is_not_said(probe, tmp_path):
    one = fakes.running((4242, "/opt/llama-server", "12000 MiB"), (77, "/usr/bin/Xorg", "345 MiB"))
    two = fakes.running((4242, "/opt/llama-server", "9000 MiB"), (4243, "/opt/llama-server", "[N/A]"))
    fakes.nvidia_smi(tmp_path, fakes.log(fakes.gpu(1, one), fakes.gpu(2, two)))

    assert (await probe.look({4242, 4243})).held == {4242: 21000 * MIB}


async def test_gs1_who_holds_a_card_is_named_the_largest_first_without_their_words(probe, tmp_path):
    held = fakes.running(
        (1, "/usr/bin/python3 -m secret --token=x", "9000 MiB"),
        (2, "[Not Found]", "9500 MiB"),
        (3, "a &amp; b", "N/A"),
        (4, "tiny", "8 MiB"),
        *((10 + n, "many", "1024 MiB") for n in range(9)),
    )

    card = (await seen(probe, tmp_path, fakes.gpu(0, held, used="30000 MiB")))["GPU-0"]

    assert [(p.pid, p.name) for p in card.processes] == [
        (2, ""),
        (1, "python3"),
        (10, "many"),
        (11, "many"),
        (12, "many"),
    ]


async def test_one_that_draws_and_computes_is_counted_once_with_both(probe, tmp_path):
    held = fakes.running((5, "shell", "1024 MiB"), (5, "shell", "1024 MiB"))

    card = (await seen(probe, tmp_path, fakes.gpu(0, held, used="2048 MiB")))["GPU-0"]

    assert card.processes == (ForeignProcess(5, 2 * GIB, "shell"),)


async def test_a_name_that_is_no_xml_hides_no_card(probe, tmp_path):
    odd = fakes.running((5, "R&D\x01 &nbsp;", "1024 MiB"))

    assert list(await seen(probe, tmp_path, fakes.gpu(0, odd, used="1024 MiB"))) == ["GPU-0"]


async def test_slices_are_cards_of_their_own_with_their_own_memory_and_holders(probe, tmp_path):
    cut = fakes.mig((0, 3, "19968 MiB", "12000 MiB"), (1, 9, "9728 MiB", "12 MiB"))
    held = fakes.running((7, "python", "11000 MiB"), on=("3", "0"))
    listed = """\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-0)
  MIG 2g.20gb     Device  0: (UUID: MIG-aa)
  MIG 1g.10gb     Device  1: (UUID: MIG-bb)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-1)
"""
    there = [
        fakes.gpu(n, more, name="NVIDIA A100-SXM4-80GB", total="81920 MiB") for n, more in ((0, cut + held), (1, ""))
    ]

    cards = await seen(probe, tmp_path, *there, listed=listed, capabilities="GPU-0, 8.0\nGPU-1, 8.0")

    assert list(cards) == ["GPU-0", "MIG-aa", "MIG-bb", "GPU-1"]
    assert cards["MIG-aa"] == Card(
        "MIG-aa",
        "NVIDIA A100-SXM4-80GB",
        "nvidia",
        "a100-80g",
        19968 * MIB,
        11968 * MIB,
        "8.0",
        parent="GPU-0",
        slice="2g.20gb",
        processes=(ForeignProcess(7, 10944 * MIB, "python"),),
    )
    assert (cards["MIG-bb"].slice, cards["MIG-bb"].used_by_others_bytes) == ("1g.10gb", 0)


async def test_a_card_that_is_to_be_cut_and_is_not_cannot_be_used(probe, tmp_path):
    cards = await seen(probe, tmp_path, fakes.gpu(0, fakes.mig()), fakes.gpu(1, fakes.mig(current="N/A")))

    assert {uuid: c.errors for uuid, c in cards.items()} == {"GPU-0": ("mig mode without slices",), "GPU-1": ()}


@pytest.mark.parametrize(
    ("told", "errors"),
    [
        pytest.param(fakes.ecc(sram_uncorrectable=0, dram_uncorrectable=1), ("uncorrectable ecc",), id="dram"),
        pytest.param(fakes.ecc(sram_uncorrectable_parity=2), ("uncorrectable ecc",), id="sram, as later ones say it"),
        pytest.param(fakes.OLD_ECC, ("uncorrectable ecc",), id="double bit, as older cards say it"),
        pytest.param(fakes.ecc(dram_correctable=9000, dram_uncorrectable=0), (), id="corrected ones are none"),
        pytest.param(fakes.ecc(dram_uncorrectable="N/A"), (), id="a card that does not count"),
        pytest.param(
            "<retired_pages><pending_retirement>Yes</pending_retirement></retired_pages>",
            ("pages to be retired",),
            id="pages that wait for a reset",
        ),
        pytest.param(
            "<remapped_rows><remapped_row_pending>Yes</remapped_row_pending>"
            "<remapped_row_failure>No</remapped_row_failure></remapped_rows>",
            ("rows to be remapped",),
            id="rows that wait for a reset",
        ),
        pytest.param(
            "<remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>",
            ("row remapping failed",),
            id="rows that cannot be remapped",
        ),
        pytest.param("<remapped_rows>N/A</remapped_rows>", (), id="a card that has none"),
        pytest.param(
            "<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>", ("reset required",), id="reset"
        ),
        pytest.param("<gpu_recovery_action>Reboot</gpu_recovery_action>", ("reset required",), id="reboot"),
        pytest.param("<gpu_recovery_action>None</gpu_recovery_action>", (), id="nothing to recover from"),
    ],
)
async def test_what_the_driver_says_is_wrong_with_a_card_is_reported(probe, tmp_path, told, errors):
    cards = await seen(probe, tmp_path, fakes.gpu(0, told), fakes.gpu(1))

    assert {uuid: c.errors for uuid, c in cards.items()} == {"GPU-0": errors, "GPU-1": ()}


async def test_an_xid_of_the_kernels_log_is_held_against_its_card_for_an_hour(probe, tmp_path):
    now = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    long_ago = now - 2 * 3600 * 1_000_000
    (tmp_path / "kmsg").write_text(
        f"4,1,{now},-;NVRM: Xid (PCI:0000:00:00): 48, pid=7, name=python, DBE (double bit error)\n"
        " SUBSYSTEM=pci\n"
        f"4,2,{now},-;NVRM: Xid (PCI:0000:01:00.0): 13, Graphics Exception: the program's own doing\n"
        f"4,3,{long_ago},-;NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.\n"
        "nothing of the kernel's; NVRM: Xid (PCI:0000:02:00): 79\n"
    )

    cards = await seen(probe, tmp_path, *map(fakes.gpu, range(3)))

    assert {uuid: c.errors for uuid, c in cards.items()} == {"GPU-0": ("xid 48",), "GPU-1": (), "GPU-2": ()}


async def test_a_log_that_may_not_be_read_says_nothing(tmp_path):
    probe = gpu.Probe([tmp_path], KernelLog(tmp_path / "nowhere"))

    assert (await seen(probe, tmp_path, fakes.gpu(0)))["GPU-0"].errors == ()


LOST = "Unable to determine the device handle for GPU1: 0000:01:00.0: Unknown Error\n"


async def test_a_card_that_is_lost_stays_reported_as_such_while_the_others_are_well_and_may_return(probe, tmp_path):
    both = [fakes.gpu(0), fakes.gpu(1)]

    before = await seen(probe, tmp_path, *both)
    gone = await seen(probe, tmp_path, fakes.gpu(0), err=LOST)
    back = await seen(probe, tmp_path, *both)

    assert {uuid: c.errors for uuid, c in gone.items()} == {"GPU-0": (), "GPU-1": ("lost",)}
    assert gone["GPU-1"].card_class == "l40s-48g"
    assert back == before


@pytest.mark.parametrize(
    ("there", "err", "name"),
    [
        pytest.param([fakes.gpu(0)], LOST, "PCI-0000:01:00", id="of which only its place is said"),
        pytest.param([fakes.gpu(0), fakes.gpu(1, total="GPU is lost")], "", "GPU-1", id="listed, and lost"),
        pytest.param([fakes.gpu(0), fakes.gpu(1)], LOST, "GPU-1", id="listed whole, and a message says otherwise"),
        pytest.param(
            [fakes.gpu(0), fakes.gpu(1).replace("GPU-1", "Unknown Error")], "", "PCI-0000:01:00", id="an unknown error"
        ),
    ],
)
async def test_a_card_that_was_lost_before_the_agent_started_is_reported_by_what_is_known(
    probe, tmp_path, there, err, name
):
    cards = await seen(probe, tmp_path, *there, err=err)

    assert {uuid: c.errors for uuid, c in cards.items()} == {"GPU-0": (), name: ("lost",)}


async def test_amd_cards_are_read_with_their_errors_and_who_holds_them(probe, tmp_path):
    fakes.amd_smi(tmp_path)

    assert await probe.look({4242}) == gpu.Cards(
        (
            Card(
                "GPU-6f1f0a2b3c4d5e6f",
                "AMD Instinct MI300X",
                "amd",
                "mi300x-192g",
                196592 * MIB,
                12 * GIB,
                processes=(ForeignProcess(7, 12 * GIB, "python3"),),
                errors=("uncorrectable ecc",),
            ),
        ),
        held={4242: 8 * GIB},
    )


async def test_no_driver_is_no_card_and_no_problem(probe):
    # As on the machines these tests run on: what a real driver prints is only known from what others have written down.
    assert await probe.look(set()) == gpu.Cards()


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        pytest.param(
            "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18",
            "Failed to initialize NVML: Driver/library version mismatch",
            id="what it says is wrong",
        ),
        pytest.param("exit 9", "it ended with code 9", id="nothing"),
        pytest.param("echo '<nvidia_smi_log><gpu>'", "what nvidia-smi says cannot be read", id="half an answer"),
    ],
)
async def test_a_driver_that_does_not_tell_of_its_cards_is_quoted(smi, probe, script, problem):
    smi(script)

    assert (await probe.look(set())).problem == problem


async def test_a_document_with_entities_of_its_own_is_not_expanded(probe, tmp_path):
    bomb = fakes.log(fakes.gpu(0, name="&a;")).replace("<nvidia_smi_log>", "<nvidia_smi_log>", 1)
    bomb = bomb.replace('SYSTEM "nvsmi_device_v13.dtd"', '[<!ENTITY a "AAAAAAAAAA">]')
    fakes.nvidia_smi(tmp_path, bomb)

    (card,) = (await probe.look(set())).cards

    assert card.name == "&a;"


async def test_a_driver_that_hangs_is_given_up_and_named_and_not_asked_again_before_it_ends(smi, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "DEADLINE_S", 0.2)
    smi(f"echo x >> {tmp_path}/asked; exec sleep 60")
    probe = gpu.Probe([tmp_path], KernelLog(tmp_path / "nowhere"))

    first = await probe.look(set())
    # One that the kernel does not let go of has not ended: here it is held by hand.
    probe._tools["nvidia-smi"]._last = await asyncio.create_subprocess_exec("sleep", "60")
    second = await probe.look(set())

    assert "does not answer within 0.2 s" in first.problem
    assert "still hangs" in second.problem
    assert (tmp_path / "asked").read_text() == "x\n"
    probe._tools["nvidia-smi"]._last.kill()
    await probe._tools["nvidia-smi"]._last.wait()


async def test_a_program_that_prints_without_end_is_given_up(smi, probe, monkeypatch):
    monkeypatch.setattr(tool, "DEADLINE_S", 0.5)
    monkeypatch.setattr(tool, "MOST_BYTES", 1000)
    smi("exec yes")

    assert "does not answer" in (await probe.look(set())).problem


def test_who_holds_the_machines_memory_is_named(tmp_path):
    page = os.sysconf("SC_PAGE_SIZE")
    for pid, resident, shared, name in (
        (10, 9, 0, "postgres"),
        (11, 9, 8, "maps"),
        (12, 20, 0, "ours"),
        (13, 1, 0, "x"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "statm").write_text(f"99 {resident * GIB // page} {shared * GIB // page} 0 0 0 0")
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
    (tmp_path / "14").mkdir()  # it has just ended
    (tmp_path / "self").mkdir()

    assert holders.of_memory({12}, tmp_path) == (
        ForeignProcess(10, 9 * GIB, "postgres"),
        ForeignProcess(11, GIB, "maps"),
        ForeignProcess(13, GIB, "x"),
    )


async def test_ds10_a_hanging_driver_delays_no_report_and_no_engine(agents, control, smi, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "DEADLINE_S", 60.0)
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


def a_build(folder, *libraries):
    folder.mkdir(parents=True, mode=0o755)
    made = folder / "llama-server"
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    for name in libraries:
        (folder / name).touch()
    return made


def test_builds_side_by_side_are_all_found_with_their_versions(tmp_path):
    builds = [a_build(tmp_path / at) for at in ("llama-b9000", "b11549/bin", "llama-b11600/build/bin")]
    a_build(tmp_path / "notes-on-b9000-and-more" / "deeper")
    a_build(tmp_path / "another")

    found = installed(tmp_path)

    assert {(e.version, e.path) for e in found} == {
        (version, str(program)) for version, program in zip(("b9000", "b11549", "b11600"), builds, strict=True)
    }


def test_a_build_is_told_by_the_library_it_loads_before_any_folder(tmp_path):
    program = a_build(tmp_path / "llama-b9000", "libllama.so.0.0.8999", "libllama.so.0.0.11549")
    (program.parent / "libllama.so.0").symlink_to("libllama.so.0.0.11549")

    assert [e.version for e in installed(program.parent)] == ["b11549"]


def test_a_program_behind_a_link_is_of_the_folder_it_is_really_in_and_is_listed_once(tmp_path):
    program = a_build(tmp_path / "llama-b9000")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "llama-server").symlink_to(program)

    assert [(e.version, e.path) for e in installed(tmp_path / "links", tmp_path)] == [
        ("b9000", str(tmp_path / "links" / "llama-server"))
    ]


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
