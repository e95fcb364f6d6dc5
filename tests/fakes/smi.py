"""What nvidia-smi and amd-smi print, in our own words after the documented format, and programs that print it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path


def gpu(n: int = 0, *parts: str, name: str = "NVIDIA L40S", total: str = "46068 MiB", used: str = "0 MiB") -> str:
    """One card of `nvidia-smi -q -x`: as driver 590 tells of it, without what nobody reads."""
    return f"""
    <gpu id="00000000:{n:02X}:00.0">
        <product_name>{name}</product_name>
        <display_mode>Requested functionality has been deprecated</display_mode>
        <uuid>GPU-{n}</uuid>
        <fb_memory_usage><total>{total}</total><reserved>0 MiB</reserved><used>{used}</used></fb_memory_usage>
        <utilization><gpu_util>N/A</gpu_util></utilization>
        {"".join(parts)}
    </gpu>"""


def log(*gpus: str) -> str:
    """The whole document."""
    return f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
<nvidia_smi_log>
    <driver_version>590.44.01</driver_version>
    <attached_gpus>{len(gpus)}</attached_gpus>{"".join(gpus)}
</nvidia_smi_log>
"""


def running(*rows: tuple[int, str, str], on: tuple[str, str] = ("N/A", "N/A")) -> str:
    """Who runs on a card: pid, name and memory; on a slice where its two numbers are given."""
    return "".join(
        f"<process_info><gpu_instance_id>{on[0]}</gpu_instance_id>"
        f"<compute_instance_id>{on[1]}</compute_instance_id><pid>{pid}</pid><type>C</type>"
        f"<process_name>{name}</process_name><used_memory>{used}</used_memory></process_info>"
        for pid, name, used in rows
    )


def ecc(**counts: str | int) -> str:
    """Errors since the last reset, by the names of a newer card."""
    rows = "".join(f"<{key}>{value}</{key}>" for key, value in counts.items())
    return f"<ecc_errors><volatile>{rows}</volatile><aggregate>{rows}</aggregate></ecc_errors>"


OLD_ECC = """<ecc_errors><volatile><single_bit><total>9</total></single_bit>
    <double_bit><device_memory>2</device_memory><total>2</total></double_bit></volatile></ecc_errors>"""
"""The same as older cards have it: one uncorrectable total."""


def mig(*slices: tuple[int, int, str, str], current: str = "Enabled") -> str:
    """A card's slices: number, instance, total and used memory."""
    rows = "".join(
        f"""<mig_device><index>{number}</index><gpu_instance_id>{instance}</gpu_instance_id>
        <compute_instance_id>0</compute_instance_id>
        <ecc_error_count><volatile_count><sram_uncorrectable>0</sram_uncorrectable></volatile_count></ecc_error_count>
        <fb_memory_usage><total>{total}</total><used>{used}</used></fb_memory_usage></mig_device>"""
        for number, instance, total, used in slices
    )
    return f"<mig_mode><current_mig>{current}</current_mig></mig_mode><mig_devices>{rows or 'None'}</mig_devices>"


AMD_STATIC = {
    "gpu_data": [
        {
            "gpu": 0,
            "asic": {"market_name": "AMD Instinct MI300X", "asic_serial": "0x6F1F0A2B3C4D5E6F"},
            "vram": {"type": "HBM3", "size": {"value": 196592, "unit": "MB"}},
        },
        {"gpu": 1, "asic": {"market_name": "N/A", "asic_serial": "N/A"}, "vram": {"size": "N/A"}},
    ]
}
AMD_METRIC = {
    "gpu_data": [
        {
            "gpu": 0,
            "mem_usage": {"used_vram": {"value": 20480, "unit": "MB"}},
            "ecc": {"total_uncorrectable_count": 1},
        }
    ]
}
AMD_PROCESS = [
    {
        "gpu": 0,
        "process_list": [
            {
                "process_info": {
                    "name": name,
                    "pid": pid,
                    "memory_usage": {"vram_mem": {"value": size << 30, "unit": "B"}},
                }
            }
            for name, pid, size in (("/opt/venv/bin/python3", 7, 12), ("llama-server", 4242, 8))
        ],
    }
]


def nvidia_smi(folder: Path, xml: str, *, listed: str = "", capabilities: str = "", err: str = "") -> None:
    """An nvidia-smi in a folder that answers the three questions it is asked."""
    answers = {"-q": xml, "-L": listed, "--query-gpu=uuid,compute_cap": capabilities}
    _program(folder / "nvidia-smi", answers, err)


def amd_smi(folder: Path) -> None:
    """An amd-smi."""
    answers = {"static": AMD_STATIC, "metric": AMD_METRIC, "process": AMD_PROCESS}
    _program(folder / "amd-smi", {word: json.dumps(value) for word, value in answers.items()}, "")


def _program(path: Path, answers: dict[str, str], err: str) -> None:
    cases = "\n".join(f"{word}) printf %s {shlex.quote(said)};;" for word, said in answers.items())
    path.write_text(f'#!/bin/sh\nprintf %s {shlex.quote(err)} >&2\ncase "$1" in\n{cases}\nesac\n')
    path.chmod(0o755)
